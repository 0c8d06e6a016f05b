#include "support/fake_cuda/state.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace meshtrain::fake_cuda {

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::atoi(text);
}

namespace {

struct Faults {
  int64_t calls = 0, failing_call = -1;
  int64_t allocations = 0, failing_allocation = -1;
  Fault kind = Fault::kOnce;
  bool is_due = false;     // when the call that runs has ended
  bool is_broken = false;  // sticky
  std::vector<const char*> names;
  std::string failing_name;
  int64_t skipped = 0;  // calls of that name before the one that fails
};
Faults faults;
std::vector<std::string> problems, problems_unless_aborted;
constexpr int kMostDevices = 8;
constexpr CUresult kBroken = CUDA_ERROR_ILLEGAL_ADDRESS;

thread_local Device* current = nullptr;

int64_t device_bytes() {
  const char* const text = std::getenv("MESHTRAIN_EMULATOR_BYTES");
  return text == nullptr || *text == '\0' ? int64_t{16} << 30 : std::atoll(text);
}

// $MESHTRAIN_FAKE_CUDA_KEEPS=1: for suites that leave memory of the device to its end.
std::string left_at_exit() {
  if (number_of("MESHTRAIN_FAKE_CUDA_KEEPS", 0) != 0) {
    for (const auto& device : state().devices) {
      while (!device->memory.blocks().empty())
        device->memory.free(device->memory.blocks().begin()->first);
    }
  }
  return live_objects();
}

// What a test did not ask for ends the process with an exit code that no test takes for success.
void report() {
  const std::string live = left_at_exit();
  std::vector<std::string> found = take_problems();
  if (!live.empty())
    found.push_back("the process ends with " + live);
  if (found.empty())
    return;
  for (const std::string& problem : found)
    std::fprintf(stderr, "fake CUDA: %s\n", problem.c_str());
  std::fflush(nullptr);
  ::_exit(kProblemsExit);
}

}  // namespace

// Never destroyed: destructors of static objects of the program may still call the driver.
State& state() {
  static State* const made = [] {
    auto* const result = new State;
    for (int index = 0; index < kMostDevices; ++index)
      result->devices.push_back(std::make_unique<Device>(index, device_bytes()));
    std::atexit(report);
    return result;
  }();
  return *made;
}

int device_count() {
  return std::clamp(number_of("MESHTRAIN_EMULATOR_GPUS", 1), 0, kMostDevices);
}

Device& current_device() {
  if (current == nullptr)
    refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread");
  return *current;
}
void set_current(Device* device) {
  current = device;
}

Device* device_of(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const auto& device : state().devices) {
    if (device->memory.contains(byte, byte + 1) || device->memory.was_freed(byte))
      return device.get();
  }
  return nullptr;
}

void check_range(const Device& device, const void* begin, size_t bytes, const std::string& what) {
  const auto* const first = static_cast<const std::byte*>(begin);
  if (bytes == 0 || device.memory.contains(first, first + bytes))
    return;
  const Device* const other = device_of(begin);
  if (other != nullptr && other != &device)
    refuse(CUDA_ERROR_INVALID_VALUE, "{} is memory of device {}, not of {}", what, other->index,
           device.index);
  refuse(CUDA_ERROR_INVALID_VALUE, "{}: {} bytes at {} {}", what, bytes, begin,
         device.memory.was_freed(first) ? "were freed" : "lie in no allocation");
}

uint64_t seed() {
  return static_cast<uint64_t>(number_of("MESHTRAIN_EMULATOR_SEED", 0));
}

Stream& stream_of(CUstream handle) {
  if (handle == nullptr)
    refuse(CUDA_ERROR_INVALID_HANDLE, "the default stream, which waits for all others");
  Stream& stream = state().streams.get(handle);
  if (stream.device != &current_device()) {
    refuse(CUDA_ERROR_INVALID_CONTEXT, "a stream of device {} while device {} is current",
           stream.device->index, current_device().index);
  }
  return stream;
}

