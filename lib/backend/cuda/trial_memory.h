// Device memory for launches that are only timed.
#pragma once

#include <cstddef>

#include "backend/cuda/driver.h"

namespace meshtrain::cuda {

// Device memory for results that nobody reads; null where there is none to spare.
class TrialMemory {
 public:
  explicit TrialMemory(size_t bytes) {
    constexpr size_t kMost = size_t{2} << 30;
    std::string ignored;
    const Driver* const driver = find_driver(ignored);
    if (bytes > kMost || driver == nullptr || driver->cuMemAlloc_v2(&data_, bytes) != CUDA_SUCCESS)
      data_ = 0;
  }
  ~TrialMemory() { free_memory(data()); }  // waits for what uses it
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(data_); }

 private:
  CUdeviceptr data_ = 0;
};

}  // namespace meshtrain::cuda
