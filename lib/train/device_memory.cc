#include "train/device_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "exec/gpu_memory.h"
#include "exec/pieces.h"
#include "passes/memory.h"
#include "passes/rows.h"

namespace meshtrain {
namespace {

constexpr size_t kShown = 5;
constexpr int64_t kSpare = int64_t{64} << 20;  // libraries' workspaces, compiled kernels
constexpr int64_t kScratchMatters = 2;         // where a program needs more than free / this
constexpr int64_t kMostSlots = int64_t{64} << 20;

std::string layout_of(const Sharding& sharding, const DeviceMesh& mesh) {
  return sharding.used_axes() == 0 ? "replicated" : sharding_string(sharding, mesh);
}

struct Tensor {
  std::string name, layout;
  Shape shape;
  DType dtype;
  int64_t bytes = 0;
};

// The largest first.
std::vector<std::string> describe(std::vector<Tensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const Tensor& a, const Tensor& b) { return a.bytes > b.bytes; });
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(kShown, tensors.size()); ++i) {
    const Tensor& t = tensors[i];
    lines.push_back(fmt::format("{}: {} {} {}, {}", format_bytes(t.bytes), t.name,
                                dtype_name(t.dtype), shape_string(t.shape), t.layout));
  }
  return lines;
}

Diagnostic& refuse(Diagnostics& diagnostics, const Setup& setup, gpu::Device& device,
                   const std::string& what, int64_t needed, std::vector<Tensor> largest) {
  const gpu::DeviceInfo info = device.info();
  Diagnostic& d = diagnostics.error(
      "E630", setup.distribution().devices.text.loc,
      fmt::format("{} {} of GPU memory; {} of {} are free on {}", what, format_bytes(needed),
                  format_bytes(info.free_bytes), format_bytes(info.total_bytes), info.name));
  for (const std::string& line : describe(std::move(largest))) {
    d.note(line);
  }
  return d;
}

bool fits(int64_t needed, gpu::Device& device) {
  return needed + kSpare <= device.info().free_bytes;
}

// The arena, the slots that the host writes batches to (gpu_executor.cc says how many), and, where
// it may decide, what steps and messages to other processes take besides.
int64_t needed_by(const Program& program, gpu::Device& device) {
  int64_t inputs = 0;
  for (const Program::NamedBuffer& input : program.inputs) {
    const Buffer& buffer = program.buffers[input.buffer];
    inputs += buffer.piece_bytes * buffer.num_pieces;
  }
  const int64_t needed =
      program.arena_bytes + std::max(2 * inputs, std::min(64 * inputs, kMostSlots));
  const bool is_close = needed > device.info().free_bytes / kScratchMatters;
  return needed + (is_close ? gpu_scratch_bytes(program) : 0);
}

std::vector<Tensor> tensors_of(const Program& program) {
  std::vector<std::string> names(program.buffers.size());
  for (const std::vector<ProgramStep>* steps : {&program.prologue, &program.steps}) {
    for (const ProgramStep& step : *steps) {
      for (const int output : step.outputs) {
        names[output] = fmt::format("{} ({})", step.path, step.op->name);
      }
    }
  }
  for (const Program::NamedBuffer& input : program.inputs) {
    names[input.buffer] = fmt::format("input `{}`", input.name);
  }
  const std::vector<bool> has_memory = have_memory(program);  // or only a kernel over rows reads it
  std::vector<Tensor> out;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (has_memory[b]) {
      out.push_back({names[b], layout_of(buffer.sharding, program.part.mesh()), buffer.global_shape,
                     buffer.dtype, buffer.piece_bytes * buffer.num_pieces});
    }
  }
  return out;
}

// The largest batch below `batch` whose program fits, in whole shards; 0 where none does. Planning
// takes some milliseconds.
int64_t largest_batch(const Setup& setup, StepKind kind, int64_t batch, gpu::Device& device) {
  const int64_t shards = setup.mesh().size_of(setup.distribution().batch_axes);
  int64_t low = 0, high = (batch - 1) / shards;  // in shards; `low` fits
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    Program program = setup.compile(kind, middle * shards).program;
    group_rows(program);  // as the engine does before it asks whether it fits
    if (fits(needed_by(program, device), device)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * shards;
}

}  // namespace

void check_variables_fit(const Setup& setup, gpu::Device& device) {
  int64_t weights = 0, others = 0;
  std::vector<Tensor> tensors;
  for (const Variable& v : setup.variables()) {
    const int64_t bytes = PieceMap(setup.part(), v.layout.storage, v.shape, v.dtype).total_bytes();
    (v.role == VariableRole::kWeight ? weights : others) += bytes;
    tensors.push_back({v.path, layout_of(v.layout.storage, setup.mesh()), v.shape, v.dtype, bytes});
  }
  if (fits(weights + others, device)) {
    return;
  }
  Diagnostics diagnostics;
  Diagnostic& d = refuse(diagnostics, setup, device,
                         fmt::format("weights ({}) and optimizer state ({}) need",
                                     format_bytes(weights), format_bytes(others)),
                         weights + others, std::move(tensors));
  d.help(fits(weights, device)
             ? fmt::format("the weights alone would fit: an optimizer with less state, such as SGD "
                           "without momentum, saves up to {}",
                           format_bytes(others))
             : std::string("a smaller model, or `devices: cpu`"));
  throw ConfigError(std::move(diagnostics));
}

void check_program_fits(const Setup& setup, StepKind kind, int64_t batch, const Program& program,
                        gpu::Device& device) {
  const int64_t needed = needed_by(program, device);
  if (fits(needed, device)) {
    return;
  }
  Diagnostics diagnostics;
  Diagnostic& d =
      refuse(diagnostics, setup, device,
             fmt::format("a {} step with a batch of {} needs", step_kind_name(kind), batch), needed,
             tensors_of(program));
  const int64_t smaller = largest_batch(setup, kind, batch, device);
  d.help(smaller > 0 ? fmt::format("a batch of {} fits: write `batch_size: {}`", smaller, smaller)
                     : "no batch fits beside the variables: a smaller model, or `devices: cpu`");
  if (setup.config().dtype_policy.value == "float32") {
    d.help("`dtype_policy: mixed_bfloat16` halves most of what a step keeps");
  }
  throw ConfigError(std::move(diagnostics));
}

}  // namespace meshtrain
