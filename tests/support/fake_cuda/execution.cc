// Streams, events, modules and launches of the fake driver.
#include <algorithm>
#include <cstring>
#include <regex>

#include "base/hash.h"
#include "support/fake_cuda/cubin.h"
#include "support/fake_cuda/exports.h"
#include "support/gpu_emulator/block.h"

namespace meshtrain::fake_cuda {
namespace {

constexpr int kMostShared = 227 * 1024;  // of a block, from compute capability 9.0 on
constexpr int kMostThreads = 1024;

// Names of the __global__ functions of a text, sorted as the emulator has them.
std::vector<std::string> kernels_of(const std::string& text) {
  static const std::regex kKernel(
      "__global__ void __launch_bounds__\\(mt::kThreads(?:, 1)?\\)\\s+(\\w+)\\(");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), kKernel), end; it != end; ++it)
    names.insert((*it)[1]);
  return {names.begin(), names.end()};
}

// One for equal texts in this process.
std::shared_ptr<gpu::Module> module_of(const std::string& text) {
  static std::map<uint64_t, std::shared_ptr<gpu::Module>> modules;
  std::shared_ptr<gpu::Module>& module = modules[hash_text(text)];
  if (module == nullptr)
    module = std::make_shared<gpu::Module>(text, kernels_of(text));
  return module;
}

// Words of a parameter that are addresses of devices.
void check_addresses(const Device& device, const std::vector<uint64_t>& words) {
  for (const uint64_t word : words) {
    const auto* const address = reinterpret_cast<const std::byte*>(word);
    const Device* const owner = device_of(address);
    if (owner == nullptr)
      continue;
    if (owner != &device)
      refuse(CUDA_ERROR_ILLEGAL_ADDRESS, "an argument is memory of device {}, not of {}",
             owner->index, device.index);
    if (device.memory.was_freed(address))
      refuse(CUDA_ERROR_ILLEGAL_ADDRESS, "an argument is memory that was freed");
  }
}

struct LaunchOf {
  CUfunction handle;
  unsigned blocks, shared_bytes;
  std::vector<uint64_t> words;
};

void run_launch(const Device& device, const LaunchOf& launch) {
  const Function& function = state().functions.get(launch.handle);
  check_addresses(device, launch.words);
  const std::string problem =
      gpu::run_grid({function.abi, function.kernel, launch.words.data(), launch.blocks,
                     launch.shared_bytes, true, seed() == 0 ? 0 : draw()});
  if (!problem.empty())
    refuse(CUDA_ERROR_LAUNCH_FAILED, "{}", problem);
}

void check_launch(const Stream& stream, const Function& function, unsigned blocks, unsigned threads,
                  unsigned shared_bytes) {
  if (state().modules.get(function.module).device != stream.device)
    refuse(CUDA_ERROR_INVALID_HANDLE, "a kernel of another device");
  if (stream.capture != nullptr && !function.is_loaded)
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a kernel that is not loaded, in a capture");
  if (blocks == 0 || blocks > 0x7FFFFFFF || threads != gpu::kThreads)
    refuse(CUDA_ERROR_INVALID_VALUE, "{} blocks of {} threads", blocks, threads);
  if (static_cast<int>(shared_bytes) > function.most_shared_bytes)
    refuse(CUDA_ERROR_INVALID_VALUE, "{} bytes of shared memory, of {}", shared_bytes,
           function.most_shared_bytes);
}

void check_device(const std::shared_ptr<Op>& op) {
  if (op != nullptr && op->stream->device->error != CUDA_SUCCESS)
    throw Failure{op->stream->device->error};
}

CUresult query(const char* name, const std::function<std::shared_ptr<Op>()>& find) {
  bool is_ready = true;
  const CUresult status = call(name, [&] {
    const std::shared_ptr<Op> op = find();
    if (op != nullptr && !op->is_done)
      step_towards(*op);
    is_ready = op == nullptr || op->is_done;
    check_device(op);
  });
  return status == CUDA_SUCCESS && !is_ready ? CUDA_ERROR_NOT_READY : status;
}

