// Programs on a GPU: the steps become commands once, a run enqueues a plan of them.
//
// Inputs from the host are in slots: small slots for scalars and for row numbers of batches that
// are gathered on the GPU, large slots for batches. All slots of a run are copied together before
// it. There are twice as many slots as steps of a run: one half is filled while the other computes.
// Small outputs are in slots, too, and are copied back after the run. The host waits only when it
// reads a result, and results of the run before the last do not wait for the last.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "backend/gpu/lowering.h"
#include "base/host.h"
#include "comm/heartbeat_monitor.h"
#include "exec/all_steps.h"
#include "exec/gpu_slots.h"
#include "exec/partial_sum_fusion.h"

namespace meshtrain {
namespace {

constexpr double kMostCompiling = 900;  // seconds

// Device memory that its owner frees.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(std::shared_ptr<gpu::Device> device, int64_t bytes)
      : device_(std::move(device)), data_(device_->allocate(std::max<int64_t>(bytes, 1))) {}
  ~DeviceBlock() {
    if (data_ != nullptr)
      device_->free(data_);
  }
  DeviceBlock(DeviceBlock&& other) noexcept
      : device_(std::move(other.device_)), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<gpu::Device> device_;
  std::byte* data_ = nullptr;
};

// Slots of one size, a multiple of 256 bytes, on the device and on the host.
struct Slots {
  Slots(const std::shared_ptr<gpu::Device>& device, int64_t bytes, int count)
      : stride(bytes),
        memory(device, stride * count),
        host(device->allocate_pinned(std::max<int64_t>(stride * count, 1))) {}
  std::byte* device_slot(int64_t slot) const { return memory.data() + slot * stride; }
  std::byte* host_slot(int64_t slot) const { return host->data() + slot * stride; }
  gpu::Window window() const { return {memory.data(), stride, stride}; }

  int64_t stride;
  DeviceBlock memory;
  std::unique_ptr<gpu::PinnedMemory> host;
};

// Tables by input; null where the host gives the samples themselves.
using Tables = std::vector<const DeviceTable*>;

// The commands for one choice of tables, and its plans by first slot and number of steps.
struct Prepared {
  std::vector<gpu::Command> commands;
  std::map<std::pair<int, int>, std::unique_ptr<gpu::Plan>> plans;
};

class GpuExecutor final : public Executor::Impl {
 public:
  GpuExecutor(Program p, VariableStore& variables, bool is_prepared_later);
  ~GpuExecutor() override;

  int max_steps() const override { return max_steps_; }
  bool gathers() const override { return true; }
  void set_input(int index, const void* data, int step) override;
  std::byte* input_data(int index, int step) override;
  void gather_input(int index, const DeviceTable& table, std::span<const int64_t> rows,
                    int step) override;
  void prepare() override;
  void begin_compile(const Tables& tables) override;
  void run(int steps) override { run_with(steps, nullptr); }
  void run_profiled(int steps, StepProfile& to) override { run_with(steps, &to); }
  HostTensor output(int index, int step, int runs_ago) const override;

 private:
  void place_buffers(VariableStore& variables);
  void make_slots();
  std::optional<HeartbeatMonitor::Announcement> announce_compiling() const;
  std::vector<gpu::Command> commands_of(KernelSpecs specs) const;
  // Waits until the slots of this half are free.
  void wait_for_slots();
  std::byte* place(int index, int step, const DeviceTable* table);
  Prepared& prepared(const Tables& tables);
  void add_gathers(const Tables& tables, BufferMemory& where, KernelSpecs& specs) const;
  void add_outputs(const BufferMemory& where, KernelSpecs& specs) const;
  gpu::Plan& plan(int steps);
  void run_with(int steps, StepProfile* to);
  void enqueue(const Slots& slots, int steps, bool up) const;

  std::shared_ptr<gpu::Device> device_;
  StepMemory::Share share_;  // the arena, and before steps are prepared
  DeviceBlock constants_;
  BufferMemory memory_;
  int max_steps_ = 1;
  std::vector<GpuSlots::Place> places_;
  std::unique_ptr<Slots> small_, large_;
  std::vector<int64_t> output_offsets_;  // in a slot; empty when outputs are in the arena
  std::unique_ptr<Slots> results_;

