// The fake driver's objects. Handles are numbers that are never used again, so that every use of an
// object that is gone is found.
//
// Enqueued work runs inside of later calls: with $MESHTRAIN_EMULATOR_SEED=0 when a call waits for
// it, with other seeds at random times and in random orders that streams, events and graphs allow.
#pragma once

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_cuda/control.h"
#include "support/gpu_emulator/memory.h"
#include "support/gpu_emulator/module.h"

namespace meshtrain::fake_cuda {

// The program must not do this: recorded as a problem, and the call returns `code`.
struct Refusal {
  CUresult code;
  std::string text;
};
template <class... Args>
[[noreturn]] void refuse(CUresult code, fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{code, fmt::format(format, std::forward<Args>(args)...)};
}
// A call that fails without a mistake of the program.
struct Failure {
  CUresult code;
};

enum class Outcome { kDone, kGoesOn, kWaits };  // kWaits: for another device
// One part of the work of a call.
using Work = std::function<Outcome()>;

struct Stream;
struct Device;

// Enqueued work. Events share it.
struct Op {
  std::string what;
  Work work;
  Stream* stream = nullptr;
  std::shared_ptr<Op> after;  // of another stream
  bool is_done = false;
  double time = 0;  // of the stream when it ended, in milliseconds
};

struct Node {
  std::string what;
  std::function<Work()> start;  // for each run of the graph
  std::set<Node*> after;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  uint64_t capture_id = 0;  // of all captures into it
};

struct GraphExec {
  struct Step {
    std::string what;
    std::function<Work()> start;
    std::vector<size_t> after;
  };
  std::vector<Step> steps;
  Device* device = nullptr;
  std::shared_ptr<Op> last_run;
  bool is_uploaded = false;
};

struct Capture {
  Graph* graph = nullptr;
  bool is_own_graph = false;  // made for it
  Stream* origin = nullptr;
  std::set<Stream*> streams;
  std::string problem;  // what made it invalid
  uint64_t id = 0;
};

struct Stream {
  Device* device = nullptr;
  std::thread::id owner = std::this_thread::get_id();
  std::deque<std::shared_ptr<Op>> queue;
  std::shared_ptr<Op> last;  // enqueued
  double time = 0;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> frontier;        // what the next captured node comes after
  std::vector<CUgraphNode> reported;  // of cuStreamGetCaptureInfo: valid until the next call
};

struct Event {
  Device* device = nullptr;
  bool has_timing = true;
  std::shared_ptr<Op> recorded;
  std::shared_ptr<Capture> capture;  // where it was recorded last, if in a capture
  std::vector<Node*> frontier;
};

struct LoadedModule {
  Device* device = nullptr;
  std::shared_ptr<gpu::Module> module;
};

struct Function {
  CUmodule module = nullptr;
  const EmulatorKernel* kernel = nullptr;
  const EmulatorModule* abi = nullptr;
  bool is_loaded = false;
  int most_shared_bytes = 48 * 1024;
};

struct Device {
  explicit Device(int index, int64_t bytes) : index(index), memory(bytes) {}
  int index;
  int retained = 0;
  gpu::DeviceMemory memory;
  CUresult error = CUDA_SUCCESS;  // sticky
  CUcontext context() const {
    return reinterpret_cast<CUcontext>(uint64_t{0xC0} + static_cast<uint64_t>(index));
  }
};

// Objects of one kind by their handles.
template <class Handle, class T>
class Table {
 public:
  explicit Table(const char* name) : name_(name) {}
  Handle add(std::unique_ptr<T> object) {
    static uint64_t last = 0xFA4E0000;
    const Handle handle = reinterpret_cast<Handle>(last += 16);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  T& get(Handle handle) {
    const auto found = objects_.find(handle);
    if (found == objects_.end())
      refuse(CUDA_ERROR_INVALID_HANDLE, "{} {} does not exist, or not any more", name_,
             static_cast<const void*>(handle));
    return *found->second;
  }
  std::unique_ptr<T> take(Handle handle) {
    get(handle);
    return std::move(objects_.extract(handle).mapped());
  }
  size_t size() const { return objects_.size(); }
  const char* name() const { return name_; }
  auto begin() { return objects_.begin(); }
  auto end() { return objects_.end(); }

 private:
  const char* name_;
  std::map<Handle, std::unique_ptr<T>> objects_;
};

struct State {
  std::recursive_mutex mutex;
  bool is_initialized = false;
  std::vector<std::unique_ptr<Device>> devices;
  Table<CUstream, Stream> streams{"stream"};
  std::vector<std::unique_ptr<Stream>> old_streams;  // which work may still name
  Table<CUevent, Event> events{"event"};
  Table<CUmodule, LoadedModule> modules{"module"};
  Table<CUfunction, Function> functions{"function"};
  Table<CUgraph, Graph> graphs{"graph"};
  Table<CUgraphExec, GraphExec> execs{"executable graph"};
  std::map<std::byte*, std::vector<std::byte>> pinned;
  std::map<std::string, int> handles;  // of the libraries
  uint64_t draws = 0, captures = 0;
  bool has_aborted = false;  // a communicator of this process
};
MESHTRAIN_FAKE_API State& state();
// A number of the environment.
MESHTRAIN_FAKE_API int number_of(const char* variable, int otherwise);
// $MESHTRAIN_EMULATOR_GPUS, which tests may change: so many of the state's devices can be used.
MESHTRAIN_FAKE_API int device_count();

// Of the calling thread; refused where there is none.
MESHTRAIN_FAKE_API Device& current_device();
MESHTRAIN_FAKE_API void set_current(Device* device);
// The one whose memory this is; null for memory of the host.
MESHTRAIN_FAKE_API Device* device_of(const void* address);
// Refused unless the whole range is memory of the device that is allocated.
MESHTRAIN_FAKE_API void check_range(const Device& device, const void* begin, size_t bytes,
                                    const std::string& what);

// $MESHTRAIN_EMULATOR_SEED, and a number that depends on it and is new with every call.
// Waits for as long as tests hold this compilation, with no lock; returns whether they refuse it.
MESHTRAIN_FAKE_API bool begin_compilation(const std::string& text);
MESHTRAIN_FAKE_API uint64_t seed();
MESHTRAIN_FAKE_API uint64_t draw();

// Behind the stream's work, and `after` of another one; or a node of the graph that it captures.
MESHTRAIN_FAKE_API void enqueue(Stream& stream, const std::string& what,
                                std::function<Work()> start, std::shared_ptr<Op> after = nullptr);
// Work that is done at once.
MESHTRAIN_FAKE_API std::function<Work()> at_once(std::function<void()> work);
// Runs one unit of the work that `op` needs; false where it waits for another device.
MESHTRAIN_FAKE_API bool step_towards(Op& op);
// Now and then, units of any streams.
MESHTRAIN_FAKE_API void drift();
// Until it is done, a problem where that takes too long. The lock is released meanwhile.
MESHTRAIN_FAKE_API void finish(const std::shared_ptr<Op>& op);
// All work of the device, but for what other threads play other processes with and waits for them.
MESHTRAIN_FAKE_API void finish(Device& device);
MESHTRAIN_FAKE_API Stream& stream_of(
    CUstream handle);  // refused for another device than the current one
MESHTRAIN_FAKE_API void refuse_in_capture(const Stream& stream);
// A relaxed capture allows it, but then it happens once and not in each run of the graph.
MESHTRAIN_FAKE_API void refuse_while_capturing(const Device& device, const char* what);

MESHTRAIN_FAKE_API void add_problem(const std::string& text);
// A communicator may be aborted at the same time by another thread: that is known at the end.
MESHTRAIN_FAKE_API void add_problem_unless_aborted(const std::string& text);
// Throws Failure where the call is to fail. Counts it.
MESHTRAIN_FAKE_API void begin_call(const char* name, bool runs_first);
MESHTRAIN_FAKE_API void end_call();
// No memory where the test says so.
MESHTRAIN_FAKE_API bool is_memory_short();
// That of the current device, or of a fault.
MESHTRAIN_FAKE_API CUresult sticky_error();

// Whether a name has one of these words.
inline bool has_word(std::string_view name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [name](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

// A function of the driver: under the lock, mistakes as problems.
template <class F>
CUresult call(const char* name, const F& function) {
  const std::lock_guard lock(state().mutex);
  try {
    // What fails has happened all the same: it frees, or waits for what is then lost.
    const bool happens = has_word(name, {"Free", "Destroy", "Unload", "Synchronize", "EndCapture"});
    begin_call(name, happens);
    const CUresult error = has_word(name, {"SetCurrent"}) ? CUDA_SUCCESS : sticky_error();
    if (error != CUDA_SUCCESS && !happens)
      throw Failure{error};
    function();
    end_call();
    if (error != CUDA_SUCCESS)
      throw Failure{error};
    return CUDA_SUCCESS;
  } catch (const Failure& failure) {
    return failure.code;
  } catch (const Refusal& refusal) {
    add_problem(fmt::format("{}: {}", name, refusal.text));
    return refusal.code;
  } catch (const std::exception& error) {
    add_problem(fmt::format("{}: {}", name, error.what()));
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace meshtrain::fake_cuda
