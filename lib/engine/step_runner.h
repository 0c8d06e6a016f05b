// StepRunner: what the trainer needs of a compiled model. Engine implements it; tests put a small
// model with known numbers in its place.
#pragma once

#include <cstdint>
#include <functional>
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
  // Where only some of them were read ahead: row i of `ready` is rows[ready_first + i].
  const Dataset* ready = nullptr;
  int64_t ready_first = 0;
};

// Of the rows of a batch, those that this process computes with.
struct BatchPart {
  int64_t first = 0, count = 0;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  virtual void train_step(const Batch& batch) = 0;  // updates weights, optimizer state and metrics
  // How many steps with batches of this size train_steps() may be given next; 1: only train_step().
  virtual int64_t steps_at_once(int64_t /*batch_size*/) { return 1; }
  // The same as train_step() with `count` batches, one after the other; each is used before the
  // next one is asked for. Afterwards the state is that after the last step.
  virtual void train_steps(int64_t /*count*/, const std::function<Batch()>& next) {
    train_step(next());
  }
  // Whether steps are only begun when train_step() and train_steps() return, so that whoever asks
  // for results of one call after the next one lets the device compute in between. The state is
  // that after the last step in any case: who reads it waits.
  virtual bool is_async() const { return false; }
  // Selects which completed step last_loss() reports: `steps_ago` = 0 is the newest. At most the
  // steps of the last two train_steps() calls can be selected where the runner runs ahead, else
  // those of the last. Each call selects its own last step.
  virtual void select_step(int64_t /*steps_ago*/) {}
  // As far as is known: where nothing was computed with batches of this size, all.
  virtual BatchPart part_of_batch(bool /*training*/, int64_t batch_size) const {
    return {0, batch_size};
  }
  // Data that will be used again and again: whether batches cost no reading from now on. They must
  // outlive the runner.
  virtual bool cache_on_device(const Dataset& /*dataset*/) { return false; }
  virtual void test_step(const Batch& batch) = 0;  // updates metrics only
  // One tensor per model output, (rows, ...).
  virtual std::vector<HostTensor> predict_step(const Batch& batch) = 0;

  virtual double last_loss() const = 0;  // of the last step or the one shown, that batch alone
  virtual void reset_metrics() = 0;
  virtual Logs logs() const = 0;  // of the metrics since the last reset, sorted by name
  virtual LogLists log_lists() const { return {}; }

  // Whole tensors by Keras path ("d1/kernel"), layer weights in Keras order.
  virtual std::vector<std::string> weight_paths() const = 0;
  virtual HostTensor read_variable(std::string_view path) const = 0;
  virtual void write_variable(std::string_view path, const HostTensor& value) = 0;
  // End of fit: w <- EMA average where the optimizer keeps one.
  virtual void finalize_weights() = 0;

  // Copies all weights aside under the name of a callback that was known when the runner was made,
  // and back.
  virtual void snapshot_weights(const std::string& owner) = 0;
  virtual void restore_snapshot(const std::string& owner) = 0;
  // Exchanges the weights and their averages where the optimizer keeps some.
  virtual void swap_averages() = 0;

  // The rate of the next step, with the digits of the optimizer's variable: float32 unless the
  // dtype policy is float64. Setting it takes the place of a schedule.
  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double rate) = 0;
  virtual int64_t iterations() const = 0;  // steps of the optimizer
};

}  // namespace meshtrain