  Tables tables_;  // of the run that is being fed
  int half_ = 0;   // of the slots, of that run
  bool is_fed_ = false;
  std::vector<gpu::Command> prologue_;  // until it was run
  std::map<Tables, Prepared> prepared_;
  std::unique_ptr<gpu::Event> done_[2];  // with the run that had this half
};

GpuExecutor::GpuExecutor(Program p, VariableStore& variables, bool is_prepared_later)
    : Impl(std::move(p), variables), device_(variables.device()), share_(variables.step_memory()) {
  place_buffers(variables);
  tables_.resize(program.inputs.size());
  for (std::unique_ptr<gpu::Event>& event : done_)
    event = device_->make_event();
  make_slots();
  prologue_ = commands_of(lower_steps(program, program.prologue, memory_));
  if (is_prepared_later) {
    device_->begin_compile(prologue_);
  } else {
    prepare();
  }
}

GpuExecutor::~GpuExecutor() {
  try {
    device_->synchronize();  // nothing may use the memory that is freed now
  } catch (...) {
    // The device failed before: the caller of that work has its error.
  }
}

// gpu_memory.cc says in advance what this takes.
void GpuExecutor::place_buffers(VariableStore& variables) {
  const BufferPlaces small = small_buffer_places(program), constants = constant_places(program);
  memory_.bases = buffer_addresses(program, share_.take(program.arena_bytes), variables);
  small.move(share_.take(small.bytes), memory_.bases);
  if (constants.bytes > 0) {
    constants_ = DeviceBlock(device_, constants.bytes);
    constants.move(constants_.data(), memory_.bases);
  }
  memory_.fused_sums = find_fused_sums(program);
  memory_.has_gathers = true;
}

void GpuExecutor::make_slots() {
  GpuSlots slots = plan_slots(program);
  const int count = GpuSlots::kHalves * slots.max_steps;
  small_ = std::make_unique<Slots>(device_, slots.small_bytes, count);
  if (slots.large_bytes > 0)
    large_ = std::make_unique<Slots>(device_, slots.large_bytes, count);
  if (!slots.outputs.empty())
    results_ = std::make_unique<Slots>(device_, slots.result_bytes, count);
  max_steps_ = slots.max_steps;
  places_ = std::move(slots.inputs);
  output_offsets_ = std::move(slots.outputs);
}

// Each list of commands may have all scratch: they never run at the same time.
std::vector<gpu::Command> GpuExecutor::commands_of(KernelSpecs specs) const {
  gpu::GpuLowering lowering([share = share_](int64_t bytes) mutable { return share.take(bytes); });
  lowering.lower(std::move(specs));
  return lowering.take();
}

std::optional<HeartbeatMonitor::Announcement> GpuExecutor::announce_compiling() const {
  if (processes.monitor == nullptr)
    return std::nullopt;
  return processes.monitor->announce("compiling steps for the GPU", kMostCompiling);
}

void GpuExecutor::prepare() {
  if (prologue_.empty())
    return;
  const auto announced = announce_compiling();
  const std::unique_ptr<gpu::Plan> once = device_->make_plan(prologue_, {}, 0, 1);
  once->run();
  device_->synchronize();
  prologue_.clear();
}

// Until the run that had this half before is done; all processes come here before each run. One
// that does not come keeps the others here, which the heartbeat monitor sees.
void GpuExecutor::wait_for_slots() {
  HeartbeatMonitor* const monitor = processes.monitor.get();
  if (monitor != nullptr)
    monitor->enter(0, "the steps on the GPUs");
  done_[half_]->wait();
  if (monitor != nullptr)
    monitor->leave();
}

std::byte* GpuExecutor::place(int index, int step, const DeviceTable* table) {
  MESHTRAIN_CHECK(step >= 0 && step < max_steps_, "step {} of {}", step, max_steps_);
  if (!is_fed_) {
    wait_for_slots();
    is_fed_ = true;
  }
  const size_t i = static_cast<size_t>(index);
  MESHTRAIN_CHECK(step == 0 || tables_[i] == table, "the steps of a run take `{}` from one place",
                  program.inputs[i].name);
  tables_[i] = table;
  const GpuSlots::Place& place = places_[i];
  const int64_t slot = half_ * max_steps_ + step;
  return table == nullptr && place.large != kNone ? large_->host_slot(slot) + place.large
                                                  : small_->host_slot(slot) + place.small;
}

void GpuExecutor::set_input(int index, const void* data, int step) {
  inputs[static_cast<size_t>(index)].scatter(static_cast<const std::byte*>(data),
                                             place(index, step, nullptr));
}

std::byte* GpuExecutor::input_data(int index, int step) {
  return place(index, step, nullptr);
}

void GpuExecutor::gather_input(int index, const DeviceTable& table, std::span<const int64_t> rows,
                               int step) {
  MESHTRAIN_CHECK(static_cast<int64_t>(rows.size()) == places_[static_cast<size_t>(index)].rows,
                  "{} rows for `{}`", rows.size(), program.inputs[static_cast<size_t>(index)].name);
  std::byte* to = place(index, step, &table);
  for (const int64_t row : rows) {
    const int32_t id = static_cast<int32_t>(row);
    std::memcpy(to, &id, sizeof(id));
    to += sizeof(id);
  }
}

// Inputs that the host gives are read where they arrive; rows of tables are gathered to where the
// input has its place in the arena.
void GpuExecutor::add_gathers(const Tables& tables, BufferMemory& where, KernelSpecs& specs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int b = program.inputs[i].buffer;
    const GpuSlots::Place& place = places_[i];
    std::byte* const small = small_->device_slot(0) + place.small;
    if (tables[i] == nullptr) {
      where.bases[b] = place.large != kNone ? large_->device_slot(0) + place.large : small;
      continue;
    }
    const int64_t row_bytes = tables[i]->row_bytes();
    LookupShape shape;
    shape.dtype = row_bytes % 4 == 0 ? DType::kInt32 : DType::kUInt8;  // only moved
    shape.num_ids = place.rows;
    shape.rows = shape.global_rows = tables[i]->rows();
    shape.row_elements = row_bytes / static_cast<int64_t>(dtype_size(shape.dtype));
    specs.emplace_back(StepSpec{program.inputs[i].name});
    specs.emplace_back(GatherRowsSpec{shape, tables[i]->data(), small, where.bases[b]});
  }
}

