// StepRunner: the compiled model as the trainer uses it. Engine implements it; tests replace it by
// a small model with known numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "engine/logs.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

struct Batch {
  const Dataset* dataset = nullptr;
  std::span<const int64_t> rows;  // of the dataset, in order
  // When only some rows were prefetched: row i of `ready` is rows[ready_first + i].
  const Dataset* ready = nullptr;
  int64_t ready_first = 0;
};

// The local rows of a batch: those that this process computes.
struct LocalRows {
  int64_t first = 0, count = 0;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  virtual void train_step(const Batch& batch) = 0;  // updates weights, optimizer state and metrics
  // Returns how many steps with batches of this size the next train_steps() may take; 1: only
  // train_step().
  virtual int64_t steps_at_once(int64_t /*batch_size*/) { return 1; }
  // Equals train_step() with `count` batches in order. Each batch is copied before next() is called
  // again.
  virtual void train_steps(int64_t /*count*/, const std::function<Batch()>& next) {
    train_step(next());
  }
  // True when train_step() and train_steps() return before their steps complete. Callers should
  // read the results of one call after the next one, so that the device stays busy. Reading state
  // waits for the last step.
  virtual bool is_async() const { return false; }
  // Selects which completed step last_loss() reports: `steps_ago` = 0 is the newest. At most the
  // steps of the last two train_steps() calls can be selected when is_async(), else those of the
  // last. Each call selects its own last step.
  virtual void select_step(int64_t /*steps_ago*/) {}
  // Returns the local rows of a batch; all rows until a batch of this size was computed.
  virtual LocalRows local_rows(bool /*training*/, int64_t batch_size) const {
    return {0, batch_size};
  }
  // Caches a dataset that is used repeatedly. Returns whether its batches need no reading from now
  // on. The dataset must outlive the runner.
  virtual bool cache_on_device(const Dataset& /*dataset*/) { return false; }
  // Begins to compile what the steps on this dataset need, and returns: before the first of them,
  // behind cache_on_device(). Their errors come when the steps run.
  virtual void begin_compile(const Dataset& /*dataset*/, bool /*training*/) {}
  virtual void test_step(const Batch& batch) = 0;  // updates metrics only
  // One tensor per model output, (rows, ...).
  virtual std::vector<HostTensor> predict_step(const Batch& batch) = 0;

  virtual double last_loss() const = 0;  // of the selected step, of its batch alone
  virtual void reset_metrics() = 0;
  virtual Logs logs() const = 0;  // of the metrics since the last reset, sorted by name
  virtual LogLists log_lists() const { return {}; }

  // Whole tensors by Keras path ("d1/kernel"), layer weights in Keras order.
  virtual std::vector<std::string> weight_paths() const = 0;
  virtual HostTensor read_variable(std::string_view path) const = 0;
  virtual void write_variable(std::string_view path, const HostTensor& value) = 0;
  // End of fit: w <- EMA average where the optimizer keeps one.
  virtual void finalize_weights() = 0;

  // Copies all weights to a snapshot of this callback, and back. The callback must have been in the
  // config of the runner.
  virtual void snapshot_weights(const std::string& owner) = 0;
  virtual void restore_snapshot(const std::string& owner) = 0;
  // Swaps the weights and their averages, when the optimizer has averages.
  virtual void swap_averages() = 0;

  // The rate of the next step, with the digits of the optimizer's variable: float32 unless the
  // dtype policy is float64. Setting it replaces a schedule.
  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double rate) = 0;
  // The rate of the next step where a schedule says it.
  virtual std::optional<double> scheduled_rate() const { return std::nullopt; }
  virtual int64_t iterations() const = 0;  // steps of the optimizer
};

}  // namespace meshtrain
