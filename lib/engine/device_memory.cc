#include "engine/device_memory.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/text.h"
#include "config/catalogue.h"
#include "engine/memory_advice.h"
#include "exec/executor.h"
#include "exec/gpu_memory.h"
#include "exec/shard_map.h"
#include "passes/memory.h"
#include "passes/row_fusion.h"

namespace meshtrain {
namespace {

constexpr size_t kShown = 5;
constexpr int64_t kScratchMatters = 8;  // where programs need more than room / this

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

ConfigError refusal(const Setup& setup, gpu::Device& device, const std::string& what,
                    int64_t needed, std::vector<Tensor> largest) {
  const gpu::DeviceInfo info = device.info();
  ConfigError error(
      "E630", setup.distribution().devices.text.loc,
      fmt::format("{} {} of GPU memory; {} of {} are free on {}", what, format_bytes(needed),
                  format_bytes(info.free_bytes), format_bytes(info.total_bytes), info.name));
  for (const std::string& line : describe(std::move(largest))) {
    error.note(line);
  }
  return error;
}

struct Need {
  int64_t bytes = 0;
  std::vector<int64_t> blocks;  // of the memory that all programs share
};

// Returns the memory of programs that exist together. `blocks`: the shared blocks so far. Scratch
// of steps is included when it may decide.
Need needed_by(const std::vector<Program>& programs, const std::vector<int64_t>& blocks,
               int64_t room) {
  std::vector<const Program*> order;  // the largest arena first: it contains the others
  for (const Program& program : programs)
    order.push_back(&program);
  std::stable_sort(order.begin(), order.end(), [](const Program* a, const Program* b) {
    return a->arena_bytes > b->arena_bytes;
  });
  const auto ask = [&](bool with_scratch) {
    StepMemory memory = imagined_step_memory();
    memory.extend(blocks);
    Need need;
    for (const Program* program : order) {
      need.bytes += gpu_own_bytes(*program);
      take_gpu_memory(*program, memory, with_scratch);
    }
    need.blocks = memory.block_bytes();
    need.bytes += std::accumulate(need.blocks.begin() + static_cast<int64_t>(blocks.size()),
                                  need.blocks.end(), int64_t{0});
    return need;
  };
  const Need without = ask(false);
  return without.bytes > room / kScratchMatters ? ask(true) : without;
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
                     buffer.dtype, buffer.shard_bytes * buffer.num_shards});
    }
  }
  return out;
}

// As the engine makes them.
std::vector<Program> programs_of(const Setup& setup, const std::vector<StepBatch>& steps) {
  std::vector<Program> out;
  for (const StepBatch& step : steps) {
    out.push_back(setup.compile(step.kind, step.batch).program);
    fuse_rows(out.back(), RowTarget::kGpu);
  }
  return out;
}

// The largest batch below `batch` with which all steps fit, in whole shards; 0 where none does.
// Planning takes some milliseconds.
int64_t largest_batch(const Setup& setup, const StepsUpTo& steps_up_to, int64_t batch,
                      const std::vector<int64_t>& blocks, int64_t room) {
  const int64_t shards = setup.mesh().size_of(setup.distribution().batch_axes);
  int64_t low = 0, high = (batch - 1) / shards;  // in shards; `low` fits
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    const std::vector<Program> programs = programs_of(setup, steps_up_to(middle * shards));
    if (needed_by(programs, blocks, room).bytes <= room) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * shards;
}

// The settings that say more than `most`.
std::string batch_settings(const Config& config, int64_t most) {
  std::vector<std::string> out;
  const auto add = [&](const char* setting, int64_t batch) {
    if (batch > most)
      out.push_back(fmt::format("`{}: {}`", setting, most));
  };
  add("batch_size", config.fit.batch_size);
  add("validation_batch_size", config.fit.validation_batch_size);
  add("evaluate.batch_size", config.evaluate.batch_size);
  return fmt::format("{}", fmt::join(out, " and "));
}

int64_t bytes_of(const Setup& setup, const Variable& v) {
  return ShardMap(setup.part(), v.layout.storage, v.shape, v.dtype).total_bytes();
}

int64_t variable_bytes(const Setup& setup) {
  return variable_store_bytes(setup.part(), setup.variables());
}

// Changes that keep the model and the optimizer, the smallest first.
std::vector<Change> changes_of(const Setup& setup) {
  const bool splits = setup.part().processes() > 1 && !setup.distribution().batch_axes.empty();
  std::vector<Change> out;
  if (splits)
    out = higher_zero_levels(setup);
  if (setup.config().dtype_policy.value != "float32")
    return out;
  std::vector<Change> half = {{"`dtype_policy: mixed_bfloat16`", setup.config()}};
  if (!out.empty())
    half.push_back({"`dtype_policy: mixed_bfloat16` with " + out.back().text, out.back().config});
  for (Change& change : half) {
    change.config.dtype_policy.value = "mixed_bfloat16";
    out.push_back(std::move(change));
  }
  return out;
}

