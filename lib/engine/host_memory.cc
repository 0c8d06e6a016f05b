#include "engine/host_memory.h"

#include <algorithm>

#include "base/memory.h"
#include "base/text.h"
#include "exec/shard_map.h"
#include "passes/row_fusion.h"

namespace meshtrain {
namespace {

constexpr size_t kShownVariables = 5;

struct HostVariable {
  const Variable* variable = nullptr;
  int64_t bytes = 0;  // of all shards of this process
};

// The place of the layer that has the variable: "d1" of "d1/kernel" or "adam/d1_kernel_momentum".
SourceLoc layer_place(const Setup& setup, const Variable& variable) {
  const std::vector<Variable>& all = setup.variables();
  const Variable& weight =
      variable.follows >= 0 ? all[static_cast<size_t>(variable.follows)] : variable;
  const std::string layer = weight.path.substr(0, weight.path.rfind('/'));
  for (const LayerConfig& entry : setup.config().model.layers) {
    if (entry.name.value == layer) {
      return entry.object.loc;
    }
  }
  return {};
}

std::string variable_line(const Setup& setup, const HostVariable& entry) {
  const Variable& v = *entry.variable;
  const SourceLoc place = layer_place(setup, v);
  return fmt::format("{}: {} {} {}{}", format_bytes(entry.bytes), v.path, dtype_name(v.dtype),
                     shape_string(v.shape), place ? ", layer at " + place.to_string() : "");
}

bool fits_in_host(const Setup& setup, int64_t batch, StepKind kind, int64_t existing,
                  int64_t available) {
  Program program = setup.compile(kind, batch).program;
  fuse_rows(program, RowTarget::kCpu);
  return program.arena_bytes - existing <= available;
}

}  // namespace

void check_host_variables(const Setup& setup, int64_t available) {
  std::vector<HostVariable> variables;
  int64_t weights = 0, others = 0, parameters = 0, largest_weight = 0;
  for (const Variable& v : setup.variables()) {
    const int64_t bytes = ShardMap(setup.part(), v.layout.storage, v.shape, v.dtype).total_bytes();
    variables.push_back({&v, bytes});
    if (v.role == VariableRole::kWeight) {
      weights += bytes;
      parameters += num_elements(v.own_shape());
      largest_weight = std::max(largest_weight,
                                num_elements(v.shape) * static_cast<int64_t>(dtype_size(v.dtype)));
    } else {
      others += bytes;
    }
  }
  const int64_t needed = weights + others + largest_weight;
  if (available == 0 || needed <= available) {
    return;
  }
  std::stable_sort(variables.begin(), variables.end(),
                   [](const HostVariable& a, const HostVariable& b) { return a.bytes > b.bytes; });
  ConfigError error("E631", layer_place(setup, *variables.front().variable),
                    fmt::format("weights ({}), optimizer state ({}) and a copy of the largest "
                                "weight need {} of memory; {} are free on this host",
                                format_bytes(weights), format_bytes(others), format_bytes(needed),
                                format_bytes(available)));
  for (size_t i = 0; i < std::min(kShownVariables, variables.size()); ++i) {
    error.note(variable_line(setup, variables[i]));
  }
  const double share = static_cast<double>(available) / static_cast<double>(needed);
  error.help(
      fmt::format("about {} parameters fit with this optimizer, the model has {}",
                  format_thousands(static_cast<int64_t>(static_cast<double>(parameters) * share)),
                  format_thousands(parameters)));
  if (others > 0 && weights + largest_weight <= available) {
    error.help("an optimizer without state fits: `optimizer: SGD` without momentum");
  }
  throw error;
}

void warn_of_host_memory(const Setup& setup, Diagnostics& warnings) {
  const DeviceRequest& devices = setup.distribution().devices;
  if (devices.is_gpu || !devices.hardware.empty()) {
    return;
  }
  try {
    check_host_variables(setup, available_memory());
  } catch (const ConfigError& error) {
    for (const Diagnostic& d : error.diagnostics().list()) {
      Diagnostic& warning = warnings.warning("W631", d.loc, d.message);
      warning.notes = d.notes;
    }
  }
}

void check_host_steps(const Setup& setup, const std::vector<StepBatch>& steps,
                      const std::vector<Program>& programs, int64_t existing, int64_t available) {
  size_t most = 0;
  for (size_t i = 0; i < programs.size(); ++i) {
    most = programs[i].arena_bytes > programs[most].arena_bytes ? i : most;
  }
  if (available == 0 || programs.empty() || programs[most].arena_bytes - existing <= available) {
    return;
  }
  const StepBatch& step = steps[most];
  ConfigError error("E631", setup.config().fit.batch_size.loc,
                    fmt::format("a {} step with a batch of {} needs {} of memory for activations "
                                "and gradients; {} are free on this host",
                                step_kind_name(step.kind), step.batch,
                                format_bytes(programs[most].arena_bytes), format_bytes(available)));
  std::vector<std::string> names(programs[most].buffers.size());
  for (const ProgramStep& made : programs[most].steps) {
    for (const int output : made.outputs) {
      names[static_cast<size_t>(output)] = made.path;
    }
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) {
      order.push_back(i);
    }
  }
  const auto bytes = [&](size_t i) {
    const Buffer& buffer = programs[most].buffers[i];
    return buffer.shard_bytes * buffer.num_shards;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes(a) > bytes(b); });
  for (size_t i = 0; i < std::min(kShownVariables, order.size()); ++i) {
    const Buffer& buffer = programs[most].buffers[order[i]];
    error.note(fmt::format("{}: {} {} {}", format_bytes(bytes(order[i])), names[order[i]],
                           dtype_name(buffer.dtype), shape_string(buffer.global_shape)));
  }
  const int64_t shards = setup.mesh().size_of(setup.distribution().batch_axes);
  int64_t low = 0, high = (step.batch - 1) / shards;  // in shards; `low` fits
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    const bool fits = fits_in_host(setup, middle * shards, step.kind, existing, available);
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  throw error.help(low > 0 ? fmt::format("a batch of {} fits", low * shards)
                           : "no batch fits beside the variables: a smaller model");
}

}  // namespace meshtrain
