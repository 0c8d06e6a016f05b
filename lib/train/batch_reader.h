// The batches of a pass over a dataset, read by a thread ahead of the step where that pays.
//
// The first batches of a pass are read here and timed. Where reading takes less than kWorthAThread
// of what a step takes, the rest is left to the step, which reads the rows to where it needs them;
// from time to time a few are timed again, since data that were quick may become slow. Otherwise a
// thread reads the next data.prefetch batches while the steps run, to the end of the pass. Arrays
// that lie in memory as they are fed are never timed. What a batch holds is the same either way.
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
#include "train/step_runner.h"

namespace meshtrain {

class BatchReader {
 public:
  static constexpr double kWorthAThread = 0.1;  // of a step's time

  using Clock = std::function<double()>;  // seconds

  // `ahead`: batches that a thread may prepare; 0 for none. `now` is called by one thread.
  BatchReader(const Dataset& dataset, int64_t ahead, Clock now);
  ~BatchReader();

  // Begins a pass: batches [first, end) of `batch_size` places of `order` each, the last one what
  // is left. Forgets what was read ahead before.
  void start(EpochOrder order, int64_t batch_size, int64_t first, int64_t end);
  // The next batch, valid until the next call; throws what reading it threw.
  Batch next();

  bool has_thread() const { return thread_.joinable(); }

 private:
  class GatheredRows;
  // A batch as a dataset of its own, all of whose rows are wanted.
  struct Gathered {
    explicit Gathered(const Dataset& like);
    Dataset dataset;
    std::vector<std::shared_ptr<GatheredRows>> arrays;  // inputs, targets, weight
    std::vector<int64_t> rows;                          // 0, 1, ...
    std::exception_ptr error;

    void read(const Dataset& from, std::span<const int64_t> wanted);
    Batch batch() const { return {&dataset, rows}; }
  };

  std::vector<int64_t> rows_of(int64_t batch) const;
  bool is_timed(int64_t batch) const;
  Batch read_timed();
  void start_thread();
  void stop_thread();
  void read_ahead();

  const Dataset& dataset_;
  int64_t ahead_;
  Clock now_;
  bool is_ready_ = true;  // nothing to gain: every array lies in memory

  EpochOrder order_{0};
  int64_t batch_size_ = 1, next_ = 0, end_ = 0;
  std::vector<int64_t> rows_;  // of the current batch, left to the step

  // Times in seconds of the batches timed in a row.
  std::unique_ptr<Gathered> timed_;
  int64_t num_handed_out_ = 0;  // of the pass
  std::optional<double> handed_out_at_;
  double read_seconds_ = 0, step_seconds_ = 0;  // the least of each

  std::vector<std::unique_ptr<Gathered>> slots_;  // batch b lies in slot b % size
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t num_read_ = 0;  // batches below this were read ahead
  int64_t in_use_ = 0;    // the batch handed out last
  bool is_stopping_ = false;
};

}  // namespace meshtrain
