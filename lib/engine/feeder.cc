#include "engine/feeder.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/device_memory.h"
#include "engine/step_graph.h"

namespace meshtrain {
namespace {

const Buffer& buffer_of(const Executor& executor, int input) {
  const Program& program = executor.program();
  return program.buffers[program.inputs[static_cast<size_t>(input)].buffer];
}

bool are_consecutive(std::span<const int64_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != rows[0] + static_cast<int64_t>(i)) {
      return false;
    }
  }
  return true;
}

std::vector<const Rows*> arrays_of(const Dataset& dataset) {
  std::vector<const Rows*> out;
  for (const std::vector<Dataset::Array>* arrays : {&dataset.inputs, &dataset.targets}) {
    for (const Dataset::Array& array : *arrays) {
      out.push_back(array.rows.get());
    }
  }
  if (dataset.sample_weight) {
    out.push_back(dataset.sample_weight.get());
  }
  return out;
}

}  // namespace

bool Feeder::cache_on_device(const Dataset& dataset) {
  const std::vector<const Rows*> arrays = arrays_of(dataset);
  if (std::all_of(arrays.begin(), arrays.end(), [&](auto* a) { return kept_.contains(a); })) {
    return true;
  }
  int64_t bytes = 0;
  for (const Rows* rows : arrays) {
    // Rows have 32-bit numbers there. What is cast has at most 8 bytes where it had fewer.
    const int64_t widest = static_cast<int64_t>(sizeof(double) / dtype_size(rows->dtype()));
    if (device_ == nullptr || rows->cost() == Rows::Cost::kComputed ||
        rows->size() > std::numeric_limits<int32_t>::max()) {
      return false;
    }
    bytes += rows->size() * static_cast<int64_t>(rows->row_bytes()) * widest;
  }
  if (bytes > room_on(*device_) / 2) {
    return false;
  }
  kept_.insert(arrays.begin(), arrays.end());
  return true;
}

const DeviceTable& Feeder::table(const Rows& rows, DType dtype) {
  std::unique_ptr<DeviceTable>& made = tables_[{&rows, dtype}];
  if (made == nullptr) {
    const int64_t elements = static_cast<int64_t>(rows.row_bytes() / dtype_size(rows.dtype()));
    made = std::make_unique<DeviceTable>(device_, rows.size(),
                                         elements * static_cast<int64_t>(dtype_size(dtype)));
    rows.for_each_block([&](int64_t first, const HostTensor& block) {
      if (block.dtype() == dtype) {
        made->write(first, block.bytes(), static_cast<int64_t>(block.num_bytes()));
      } else {
        const HostTensor cast = block.cast(dtype);
        made->write(first, cast.bytes(), static_cast<int64_t>(cast.num_bytes()));
      }
    });
  }
  return *made;
}

std::vector<const DeviceTable*> Feeder::tables(const Executor& executor, const Dataset& dataset) {
  std::vector<const DeviceTable*> result;
  for (int i = 0; i < static_cast<int>(executor.program().inputs.size()); ++i) {
    const std::string& name = executor.program().inputs[static_cast<size_t>(i)].name;
    const Rows* from = nullptr;
    if (name == kSampleWeightInput) {
      from = dataset.sample_weight.get();
    } else if (name != kLearningRateInput) {
      const auto& arrays = name[0] == 'x' ? dataset.inputs : dataset.targets;
      const size_t at = static_cast<size_t>(std::stoul(name.substr(2)));
      from = at < arrays.size() ? arrays[at].rows.get() : nullptr;
    }
    const bool gathers = from != nullptr && kept_.contains(from) && executor.can_gather(i);
    result.push_back(gathers ? &table(*from, buffer_of(executor, i).dtype) : nullptr);
  }
  return result;
}

