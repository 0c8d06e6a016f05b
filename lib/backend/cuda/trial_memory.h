#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace meshtrain::cuda {

// Device memory for results that nobody reads; null where there is none to spare.
class TrialMemory {
 public:
  explicit TrialMemory(size_t bytes) {
    constexpr size_t kMost = size_t{2} << 30;
    if (bytes > kMost || cudaMalloc(&data_, bytes) != cudaSuccess) {
      cudaGetLastError();  // not to be found by the next launch
      data_ = nullptr;
    }
  }
  ~TrialMemory() { cudaFree(data_); }  // waits for what uses it
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace meshtrain::cuda
