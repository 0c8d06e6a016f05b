// Feeder: what the steps of a program are fed with: samples, targets, weights, the learning rate.
// On a GPU, datasets that fit are kept there whole and batches gathered from them; of several
// processes each keeps all rows: a shuffle, or a last smaller batch, may ask any of them for any.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/step_runner.h"
#include "exec/executor.h"

namespace meshtrain {

class Feeder {
 public:
  // `device`: null for the processor.
  explicit Feeder(std::shared_ptr<gpu::Device> device) : device_(std::move(device)) {}

  // From now on this dataset's arrays are read once and lie on the GPU, where half of what is free
  // there is enough for all of them and reading them is no computation; says whether. The dataset
  // must outlive the feeder.
  bool cache_on_device(const Dataset& dataset);

  // Writes all inputs of step `step` of the executor's next run, of the batch what this process
  // computes with. Throws ConfigError E324 when the dataset has no such array, and what reading it
  // throws.
  void feed(Executor& executor, const Batch& batch, double learning_rate, int step);

 private:
  using ArrayOf = std::function<const Rows&(const Dataset& dataset)>;

  void feed_rows(Executor& executor, int index, const Batch& batch, const ArrayOf& array_of,
                 int step);
  void feed_scalar(Executor& executor, int index, double value, int step);
  void feed_weights(Executor& executor, int index, const Batch& batch, int step);
  const DeviceTable& table(const Rows& rows, DType dtype);

  std::shared_ptr<gpu::Device> device_;
  std::set<const Rows*> kept_;
  std::map<std::pair<const Rows*, DType>, std::unique_ptr<DeviceTable>> tables_;
  std::vector<std::byte> staging_;
  std::vector<int64_t> ready_rows_;
};

}  // namespace meshtrain
