// Feeder: writes the inputs of steps: samples, targets, weights, the learning rate. Datasets that
// fit are cached whole in GPU memory, and batches are gathered from them there. Each process caches
// all rows, because a shuffle or a smaller last batch may need any row on any process.
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
  // `device`: null for the CPU.
  explicit Feeder(std::shared_ptr<gpu::Device> device) : device_(std::move(device)) {}

  // Caches the dataset's arrays in GPU memory when they fit into half of what is free and are not
  // computed on reading. Returns whether they are cached. The dataset must outlive the feeder.
  bool cache_on_device(const Dataset& dataset);

  // Returns the table of each input that feed() will gather from this dataset; null for others.
  std::vector<const DeviceTable*> tables(const Executor& executor, const Dataset& dataset);

  // Writes all inputs of step `step` of the executor's next run: the local rows of the batch.
  // Throws ConfigError E324 when the dataset has no such array, and the errors of reading it.
  void feed(Executor& executor, const Batch& batch, std::span<const double> learning_rates,
            int step);

 private:
  using ArrayOf = std::function<const Rows&(const Dataset& dataset)>;

  void feed_rows(Executor& executor, int index, const Batch& batch, const ArrayOf& array_of,
                 int step);
  void feed_numbers(Executor& executor, int index, std::span<const double> values, int step);
  void feed_weights(Executor& executor, int index, const Batch& batch, int step);
  const DeviceTable& table(const Rows& rows, DType dtype);

  std::shared_ptr<gpu::Device> device_;
  std::set<const Rows*> kept_;
  std::map<std::pair<const Rows*, DType>, std::unique_ptr<DeviceTable>> tables_;
  std::vector<std::byte> staging_;
  std::vector<int64_t> ready_rows_;
};

}  // namespace meshtrain