// Small outputs are copied to a slot. Large ones are read from the arena: those that are inputs of
// the host are copied there from where they arrived.
void GpuExecutor::add_outputs(const BufferMemory& where, KernelSpecs& specs) const {
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const Program::NamedBuffer& output = program.outputs[o];
    std::byte* const from = where.bases[output.buffer];
    std::byte* const to = output_offsets_.empty() ? memory_.bases[output.buffer]
                                                  : results_->device_slot(0) + output_offsets_[o];
    if (from == to)
      continue;
    const DType dtype = program.buffers[output.buffer].dtype;
    const Shape elements{outputs[o].total_bytes() / static_cast<int64_t>(dtype_size(dtype))};
    specs.emplace_back(StepSpec{output.name});
    specs.emplace_back(
        CopySpec{contiguous_view(from, dtype, elements), contiguous_view(to, dtype, elements)});
  }
}

void GpuExecutor::begin_compile(const Tables& tables) {
  const std::vector<gpu::Command>& commands = prepared(tables).commands;
  const auto announced = announce_compiling();
  device_->begin_compile(commands);
}

Prepared& GpuExecutor::prepared(const Tables& tables) {
  const auto [place, is_new] = prepared_.try_emplace(tables);
  if (is_new) {
    const auto announced = announce_compiling();
    BufferMemory where = memory_;
    KernelSpecs specs;
    add_gathers(tables, where, specs);
    for (KernelSpec& spec : lower_gpu_steps(program, where))
      specs.push_back(std::move(spec));
    add_outputs(where, specs);
    place->second.commands = commands_of(std::move(specs));
  }
  return place->second;
}

