// The batches of a pass over a dataset, read by a thread ahead of the step where that pays.
//
// The first batches of a pass are read here and timed. Where reading takes less than kWorthAThread
// of what a step takes, the rest is left to the step, which reads the rows to where it needs them;
// from time to time a few are timed again, since data that were quick may become slow. Otherwise a
// thread reads the next data.prefetch batches while the steps run, to the end of the pass. Arrays
// that lie in memory as they are fed are never timed. What a batch holds is the same either way.
// Of several processes each reads only the rows that it computes with.
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
  using PartOf = std::function<BatchPart(int64_t batch_size)>;

  // `ahead`: batches that a thread may prepare; 0 for none. `now` is called by one thread, and so
  // is `part`; without it all rows are read.
  BatchReader(const Dataset& dataset, int64_t ahead, Clock now, PartOf part = {});
  ~BatchReader();

  // Begins a pass: batches [first, end) of `batch_size` places of `order` each, the last one what
  // is left. Forgets what was read ahead before.
  void start(EpochOrder order, int64_t batch_size, int64_t first, int64_t end);
  // The next batch, valid until the next call; throws what reading it threw.
  Batch next();

  bool has_thread() const { return thread_.joinable(); }

 private:
  class GatheredRows;
  // A batch, or the part of it that is wanted, as a dataset of its own.
  struct Gathered {
    explicit Gathered(const Dataset& like);
    Dataset dataset;
    std::vector<std::shared_ptr<GatheredRows>> arrays;  // inputs, targets, weight
    const Dataset* whole = nullptr;                     // null: all of the batch was read
    int64_t first = 0;                                  // else the row that the part begins with
    std::vector<int64_t> rows;                          // 0, 1, ... or those of the whole
    std::exception_ptr error;

    void read(const Dataset& from, std::vector<int64_t> wanted, BatchPart part);
    Batch batch() const {
      return whole == nullptr ? Batch{&dataset, rows} : Batch{whole, rows, &dataset, first};
    }
  };

  std::vector<int64_t> rows_of(int64_t batch) const;
  BatchPart part_of(int64_t batch_size) const;
  bool is_timed(int64_t batch) const;
  Batch read_timed();
  void start_thread();
  void stop_thread();
  void read_ahead();

  const Dataset& dataset_;
  int64_t ahead_;
  Clock now_;
  PartOf part_;
  bool is_ready_ = true;  // nothing to gain: every array lies in memory

  EpochOrder order_{0};
  int64_t batch_size_ = 1, next_ = 0, end_ = 0;
  std::vector<int64_t> rows_;  // of the current batch, left to the step

  // Times in seconds of the batches timed in a row.
  std::unique_ptr<Gathered> timed_;
  int64_t num_handed_out_ = 0;  // of the pass
  std::optional<double> handed_out_at_;
  double read_seconds_ = 0, step_seconds_ = 0;  // the least of each

  BatchPart thread_part_, thread_last_part_;      // of batches, and of the pass's last one
  std::vector<std::unique_ptr<Gathered>> slots_;  // batch b lies in slot b % size
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t num_read_ = 0;  // batches below this were read ahead
  int64_t in_use_ = 0;    // the batch handed out last
  bool is_stopping_ = false;
};

}  // namespace meshtrain
