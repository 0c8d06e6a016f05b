// Descriptors of the fake cuDNN: attributes that were set, and convolutions that they describe.
#pragma once

#include <cudnn_graph.h>

#include <cstring>

#include "backend/gpu/command.h"
#include "support/fake_cuda/state.h"

namespace meshtrain::fake_cuda {

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<int, Attribute> attributes;
  std::vector<int64_t> engines;  // of heuristics; of an engine or its configuration, its own
};

using Descriptors = Table<void*, Descriptor>;
Descriptors& descriptors();

size_t size_of(cudnnBackendAttributeType_t type);

// Values of an attribute, which must be there.
template <class T>
std::vector<T> values(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const auto found = descriptor.attributes.find(name);
  if (found == descriptor.attributes.end())
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} was not set", static_cast<int>(name));
  if (size_of(found->second.type) != sizeof(T))
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} has another type", static_cast<int>(name));
  std::vector<T> out(static_cast<size_t>(found->second.count));
  std::memcpy(out.data(), found->second.bytes.data(), found->second.bytes.size());
  return out;
}
template <class T>
T value(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const std::vector<T> all = values<T>(descriptor, name);
  if (all.size() != 1)
    refuse(CUDA_ERROR_INVALID_VALUE, "{} values of attribute {}", all.size(),
           static_cast<int>(name));
  return all[0];
}
// A finalized descriptor that is an attribute.
inline const Descriptor& part(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const Descriptor& found = descriptors().get(value<void*>(descriptor, name));
  if (!found.is_final)
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} is not finalized", static_cast<int>(name));
  return found;
}

struct Tensor {
  int64_t uid, alignment;
  cudnnDataType_t type;
  std::vector<int64_t> sizes, strides;
};
// Refused unless it is one whose channels are adjacent.
Tensor tensor_of(const Descriptor& descriptor);

// A convolution without addresses, whose kernel is (filters, cells..., channels / groups).
struct Operation {
  gpu::Conv conv;
  Tensor x, kernel, y;
};

// Refused unless all parts fit each other.
Operation operation_of(const Descriptor& descriptor);
// Of a convolution with addresses: all of it lies in the device's memory.
void check_memory(const Device& device, const gpu::Conv& conv);
// Behind the stream's work. With a workspace, which is of `workspace_bytes`: a kernel that fills
// it, and one that finds out whether it is still its own.
void enqueue_conv(Stream& stream, const gpu::Conv& conv, std::byte* workspace,
                  size_t workspace_bytes);

}  // namespace meshtrain::fake_cuda
