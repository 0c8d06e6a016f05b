#include <algorithm>

#include "comm/heartbeat_monitor.h"
#include "exec/executor.h"
#include "exec/memory.h"
#include "exec/shard_map.h"

namespace meshtrain {
namespace {

StepMemory::Allocate allocate_on(const std::shared_ptr<gpu::Device>& device) {
  if (device == nullptr) {
    return [](int64_t bytes) {
      const auto arena = std::make_shared<Arena>(bytes);
      return std::shared_ptr<std::byte>(arena, arena->data());
    };
  }
  return [device](int64_t bytes) {
    return std::shared_ptr<std::byte>(device->allocate(bytes),
                                      [device](std::byte* memory) { device->free(memory); });
  };
}

int64_t variable_bytes(const MeshPart& part, const Variable& v) {
  const ShardMap map(part, v.layout.storage, v.shape, v.dtype);
  return std::max<int64_t>(map.total_bytes(), 1);
}

// Where each variable begins on a device, and then where the last one ends.
std::vector<int64_t> variable_offsets(const MeshPart& part,
                                      const std::vector<Variable>& variables) {
  std::vector<int64_t> out = {0};
  for (const Variable& v : variables)
    out.push_back(out.back() + aligned_bytes(variable_bytes(part, v)));
  return out;
}

}  // namespace

int64_t variable_store_bytes(const MeshPart& part, const std::vector<Variable>& variables) {
  return variable_offsets(part, variables).back();
}

VariableStore::VariableStore(MeshPart part, std::vector<Variable> variables,
                             std::shared_ptr<gpu::Device> device, Processes processes)
    : part_(std::move(part)),
      variables_(std::move(variables)),
      device_(std::move(device)),
      processes_(std::move(processes)),
      step_memory_(allocate_on(device_)) {
  if (device_ == nullptr) {
    for (const Variable& v : variables_) {
      storage_.emplace_back(DType::kUInt8, Shape{variable_bytes(part_, v)});
      addresses_.push_back(storage_.back().bytes());
    }
  } else if (!variables_.empty()) {
    const std::vector<int64_t> offsets = variable_offsets(part_, variables_);
    device_memory_ = device_->allocate(offsets.back());
    for (size_t v = 0; v < variables_.size(); ++v)
      addresses_.push_back(device_memory_ + offsets[v]);
  }
}

VariableStore::~VariableStore() {
  if (device_memory_ != nullptr)
    device_->free(device_memory_);
}

ShardMap VariableStore::map(int variable) const {
  const Variable& v = variables_[static_cast<size_t>(variable)];
  return ShardMap(part_, v.layout.storage, v.shape, v.dtype);
}

int VariableStore::find(std::string_view path) const {
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (variables_[v].path == path)
      return static_cast<int>(v);
  }
  return kNone;
}

int64_t VariableStore::shard_bytes(int variable) const {
  return map(variable).shard_bytes();
}

void VariableStore::copy_shards(int variable, std::byte* to) const {
  const int64_t bytes = map(variable).total_bytes();
  const std::byte* from = addresses_[static_cast<size_t>(variable)];
  if (device_ == nullptr) {
    std::copy_n(from, bytes, to);
  } else if (bytes > 0) {
    device_->download(to, from, bytes);
  }
}

void VariableStore::write_shards(int variable, const std::byte* from) {
  const int64_t bytes = map(variable).total_bytes();
  std::byte* to = addresses_[static_cast<size_t>(variable)];
  if (device_ == nullptr) {
    std::copy_n(from, bytes, to);
  } else if (bytes > 0) {
    device_->upload(to, from, bytes);
  }
}

HostTensor VariableStore::read(int variable) const {
  const Variable& v = variables_[static_cast<size_t>(variable)];
  const ShardMap shards = map(variable);
  const Sharding& layout = v.layout.storage;
  HostTensor whole;
  // On a GPU, steps without a reader of their results may still run, as those of an evaluation: two
  // of whole batches, one for each half of the slots, and that of a last smaller batch, a program
  // of its own.
  constexpr int kMostUnread = 3;
  if (processes_.monitor != nullptr)
    processes_.monitor->wait_for("reading a variable", kMostUnread);
  if (shards.is_whole() && (layout.used_axes() & part_.crossing()) == 0) {
    whole = HostTensor(v.dtype, v.shape);
    copy_shards(variable, whole.bytes());  // without a second copy of what may be large
  } else {
    HostTensor copy;
    const std::byte* from = addresses_[static_cast<size_t>(variable)];
    if (device_ != nullptr) {
      copy = HostTensor(DType::kUInt8, {shards.total_bytes()});
      copy_shards(variable, copy.bytes());
      from = copy.bytes();
    }
    whole = gather_whole(part_, layout, v.shape, v.dtype, from, processes_.group.get());
  }
  if (processes_.monitor != nullptr)
    processes_.monitor->leave();
  return v.unpadded.empty() ? std::move(whole) : whole.resized(v.unpadded);
}

void VariableStore::write(int variable, const HostTensor& value) {
  const Variable& v = variables_[static_cast<size_t>(variable)];
  MESHTRAIN_CHECK(value.shape() == v.own_shape() && value.dtype() == v.dtype,
                  "{} is {} {}, not {} {}", v.path, dtype_name(v.dtype),
                  shape_string(v.own_shape()), dtype_name(value.dtype()),
                  shape_string(value.shape()));
  const HostTensor padded = v.unpadded.empty() ? HostTensor() : value.resized(v.shape);
  const ShardMap shards = map(variable);
  const std::byte* local_rows =
      (v.unpadded.empty() ? value : padded).bytes() + shards.local_rows_offset();
  if (device_ == nullptr) {
    shards.scatter(local_rows, addresses_[static_cast<size_t>(variable)]);
    return;
  }
  if (shards.is_whole()) {
    write_shards(variable, local_rows);
    return;
  }
  HostTensor scattered(DType::kUInt8, {std::max<int64_t>(shards.total_bytes(), 1)});
  shards.scatter(local_rows, scattered.bytes());
  write_shards(variable, scattered.bytes());
}

void VariableStore::fill(int variable, double value) {
  HostTensor whole(variables_[variable].dtype, variables_[variable].own_shape());
  for (int64_t i = 0; i < whole.size(); ++i)
    whole.set(i, value);
  write(variable, whole);
}

int64_t VariableStore::total_bytes() const {
  int64_t bytes = 0;
  for (size_t v = 0; v < variables_.size(); ++v)
    bytes += map(static_cast<int>(v)).total_bytes();
  return bytes;
}

DeviceTable::DeviceTable(std::shared_ptr<gpu::Device> device, int64_t rows, int64_t row_bytes)
    : device_(std::move(device)),
      rows_(rows),
      row_bytes_(row_bytes),
      memory_(device_->allocate(std::max<int64_t>(rows * row_bytes, 1))) {}

DeviceTable::~DeviceTable() {
  device_->free(memory_);
}

void DeviceTable::write(int64_t first_row, const void* data, int64_t num_bytes) {
  MESHTRAIN_CHECK(first_row * row_bytes_ + num_bytes <= rows_ * row_bytes_);
  device_->upload(memory_ + first_row * row_bytes_, data, num_bytes);
}

}  // namespace meshtrain