void Feeder::feed_rows(Executor& executor, int index, const Batch& batch, const ArrayOf& array_of,
                       int step) {
  const Executor::RowRange range = executor.input_rows(index);
  const int64_t first_ready = range.first - batch.ready_first;
  const bool is_ready = batch.ready != nullptr && first_ready >= 0 &&
                        first_ready + range.count <= batch.ready->num_samples;
  if (is_ready) {
    ready_rows_.resize(static_cast<size_t>(range.count));
    std::iota(ready_rows_.begin(), ready_rows_.end(), first_ready);
  }
  const Rows& from = array_of(is_ready ? *batch.ready : *batch.dataset);
  const std::span<const int64_t> rows =
      is_ready
          ? std::span<const int64_t>(ready_rows_)
          : batch.rows.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.count));
  const Buffer& buffer = buffer_of(executor, index);
  const size_t row_bytes = from.row_bytes();
  if (kept_.contains(&from) && executor.can_gather(index)) {
    executor.gather_input(index, table(from, buffer.dtype), rows, step);
  } else if (buffer.dtype != from.dtype()) {
    Shape shape = from.shape();
    shape[0] = static_cast<int64_t>(rows.size());
    HostTensor as_read(from.dtype(), shape);
    from.read(rows, as_read.bytes());
    const HostTensor cast = as_read.cast(buffer.dtype);
    executor.set_input(index, cast.bytes(), cast.num_bytes(), step);
  } else if (const HostTensor* tensor = from.tensor(); tensor != nullptr && are_consecutive(rows)) {
    executor.set_input(index, tensor->bytes() + static_cast<size_t>(rows[0]) * row_bytes,
                       rows.size() * row_bytes, step);
  } else if (std::byte* memory = executor.input_data(index, step); memory != nullptr) {
    from.read(rows, memory);
  } else {
    staging_.resize(rows.size() * row_bytes);
    from.read(rows, staging_.data());
    executor.set_input(index, staging_.data(), staging_.size(), step);
  }
}

void Feeder::feed_numbers(Executor& executor, int index, std::span<const double> values, int step) {
  dispatch_float(buffer_of(executor, index).dtype, [&]<class T>(T) {
    std::vector<T> typed;
    for (const double value : values) {
      typed.push_back(static_cast<T>(value));
    }
    executor.set_input(index, typed.data(), typed.size() * sizeof(T), step);
  });
}

void Feeder::feed_weights(Executor& executor, int index, const Batch& batch, int step) {
  if (batch.dataset->sample_weight) {
    const auto weights_of = [](const Dataset& dataset) -> const Rows& {
      return *dataset.sample_weight;
    };
    feed_rows(executor, index, batch, weights_of, step);
    return;
  }
  Shape shape = buffer_of(executor, index).global_shape;
  shape[0] = executor.input_rows(index).count;
  const std::vector<double> ones(static_cast<size_t>(num_elements(shape)), 1.0);
  feed_numbers(executor, index, ones, step);
}

void Feeder::feed(Executor& executor, const Batch& batch, std::span<const double> learning_rates,
                  int step) {
  for (int i = 0; i < static_cast<int>(executor.program().inputs.size()); ++i) {
    const std::string& name = executor.program().inputs[static_cast<size_t>(i)].name;
    if (name == kLearningRateInput) {
      feed_numbers(executor, i, learning_rates, step);
    } else if (name == kSampleWeightInput) {
      feed_weights(executor, i, batch, step);
    } else {
      const bool is_input = name[0] == 'x';
      const size_t at = static_cast<size_t>(std::stoul(name.substr(2)));
      const auto& arrays = is_input ? batch.dataset->inputs : batch.dataset->targets;
      if (at >= arrays.size()) {
        throw ConfigError("E324", batch.dataset->loc,
                          fmt::format("{} has no {} number {}", batch.dataset->description,
                                      is_input ? "input" : "target", at + 1));
      }
      const auto array_of = [&](const Dataset& dataset) -> const Rows& {
        return *(is_input ? dataset.inputs : dataset.targets)[at].rows;
      };
      feed_rows(executor, i, batch, array_of, step);
    }
  }
}

}  // namespace meshtrain
