// One GPU as exec uses it. Implemented by the library in backend/cuda, which is loaded when a run
// asks for a GPU, and on the host by tests/support/gpu_emulator.
//
// All work of a device is in one order: uploads, downloads and plans follow each other. A call that
// fails throws RuntimeFailure, which names the call, the device and the step, if any: exit 4, or 8
// when another process failed. Only one thread may use a device at a time.
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
  // The PCI address, "0000:1b:00.0": identifies two processes of one host on the same device.
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
  // True allows choosing the fastest algorithm by measurement. The choice, and so rounding, may
  // differ from process to process.
  bool measure = true;
};

// Memory with a separate slot for every step of a plan: step 0 has [begin, begin + bytes), and step
// s the same range s * stride bytes further.
struct Window {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  int64_t stride = 0;  // a multiple of 256
};

// When a call of a plan ran, in seconds since the plan's first call began.
struct CallTime {
  std::string path;  // of the steps that it computes
  std::string kind;  // "matmul", "conv", "all_reduce", ...; "" for a generated kernel
  double begin = 0, end = 0;
};

// Commands that are compiled and ready to run repeatedly.
class Plan {
 public:
  virtual ~Plan() = default;
  // Enqueues the whole plan and returns.
  virtual void run() = 0;
  // Runs the calls one after the other, in order, measures each with events, and waits for the
  // last. Empty where a device cannot measure.
  virtual std::vector<CallTime> run_timed() {
    run();
    return {};
  }
};

// Page-locked host memory: the device copies from and to it asynchronously.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  virtual std::byte* data() = 0;
};

// A position in the order of a device's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record() = 0;  // after everything enqueued so far
  virtual void wait() = 0;    // blocks the host until the device reaches the last record()
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
  // Enqueue and return. The host's memory must be pinned and unchanged until a later event
  // completes. enqueue_upload has a stream of its own and does not wait for earlier plans; later
  // plans wait for it.
  virtual void enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) = 0;

  // Begins to compile the code that make_plan() needs for these commands, on other threads, and
  // returns. make_plan() waits for its own code and throws what the compiler reported. The memory
  // must outlive the device or the plan.
  virtual void begin_compile(const std::vector<Command>& /*commands*/) {}

  // Returns a plan that runs the commands `steps` times, for the steps first, first + 1, ... of the
  // windows. Addresses within a window are moved to the slot of the step. Plans of the same
  // commands share compiled code. The memory must outlive the plan.
  virtual std::unique_ptr<Plan> make_plan(const std::vector<Command>& commands,
                                          const std::vector<Window>& windows, int first,
                                          int steps) = 0;
  virtual void synchronize() = 0;

  // Collective: connects this device, number `rank` of `size`, with those of the other processes,
  // so that commands may communicate. All processes then run plans in the same order. All call it
  // once, before allocating memory, with the id that one of them created (Runtime::make_id).
  virtual void join(const std::string& id, int rank, int size) = 0;
  // Aborts communication: waiting and later calls throw. Thread-safe.
  virtual void abort() = 0;
  // Traffic of all plans that were run.
  virtual Traffic traffic() const = 0;
};

// The interface of the loaded library.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // Counts devices without opening one. When there are none, `reason` says why.
  virtual int device_count(std::string& reason) = 0;
  virtual DeviceInfo info(int index) = 0;
  virtual std::unique_ptr<Device> open(int index, const DeviceOptions& options) = 0;
  // Opens and describes all libraries that it may use.
  virtual std::vector<LibraryInfo> libraries() = 0;
  // Creates an id for Device::join: any bytes.
  virtual std::string make_id() = 0;
};

// The name and the type of the only symbol that the library exports. Returns null unless `abi` is
// kAbi, that is, when the library was built from other sources.
constexpr const char* kEntryPoint = "meshtrain_gpu_runtime";
constexpr int kAbi = 7;
using EntryPoint = Runtime* (*)(int abi);

}  // namespace meshtrain::gpu