// The first change with which variables and all steps fit into `room`, else the first with which
// they do with batches of `least` or more, and how large these may be; "" where there is none.
std::string fitting_words(const Setup& setup, const std::vector<Change>& changes,
                          const StepsUpTo& steps_up_to, int64_t batch, int64_t least,
                          int64_t room) {
  const auto left_by = [&](const Setup& changed) { return room - variable_bytes(changed); };
  const auto fits = [&](const Setup& changed, int64_t most) {
    const int64_t left = left_by(changed);
    return left > 0 && needed_by(programs_of(changed, steps_up_to(most)), {}, left).bytes <= left;
  };
  const Change* change =
      first_fitting(setup, changes, [&](const Setup& changed) { return fits(changed, batch); });
  if (change != nullptr)
    return change->text + " fits";
  int64_t most = 0;
  change = least >= batch ? nullptr : first_fitting(setup, changes, [&](const Setup& changed) {
    if (!fits(changed, least))
      return false;
    most = std::max(least, largest_batch(changed, steps_up_to, batch, {}, left_by(changed)));
    return true;
  });
  return change == nullptr
             ? ""
             : fmt::format("{} fits with {}", change->text, batch_settings(change->config, most));
}

std::string text_of(const std::vector<StepBatch>& steps) {
  std::string text =
      fmt::format("a {} step with a batch of {}", step_kind_name(steps[0].kind), steps[0].batch);
  std::vector<std::string> others;
  for (size_t s = 1; s < steps.size(); ++s)
    others.push_back(fmt::format("{} {}", step_kind_name(steps[s].kind), steps[s].batch));
  if (!others.empty())
    text += fmt::format(" with the run's other steps ({})", fmt::join(others, ", "));
  return text + " needs";
}

}  // namespace

int64_t room_on(gpu::Device& device) {
  constexpr int64_t kLeastSpare = int64_t{64} << 20, kMostSpare = int64_t{4} << 30;
  const gpu::DeviceInfo info = device.info();
  return info.free_bytes - std::clamp(info.total_bytes / 24, kLeastSpare, kMostSpare);
}

void check_variables_fit(const Setup& setup, gpu::Device& device) {
  int64_t weights = 0, others = 0;
  std::vector<Tensor> tensors;
  for (const Variable& v : setup.variables()) {
    const int64_t bytes = bytes_of(setup, v);
    (v.role == VariableRole::kWeight ? weights : others) += bytes;
    tensors.push_back({v.path, layout_of(v.layout.storage, setup.mesh()), v.shape, v.dtype, bytes});
  }
  const int64_t room = room_on(device);
  if (variable_bytes(setup) <= room) {
    return;
  }
  ConfigError error = refusal(setup, device,
                              fmt::format("weights ({}) and optimizer state ({}) need",
                                          format_bytes(weights), format_bytes(others)),
                              weights + others, std::move(tensors));
  std::vector<Change> changes = changes_of(setup);
  Change& small = changes.emplace_back(
      Change{fmt::format("an optimizer with less state, such as SGD without momentum, saves up to "
                         "{}: `optimizer: SGD`",
                         format_bytes(others)),
             setup.config()});
  small.config.compile.optimizer = default_object(Category::kOptimizer, "SGD");
  const auto train_step = [](int64_t most) {
    return std::vector<StepBatch>{{StepKind::kTrain, most}};
  };
  const int64_t shards = setup.mesh().size_of(setup.distribution().batch_axes);
  const std::string change =
      fitting_words(setup, changes, train_step, setup.config().fit.batch_size, shards, room);
  throw error.help(change.empty() ? "a smaller model, or `devices: cpu`" : change);
}

std::vector<int64_t> check_steps_fit(const Setup& setup, const std::vector<StepBatch>& steps,
                                     const std::vector<Program>& programs,
                                     const std::vector<int64_t>& blocks,
                                     const StepsUpTo& steps_up_to, gpu::Device& device) {
  const int64_t room = room_on(device);
  Need need = needed_by(programs, blocks, room);
  if (need.bytes <= room) {
    return std::move(need.blocks);
  }
  const auto largest = std::max_element(
      programs.begin(), programs.end(),
      [](const Program& a, const Program& b) { return a.arena_bytes < b.arena_bytes; });
  int64_t batch = 0;
  for (const StepBatch& step : steps)
    batch = std::max(batch, step.batch);
  ConfigError error = refusal(setup, device, text_of(steps), need.bytes, tensors_of(*largest));
  const int64_t smaller = largest_batch(setup, steps_up_to, batch, blocks, room);
  const std::string change = fitting_words(setup, changes_of(setup), steps_up_to, batch, batch,
                                           room + variable_bytes(setup));
  if (smaller > 0)
    error.help(fmt::format("a batch of {} fits: write {}", smaller,
                           batch_settings(setup.config(), smaller)));
  if (!change.empty())
    error.help(change);
  if (smaller == 0 && change.empty())
    error.help("no batch fits beside the variables: a smaller model, or `devices: cpu`");
  throw error;
}

}  // namespace meshtrain