gpu::Plan& GpuExecutor::plan(int steps) {
  Prepared& from = prepared(tables_);
  const int first = half_ * max_steps_;
  std::unique_ptr<gpu::Plan>& made = from.plans[{first, steps}];
  if (made == nullptr) {
    const auto announced = announce_compiling();
    std::vector<gpu::Window> windows;
    for (const Slots* slots : {small_.get(), large_.get(), results_.get()}) {
      if (slots != nullptr)
        windows.push_back(slots->window());
    }
    made = device_->make_plan(from.commands, windows, first, steps);
  }
  return *made;
}

void GpuExecutor::enqueue(const Slots& slots, int steps, bool up) const {
  const int64_t first = half_ * max_steps_;
  if (up) {
    device_->enqueue_upload(slots.device_slot(first), slots.host_slot(first), slots.stride * steps);
  } else {
    device_->enqueue_download(slots.host_slot(first), slots.device_slot(first),
                              slots.stride * steps);
  }
}

namespace {

// Without times, of a device that cannot measure, the steps have no calls.
void add_times(const std::vector<gpu::CallTime>& times, double begin, double end_of_all, int steps,
               StepProfile& to) {
  if (to.steps.empty())
    to.origin = begin;
  if (times.empty())
    to.steps.push_back({begin - to.origin, end_of_all - to.origin, 1, to.events.size()});
  if (to.threads.empty())
    to.threads.push_back("GPU");
  const size_t calls = times.size() / static_cast<size_t>(steps);
  for (size_t i = 0; i < times.size(); ++i) {
    const gpu::CallTime& time = times[i];
    const double start = begin - to.origin + time.begin, end = begin - to.origin + time.end;
    if (i % calls == 0)
      to.steps.push_back({start, end, 1, to.events.size()});
    to.steps.back().end = end;
    to.events.push_back({to.kernel(time.path, time.kind), 0, start, end});
  }
}

}  // namespace

void GpuExecutor::run_with(int steps, StepProfile* to) {
  MESHTRAIN_CHECK(steps >= 1 && steps <= max_steps_);
  gpu::Plan& planned = plan(steps);
  if (!inputs.empty())
    enqueue(*small_, steps, true);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (tables_[i] == nullptr && places_[i].large != kNone) {
      enqueue(*large_, steps, true);
      break;
    }
  }
  if (to == nullptr) {
    planned.run();
  } else {
    device_->synchronize();
    const double begin = steady_seconds();
    const std::vector<gpu::CallTime> times = planned.run_timed();
    device_->synchronize();
    add_times(times, begin, steady_seconds(), steps, *to);
  }
  if (results_ != nullptr)
    enqueue(*results_, steps, false);
  done_[half_]->record();
  half_ = 1 - half_;
  is_fed_ = false;
}

HostTensor GpuExecutor::output(int index, int step, int runs_ago) const {
  const size_t o = static_cast<size_t>(index);
  const int half = runs_ago == 0 ? 1 - half_ : half_;
  if (results_ != nullptr) {
    done_[half]->wait();
    return whole_output(index, results_->host_slot(half * max_steps_ + step) + output_offsets_[o]);
  }
  MESHTRAIN_CHECK(runs_ago == 0, "what stayed in the arena is of the last run");
  const int64_t bytes = outputs[o].total_bytes();
  HostTensor shards(DType::kUInt8, {std::max<int64_t>(bytes, 1)});
  if (bytes > 0)
    device_->download(shards.bytes(), memory_.bases[program.outputs[o].buffer], bytes);
  return whole_output(index, shards.bytes());
}

}  // namespace

std::unique_ptr<Executor::Impl> make_gpu_executor(Program program, VariableStore& variables,
                                                  bool is_prepared_later) {
  return std::make_unique<GpuExecutor>(std::move(program), variables, is_prepared_later);
}

}  // namespace meshtrain