Event& event_of(CUevent handle) {
  Event& event = state().events.get(handle);
  if (event.capture != nullptr)
    refuse(CUDA_ERROR_CAPTURED_EVENT, "an event that was recorded in a capture");
  return event;
}

void finish_op(const std::shared_ptr<Op>& op) {
  finish(op);
  check_device(op);
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;
using meshtrain::gpu::Module;

MESHTRAIN_FAKE cuStreamCreate(CUstream* out, unsigned flags) {
  return call("cuStreamCreate", [&] {
    if (flags != CU_STREAM_NON_BLOCKING)
      refuse(CUDA_ERROR_INVALID_VALUE, "a stream that the default stream waits for");
    auto stream = std::make_unique<Stream>();
    stream->device = &current_device();
    *out = state().streams.add(std::move(stream));
  });
}
MESHTRAIN_FAKE cuStreamDestroy_v2(CUstream handle) {
  return call("cuStreamDestroy", [&] {
    const Stream& stream = state().streams.get(handle);
    if (stream.capture != nullptr)
      add_problem("cuStreamDestroy: the stream is capturing");
    if (!stream.queue.empty())
      add_problem("cuStreamDestroy: nobody waited for " + stream.last->what);
    state().old_streams.push_back(state().streams.take(handle));
  });
}
MESHTRAIN_FAKE cuStreamQuery(CUstream handle) {
  return query("cuStreamQuery", [&] {
    Stream& stream = state().streams.get(handle);
    refuse_in_capture(stream);
    return stream.last;
  });
}
MESHTRAIN_FAKE cuStreamSynchronize(CUstream handle) {
  return call("cuStreamSynchronize", [&] {
    Stream& stream = state().streams.get(handle);
    refuse_in_capture(stream);
    finish_op(stream.last);
  });
}
MESHTRAIN_FAKE cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  return call("cuStreamWaitEvent", [&] {
    Stream& stream = stream_of(handle);
    Event& event = state().events.get(event_handle);
    if (event.capture != nullptr) {
      if (!stream.queue.empty() && stream.capture == nullptr && !stream.last->is_done)
        refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a stream with work joins a capture");
      stream.capture = event.capture;
      stream.capture->streams.insert(&stream);
      stream.frontier.insert(stream.frontier.end(), event.frontier.begin(), event.frontier.end());
      return;
    }
    if (stream.capture != nullptr)
      refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a capture waits for an event outside of it");
    if (event.recorded == nullptr || event.recorded->is_done)
      return;
    enqueue(stream, "cuStreamWaitEvent", at_once([] {}), event.recorded);
  });
}
MESHTRAIN_FAKE cuEventCreate(CUevent* out, unsigned flags) {
  return call("cuEventCreate", [&] {
    auto event = std::make_unique<Event>();
    event->device = &current_device();
    event->has_timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *out = state().events.add(std::move(event));
  });
}
MESHTRAIN_FAKE cuEventDestroy_v2(CUevent handle) {
  return call("cuEventDestroy", [&] { state().events.take(handle); });
}
MESHTRAIN_FAKE cuEventRecord(CUevent handle, CUstream stream_handle) {
  return call("cuEventRecord", [&] {
    Stream& stream = stream_of(stream_handle);
    Event& event = state().events.get(handle);
    if (event.device != stream.device)
      refuse(CUDA_ERROR_INVALID_HANDLE, "an event of another device");
    event.capture = stream.capture;
    event.frontier = stream.frontier;
    event.recorded = nullptr;
    if (stream.capture != nullptr)
      return;
    enqueue(stream, "cuEventRecord", at_once([] {}));
    event.recorded = stream.last;
  });
}
MESHTRAIN_FAKE cuEventQuery(CUevent handle) {
  return query("cuEventQuery", [&] { return event_of(handle).recorded; });
}
MESHTRAIN_FAKE cuEventSynchronize(CUevent handle) {
  return call("cuEventSynchronize", [&] { finish_op(event_of(handle).recorded); });
}
MESHTRAIN_FAKE cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return call("cuEventElapsedTime", [&] {
    const Event &first = event_of(begin), &last = event_of(end);
    if (!first.has_timing || !last.has_timing || first.recorded == nullptr ||
        last.recorded == nullptr)
      refuse(CUDA_ERROR_INVALID_HANDLE, "events without times");
    if (!first.recorded->is_done || !last.recorded->is_done)
      refuse(CUDA_ERROR_NOT_READY, "nobody waited for the events");
    *milliseconds = static_cast<float>(last.recorded->time - first.recorded->time);
  });
}

