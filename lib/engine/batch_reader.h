// BatchReader: the batches of a pass over a dataset, prefetched by a thread where that pays.
//
// The first batches of a pass are read synchronously and timed. When reading takes less than
// kWorthAThread of a step's time, steps read the remaining rows themselves, directly to where they
// are needed. A few batches are timed again from time to time, since reading may become slow.
// Otherwise a thread prefetches data.prefetch batches until the end of the pass. Arrays in memory
// are never timed. The content of a batch is the same either way. Each process reads only its local
// rows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/epoch_order.h"
#include "engine/step_runner.h"

namespace meshtrain {

class BatchReader {
 public:
  static constexpr double kWorthAThread = 0.1;  // of a step's time

  using Clock = std::function<double()>;  // seconds
  using LocalRowsOf = std::function<LocalRows(int64_t batch_size)>;

  // `ahead`: batches that a thread may prefetch; 0 for none. One thread calls `now`, and one calls
  // `local_rows`. Without `local_rows` all rows are read.
  BatchReader(const Dataset& dataset, int64_t ahead, Clock now, LocalRowsOf local_rows = {});
  ~BatchReader();

  // Begins pass `pass` over the data: batches [first, end) of `batch_size` samples in this order;
  // the last one may be smaller. Drops prefetched batches of the pass before.
  void start(EpochOrder order, int64_t batch_size, int64_t first, int64_t end, int64_t pass = 0);
  // Returns the next batch, valid until the next call. Throws the error of reading it.
  Batch next();

  bool has_thread() const { return thread_.joinable(); }

 private:
  class GatheredRows;
  // A batch, or the local rows of it, as a dataset of its own.
  struct Gathered {
    explicit Gathered(const Dataset& like);
    Dataset dataset;
    std::vector<std::shared_ptr<GatheredRows>> arrays;  // inputs, targets, weight
    const Dataset* whole = nullptr;                     // null: all of the batch was read
    int64_t first = 0;                                  // else its first local row
    std::vector<int64_t> rows;                          // 0, 1, ... or those of the whole
    std::exception_ptr error;

    void read(const Dataset& from, std::vector<int64_t> wanted, LocalRows local_rows);
    Batch batch() const {
      return whole == nullptr ? Batch{&dataset, rows} : Batch{whole, rows, &dataset, first};
    }
  };

  std::vector<int64_t> rows_of(int64_t batch) const;
  LocalRows local_rows_of(int64_t batch_size) const;
  bool is_timed(int64_t batch) const;
  Batch read_timed();
  void start_thread();
  void stop_thread();
  void read_ahead();

  const Dataset& all_;
  std::optional<Dataset> in_pass_;  // as the pass sees it, where that differs
  const Dataset* dataset_ = &all_;  // one of these two
  int64_t ahead_;
  Clock now_;
  LocalRowsOf local_rows_;
  bool is_ready_ = true;  // nothing to gain: every array is in memory

  EpochOrder order_{0};
  int64_t batch_size_ = 1, next_ = 0, end_ = 0;
  std::vector<int64_t> rows_;  // of the current batch, left to the step

  // Times in seconds of the batches timed in a row.
  std::unique_ptr<Gathered> timed_;
  int64_t num_handed_out_ = 0;  // of the pass
  std::optional<double> handed_out_at_;
  double read_seconds_ = 0, step_seconds_ = 0;  // the least of each

  LocalRows thread_rows_, thread_last_rows_;      // of batches, and of the pass's last one
  std::vector<std::unique_ptr<Gathered>> slots_;  // batch b is in slot b % size
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t num_read_ = 0;  // batches below this were prefetched
  int64_t in_use_ = 0;    // the batch handed out last
  bool is_stopping_ = false;
};

}  // namespace meshtrain
