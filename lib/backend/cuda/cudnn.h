// Objects of cuDNN's backend API: made, given attributes, finalized, destroyed with their owner.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/core.h"

namespace meshtrain::cuda {

// Descriptions of GPUs that are not here, by the numbers that newer headers give them: those of
// cuDNN 9.1 have none.
constexpr auto kDevicePropDescriptor = static_cast<cudnnBackendDescriptorType_t>(38);
constexpr auto kDevicePropJson = static_cast<cudnnBackendAttributeName_t>(2702);
constexpr auto kEngineHeurDeviceProp = static_cast<cudnnBackendAttributeName_t>(204);
constexpr auto kExecutionPlanDeviceProp = static_cast<cudnnBackendAttributeName_t>(407);

class CudnnObject {
 public:
  CudnnObject() = default;
  CudnnObject(const Core& core, cudnnBackendDescriptorType_t type);
  ~CudnnObject();
  CudnnObject(CudnnObject&& other) noexcept;
  CudnnObject& operator=(CudnnObject&& other) noexcept;
  cudnnBackendDescriptor_t get() const { return object_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, int64_t value);
  void set(cudnnBackendAttributeName_t name, std::span<const int64_t> values);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, const CudnnObject& value);
  void finalize();
  // What cuDNN says: a plan that it does not support is no failure yet.
  cudnnStatus_t try_finalize();

  int64_t get_int64(cudnnBackendAttributeName_t name) const;
  // Those of an engine.
  std::vector<cudnnBackendNumericalNote_t> numerical_notes() const;
  std::vector<cudnnBackendBehaviorNote_t> behavior_notes() const;
  // An object that is an attribute's value.
  void read(cudnnBackendAttributeName_t name, CudnnObject& value) const;
  // Up to `most` objects of that type.
  std::vector<CudnnObject> read_all(cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptorType_t type, int64_t most) const;

 private:
  const Core* core_ = nullptr;
  cudnnBackendDescriptor_t object_ = nullptr;
};

}  // namespace meshtrain::cuda
