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
#include "base/error.h"

namespace meshtrain::cuda {

class Communicators;

struct Core {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  int compute = 0;   // 90 for compute capability 9.0
  gpu::DeviceOptions options;
  cudaStream_t work = nullptr;      // everything but
  cudaStream_t copies = nullptr;    // uploads that wait for nothing
  cudaStream_t messages = nullptr;  // communication outside of graphs
  cudaEvent_t copied = nullptr;     // behind the last of these
  bool has_copies = false;          // that `work` has not been told to wait for
  std::string path;                 // of the step that is being made ready or enqueued; "" for none
  gpu::Traffic traffic;             // of what was enqueued
  Communicators* communicators = nullptr;  // with devices of other processes, once it has joined

  // Before anything is enqueued on `work`: it comes after the uploads enqueued so far.
  void follow_copies();
  // The host waits until all of a stream is done, or the event has come. What waits for other
  // processes ends when one of them fails, and soon where an exception is on its way already.
  void wait_for(cudaStream_t stream) const;
  void wait_for(cudaEvent_t event) const;

  // Throw RuntimeFailure (exit 4) that says what failed, why, on which device, at which step.
  void check(cudaError_t status, const char* call) const;
  void check(nvrtcResult status, const char* call) const;
  void check(cublasStatus_t status, const char* call) const;
  void check(cudnnStatus_t status, const char* call) const;
  // "cudaMalloc: out of memory"
  [[noreturn]] void fail(std::string_view what, ExitCode code = ExitCode::kMesh) const;

 private:
  template <class Query>
  void poll(const Query& query, const char* call) const;
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