void refuse_in_capture(const Stream& stream) {
  if (stream.capture == nullptr)
    return;
  stream.capture->problem = "a call that cannot be captured";
  refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is capturing");
}

void refuse_while_capturing(const Device& device, const char* what) {
  for (const auto& [handle, stream] : state().streams) {
    if (stream->device == &device && stream->owner == std::this_thread::get_id() &&
        stream->capture != nullptr)
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "{} during a capture", what);
  }
}

void add_problem(const std::string& text) {
  const std::lock_guard lock(state().mutex);
  problems.push_back(text);
}

void add_problem_unless_aborted(const std::string& text) {
  const std::lock_guard lock(state().mutex);
  problems_unless_aborted.push_back(text);
}

void begin_call(const char* name, bool runs_first) {
  faults.names.push_back(name);
  faults.is_due = false;
  const bool is_named = faults.failing_name == name && faults.skipped-- == 0;
  if (faults.calls++ != faults.failing_call && !is_named)
    return;
  faults.failing_name = is_named ? "" : faults.failing_name;
  faults.is_broken = faults.kind == Fault::kSticky;
  if (!runs_first)
    throw Failure{kBroken};
  faults.is_due = true;
}

void end_call() {
  if (std::exchange(faults.is_due, false))
    throw Failure{kBroken};
}

CUresult sticky_error() {
  if (faults.is_broken && !faults.is_due)
    return kBroken;
  return current == nullptr ? CUDA_SUCCESS : current->error;
}

bool is_memory_short() {
  return faults.allocations++ == faults.failing_allocation;
}

std::vector<std::string> take_problems() {
  const std::lock_guard lock(state().mutex);
  std::vector<std::string> found = std::exchange(problems, {});
  const std::vector<std::string> others = std::exchange(problems_unless_aborted, {});
  if (!state().has_aborted)
    found.insert(found.end(), others.begin(), others.end());
  return found;
}

std::string live_objects() {
  const std::lock_guard lock(state().mutex);
  std::vector<std::string> found;
  const auto add = [&](size_t count, std::string_view name) {
    if (count > 0)
      found.push_back(fmt::format("{} x {}", count, name));
  };
  State& all = state();
  add(all.streams.size(), all.streams.name());
  add(all.events.size(), all.events.name());
  add(all.modules.size(), all.modules.name());
  add(all.graphs.size(), all.graphs.name());
  add(all.execs.size(), all.execs.name());
  add(all.pinned.size(), "pinned memory");
  for (const auto& device : all.devices)
    add(device->memory.blocks().size(), fmt::format("memory of device {}", device->index));
  for (const auto& [name, count] : all.handles)
    add(static_cast<size_t>(count), name);
  std::string text;
  for (const std::string& one : found)
    text += (text.empty() ? "" : ", ") + one;
  return text;
}

int64_t num_calls() {
  const std::lock_guard lock(state().mutex);
  return faults.calls;
}
std::string call_name(int64_t number) {
  const std::lock_guard lock(state().mutex);
  return faults.names.at(static_cast<size_t>(number));
}
void fail_call(int64_t number, Fault kind) {
  const std::lock_guard lock(state().mutex);
  faults.failing_call = number;
  faults.kind = kind;
}
void fail_named_call(const std::string& name, int64_t skipped) {
  const std::lock_guard lock(state().mutex);
  faults.failing_name = name;
  faults.skipped = skipped;
  faults.kind = Fault::kOnce;
}
void fail_allocation(int64_t number) {
  const std::lock_guard lock(state().mutex);
  faults.allocations = 0;
  faults.failing_allocation = number;
}
int64_t num_allocations() {
  const std::lock_guard lock(state().mutex);
  return faults.allocations;
}
void clear_faults() {
  const std::lock_guard lock(state().mutex);
  faults.failing_call = faults.failing_allocation = -1;
  faults.allocations = 0;
  faults.is_broken = false;
  faults.failing_name.clear();
  for (const auto& device : state().devices)
    device->error = CUDA_SUCCESS;
}

}  // namespace meshtrain::fake_cuda
