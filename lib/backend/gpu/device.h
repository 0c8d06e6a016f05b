// One GPU as exec uses it. Implemented by the library in backend/cuda, which is loaded when a run
// asks for a GPU, and on the host by tests/support/gpu_emulator.
//
// All work of a device is in one order; upload, download and plans follow each other. Calls that
// fail throw RuntimeFailure that names the call, the device, and the step where there is one: exit
// 4, or 8 where it is another process that failed. A device may be used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int compute = 0;   // compute capability, 90 for 9.0
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // when asked
  std::string driver;      // "13.0"
  // Which one of its host it is, for finding two processes on the same: "0000:1b:00.0". Whoever
  // compares them knows the hosts.
  std::string place;
};

// A library that computes or communicates.
struct LibraryInfo {
  std::string name;     // "cuBLASLt"
  std::string version;  // "13.1"; "" where it cannot be opened
  std::string file;
  std::string problem;  // why it cannot be opened
};

struct DeviceOptions {
  bool use_graph = true;  // false: the same commands one by one (--no-cuda-graph)
  bool use_tf32 = true;   // float32 products in TF32 (matmul_precision: default)
  std::string cache_dir;  // for compiled kernels and plans; empty: none
  // Whether the fastest algorithm may be found by measuring, which gives another one, and other
  // rounding, from process to process.
  bool measure = true;
};

// Memory of which every step of a plan has its own part: that of step 0 is [begin, begin + bytes),
// that of step s lies s * stride bytes further. Arguments of launches are recognised by their
// value: whole numbers must be below 2^40.
struct Window {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  int64_t stride = 0;  // a multiple of 256
};

// Commands made ready to run many times.
class Plan {
 public:
  virtual ~Plan() = default;
  // Enqueues all of it and returns.
  virtual void run() = 0;
};

// Memory of the host that the device copies from and to without waiting for the processor.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  virtual std::byte* data() = 0;
};

// A place in the order of a device's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record() = 0;  // after everything enqueued so far
  virtual void wait() = 0;    // the host waits until the device came past the last record()
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() = 0;

  // Zeroed, aligned to 256 bytes.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void free(std::byte* memory) = 0;
  virtual std::unique_ptr<PinnedMemory> allocate_pinned(int64_t bytes) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  // The host's memory may be reused when they return.
  virtual void upload(std::byte* to, const void* from, int64_t bytes) = 0;
  virtual void download(void* to, const std::byte* from, int64_t bytes) = 0;
  // Only enqueue; the host's memory must be pinned and stay as it is until an event says so.
  // enqueue_upload does not wait for plans that were enqueued before (it has a stream of its own);
  // plans enqueued after it wait for it.
  virtual void enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) = 0;

  // The commands `steps` times, one after the other, for the steps first, first + 1, ... of the
  // windows: addresses that lie in a window are moved to the step's own part. Compiles what was not
  // compiled before; plans of the same commands share it. The memory must outlive the plan.
  virtual std::unique_ptr<Plan> make_plan(const std::vector<Command>& commands,
                                          const std::vector<Window>& windows, int first,
                                          int steps) = 0;
  virtual void synchronize() = 0;

  // Makes this device number `rank` of `size`, each in a process of its own, so that its commands
  // may communicate: plans run on all of them, in the same order. Called by all with the id that
  // one of them made (Runtime::make_id), once, before memory is allocated; returns when all have
  // come.
  virtual void join(const std::string& id, int rank, int size) = 0;
  // Ends whatever waits for other devices: from then on it throws. By any thread, at any time.
  virtual void abort() = 0;
  // Of all plans that were run.
  virtual Traffic traffic() const = 0;
};

// What the loaded library offers.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // Without opening anything: how many devices there are; `reason` says why there are none.
  virtual int device_count(std::string& reason) = 0;
  virtual DeviceInfo info(int index) = 0;
  virtual std::unique_ptr<Device> open(int index, const DeviceOptions& options) = 0;
  // All that it may use, opened.
  virtual std::vector<LibraryInfo> libraries() = 0;
  // For Device::join: any bytes.
  virtual std::string make_id() = 0;
};

// The name and the type of the one symbol that such a library exports. `abi` must be kAbi: null
// where it was built from other sources.
constexpr const char* kEntryPoint = "meshtrain_gpu_runtime";
constexpr int kAbi = 5;
using EntryPoint = Runtime* (*)(int abi);

}  // namespace meshtrain::gpu
