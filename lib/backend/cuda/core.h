// What the parts of a device share: which one it is, its streams, and how its errors are told.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <nvrtc.h>

#include <string>
#include <string_view>
#include <utility>

#include "backend/gpu/device.h"

namespace meshtrain::cuda {

struct Core {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  int compute = 0;   // 90 for compute capability 9.0
  gpu::DeviceOptions options;
  cudaStream_t work = nullptr;    // everything but
  cudaStream_t copies = nullptr;  // uploads that wait for nothing
  cudaEvent_t copied = nullptr;   // behind the last of these
  bool has_copies = false;        // that `work` has not been told to wait for
  std::string path;               // of the step that is being made ready or enqueued; "" for none

  // Before anything is enqueued on `work`: it comes after the uploads enqueued so far.
  void follow_copies();

  // Throw RuntimeFailure (exit 4) that says what failed, why, on which device, at which step.
  void check(cudaError_t status, const char* call) const;
  void check(nvrtcResult status, const char* call) const;
  void check(cublasStatus_t status, const char* call) const;
  void check(cudnnStatus_t status, const char* call) const;
  [[noreturn]] void fail(std::string_view what) const;  // "cudaMalloc: out of memory"
};

// Names the step of errors for as long as it lives.
class PathScope {
 public:
  PathScope(Core& core, const std::string& path)
      : core_(core), outer_(std::exchange(core.path, path)) {}
  ~PathScope() { core_.path = std::move(outer_); }
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

 private:
  Core& core_;
  std::string outer_;
};

}  // namespace meshtrain::cuda