MESHTRAIN_FAKE cuModuleLoadData(CUmodule* out, const void* image) {
  return call("cuModuleLoadData", [&] {
    const std::string text = text_of_cubin(static_cast<const char*>(image));
    if (text.empty())
      throw Failure{CUDA_ERROR_INVALID_IMAGE};
    auto module = std::make_unique<LoadedModule>();
    module->device = &current_device();
    refuse_while_capturing(*module->device, "a module is loaded");
    module->module = module_of(text);
    *out = state().modules.add(std::move(module));
  });
}
MESHTRAIN_FAKE cuModuleUnload(CUmodule handle) {
  return call("cuModuleUnload", [&] {
    Device& device = *state().modules.get(handle).device;
    for (auto& [name, stream] : state().streams) {
      if (stream->device == &device && !stream->queue.empty())
        add_problem("cuModuleUnload: the device has work");
    }
    state().modules.take(handle);
    std::vector<CUfunction> own;
    for (auto& [function, entry] : state().functions) {
      if (entry->module == handle)
        own.push_back(function);
    }
    for (const CUfunction function : own)
      state().functions.take(function);
  });
}
MESHTRAIN_FAKE cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return call("cuModuleGetFunction", [&] {
    const Module& module = *state().modules.get(handle).module;
    for (auto& [known, function] : state().functions) {
      if (function->module == handle && std::string_view(function->kernel->name) == name) {
        *out = known;
        return;
      }
    }
    auto function = std::make_unique<Function>();
    function->module = handle;
    function->kernel = &module.kernel(name);
    function->abi = &module.abi();
    *out = state().functions.add(std::move(function));
  });
}
MESHTRAIN_FAKE cuFuncLoad(CUfunction handle) {
  return call("cuFuncLoad", [&] { state().functions.get(handle).is_loaded = true; });
}
MESHTRAIN_FAKE cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
  return call("cuFuncGetAttribute", [&] {
    state().functions.get(handle);
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kMostThreads : 0;
    if (which != CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK &&
        which != CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
      refuse(CUDA_ERROR_INVALID_VALUE, "the fake knows no attribute {}", static_cast<int>(which));
  });
}
MESHTRAIN_FAKE cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
  return call("cuFuncSetAttribute", [&] {
    Function& function = state().functions.get(handle);
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > kMostShared)
      refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} of {}", static_cast<int>(which), value);
    function.most_shared_bytes = value;
  });
}
MESHTRAIN_FAKE cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return call("cuFuncGetParamInfo", [&] {
    if (index != 0)
      throw Failure{CUDA_ERROR_INVALID_VALUE};
    *offset = 0;
    *bytes = state().functions.get(handle).kernel->params_bytes;
  });
}
MESHTRAIN_FAKE cuLaunchKernel(CUfunction handle, unsigned grid, unsigned grid_y, unsigned grid_z,
                              unsigned block, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, CUstream stream_handle, void** params,
                              void** extra) {
  return call("cuLaunchKernel", [&] {
    Stream& stream = stream_of(stream_handle);
    const Function& function = state().functions.get(handle);
    if (grid_y * grid_z * block_y * block_z != 1 || params == nullptr || extra != nullptr)
      refuse(CUDA_ERROR_INVALID_VALUE, "not a grid of one dimension with one parameter");
    check_launch(stream, function, grid, block, shared_bytes);
    LaunchOf launch{handle, grid, shared_bytes,
                    std::vector<uint64_t>(function.kernel->params_bytes / sizeof(uint64_t))};
    std::memcpy(launch.words.data(), params[0], function.kernel->params_bytes);
    check_addresses(*stream.device, launch.words);
    const std::string what = function.kernel->name;
    enqueue(stream, what, at_once([&device = *stream.device, launch = std::move(launch)] {
              run_launch(device, launch);
            }));
  });
}
