// What the parts of a device share: which one it is, its streams, and how its errors are reported.
#pragma once

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <nvrtc.h>

#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/driver.h"
#include "backend/gpu/device.h"
#include "base/error.h"

namespace meshtrain::cuda {

class Communicators;

struct Core {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  int compute = 0;   // 90 for compute capability 9.0
  gpu::DeviceOptions options;
  CUcontext context = nullptr;
  CUstream work = nullptr;      // everything but
  CUstream copies = nullptr;    // uploads that wait for nothing
  CUstream messages = nullptr;  // communication outside of graphs
  // For captures only. It lives as long as the handles of libraries, which keep the last stream
  // that they were given.
  CUstream captures = nullptr;
  CUevent copied = nullptr;  // recorded behind the last enqueued upload
  bool has_copies = false;   // whether `work` must still wait for `copied`
  std::string path;          // of the step that is being made ready or enqueued; "" for none
  gpu::Traffic traffic;      // of what was enqueued
  Communicators* communicators = nullptr;  // with devices of other processes, once it has joined

  // The calling thread's calls go to this device. Every entry of Device begins with it.
  void make_current() const;
  // Throws RuntimeFailure where there is not enough; `what` is for the message. free_memory()
  // frees.
  std::byte* allocate(size_t bytes, std::string_view what) const;
  // Null where there is not enough.
  std::byte* try_allocate(size_t bytes, std::string_view what) const;
  // A kernel whose one parameter is at `parameter`, by blocks of gpu::kThreads.
  void launch(CUfunction kernel, unsigned blocks, unsigned shared_bytes, void* parameter,
              CUstream stream) const;
  // Before anything is enqueued on `work`: it comes after the uploads enqueued so far.
  void follow_copies();
  // The host waits until all of a stream is done, or the event has come. What waits for other
  // processes ends when one of them fails, and soon where an exception is on its way already.
  void wait_for(CUstream stream) const;
  void wait_for(CUevent event) const;

  // Throw RuntimeFailure (exit 4) that says what failed, why, on which device, at which step.
  void check(CUresult status, std::string_view call) const;
  void check(nvrtcResult status, const char* call) const;
  void check(cublasStatus_t status, const char* call) const;
  void check(cudnnStatus_t status, const char* call) const;
  // "cuMemAlloc failed: out of memory"
  [[noreturn]] void fail(std::string_view what, ExitCode code = ExitCode::kMesh) const;

 private:
  template <class Query>
  void poll(const Query& query, const char* call) const;
};

// An event of the driver for as long as this lives.
class EventHandle {
 public:
  EventHandle(const Core& core, unsigned flags) {
    core.check(driver().cuEventCreate(&event_, flags), "cuEventCreate");
  }
  ~EventHandle() { driver().cuEventDestroy_v2(event_); }
  EventHandle(const EventHandle&) = delete;
  EventHandle& operator=(const EventHandle&) = delete;
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
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
