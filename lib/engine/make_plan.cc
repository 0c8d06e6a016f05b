#include "engine/make_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "backend/gpu/load.h"
#include "base/nccl_settings.h"
#include "config/source.h"
#include "engine/host_memory.h"
#include "engine/memory_advice.h"
#include "engine/remat_choices.h"
#include "exec/gpu_memory.h"
#include "passes/propagate.h"
#include "passes/row_fusion.h"
#include "plan/hardware_file.h"

namespace meshtrain {
namespace {

void fill_batch(PlanSummary& report, const Setup& setup, int64_t samples) {
  const Distribution& distribution = setup.distribution();
  report.batch = setup.config().fit.batch_size.value;
  report.batch_shards = setup.mesh().size_of(distribution.batch_axes);
  report.batch_axes = distribution.batch_axis_names;
  report.samples = samples;
  report.full_steps = samples / report.batch;
  const bool drops = setup.config().data.remainder == Remainder::kDrop;
  report.last_batch = drops ? 0 : samples % report.batch;
  report.last_batch_sharded = report.last_batch % report.batch_shards == 0;
}

std::string place_of(const LayoutRule* rule) {
  return rule == nullptr ? "" : written_place(rule->loc);
}

// The first of these places that there is: what a file leaves out has none.
std::string first_place(std::initializer_list<SourceLoc> places) {
  const auto* found = std::find_if(places.begin(), places.end(),
                                   [](const SourceLoc& place) { return static_cast<bool>(place); });
  return found == places.end() ? "" : written_place(*found);
}

PlannedCause rule_cause(const LayoutRule& rule) {
  return {"rule", rule.key, place_of(&rule)};
}

// Returns the cause in the config of each origin (passes/propagate.h).
std::map<std::string, PlannedCause> causes_by_origin(const Setup& setup) {
  const DistributionConfig& config = setup.config().distribution;
  const ResolvedLayouts& layouts = setup.layouts();
  std::map<std::string, PlannedCause> out;
  out[kBatchOrigin] = {"batch", setup.distribution().batch_axis_names,
                       first_place({config.batch_dim_name.loc, config.mesh.axis_names.loc,
                                    config.mesh.shape.loc, config.mesh.devices.loc})};
  const PlannedCause zero = {"zero", fmt::format("{}", setup.distribution().zero),
                             written_place(config.zero.loc)};
  for (size_t w = 0; w < layouts.weights.size(); ++w) {
    const Variable& variable = setup.variables()[w];
    const LayoutRule* rule = layouts.rules[w];
    const bool rule_names_batch = layouts.weights[w] != variable.layout.compute;
    if (rule != nullptr) {
      out[variable.path] = rule_cause(*rule);
    }
    out[stored_origin(variable.path)] = rule_names_batch ? rule_cause(*rule) : zero;
  }
  for (const auto& [key, rule] : layouts.pin_rules) {
    out[key] = rule_cause(*rule);
  }
  for (const PlacedPin& placed : setup.expert_pins()) {
    if (const LayoutRule* rule = layouts.rules[placed.weight]) {
      out[placed.key] = rule_cause(*rule);
    }
  }
  return out;
}

std::vector<PlannedCollective> collectives_of(const Setup& setup, const Graph& graph) {
  std::vector<PlannedCollective> out = planned_collectives(graph, setup.mesh());
  const std::map<std::string, PlannedCause> causes = causes_by_origin(setup);
  for (PlannedCollective& collective : out) {
    std::vector<PlannedCause> found;  // a rule may have given several tensors their layout
    for (const PlannedCause& origin : collective.causes) {
      const auto known = causes.find(origin.name);
      const PlannedCause& cause = known == causes.end() ? origin : known->second;
      if (std::find(found.begin(), found.end(), cause) == found.end()) {
        found.push_back(cause);
      }
    }
    collective.causes = std::move(found);
  }
  return out;
}

EstimateInput estimate_input(const Setup& setup, const PlanSummary& report,
                             const Compiled& compiled, double launch_share) {
  const Program& program = compiled.program;
  return {.program = program,
          .mesh = report.mesh,
          .collectives = report.collectives,
          .batch = report.batch,
          .memory = report.memory.total(),
          .flops = planned_product_flops(compiled.graph),
          .model_flops = planned_model_flops(compiled.graph),
          .allow_tf32 = setup.config().matmul_precision != MatmulPrecision::kHighest,
          .fixed_reductions = setup.config().distribution.reductions != ReductionOrder::kFast,
          .launch_share = launch_share};
}

// As the engine makes the program.
PlannedMemory memory_of(const Setup& setup, Program program) {
  const DeviceRequest& devices = setup.distribution().devices;
  if (!devices.is_gpu && devices.hardware.empty()) {
    fuse_rows(program, RowTarget::kCpu);
  }
  return planned_memory(program);
}

// The same layers and layouts on a mesh of ones.
Config on_one_device(const Setup& setup) {
  Config config = setup.config();
  MeshConfig& mesh = config.distribution.mesh;
  mesh.shape.value.assign(static_cast<size_t>(setup.mesh().num_axes()), 1);
  mesh.axis_names.value = setup.mesh().axis_names();
  mesh.devices.value = "auto";
  return config;
}

// How many kernels a GPU starts for each step of the program of a training step on one device,
// which a run of so many devices fuses as it does its own. Preparing a program takes longer with
// more samples, and this share hardly changes: a part of a large batch is enough.
double launch_share(const Setup& alone, int64_t batch, int64_t devices, const Program* known) {
  constexpr int64_t kEnough = 8192;
  int64_t part = batch;
  while (part > kEnough && part % 2 == 0) {
    part /= 2;
  }
  part = std::min(part, kEnough);
  Program program =
      known != nullptr && part == batch ? *known : alone.compile(StepKind::kTrain, part).program;
  const ReductionOrder order = alone.config().distribution.reductions;
  const double steps = static_cast<double>(std::max<size_t>(program.steps.size(), 1));
  program.fixed_reductions =
      devices > 1 ? order != ReductionOrder::kFast : order == ReductionOrder::kFixed;
  fuse_rows(program, RowTarget::kGpu);
  return static_cast<double>(gpu_launches(program)) / steps;
}

// A step of the same batch on one device.
Estimate estimate_alone(const Setup& alone, const Hardware& hardware) {
  PlanSummary report;
  report.mesh = alone.mesh();
  report.batch = alone.config().fit.batch_size.value;
  const Compiled compiled = alone.compile(StepKind::kTrain, report.batch);
  report.memory = memory_of(alone, compiled.program);
  const double share = launch_share(alone, report.batch, 1, &compiled.program);
  return estimate_step(estimate_input(alone, report, compiled, share), hardware);
}

// The same with half of the batch, a quarter and so on, in whole shards.
std::vector<Change> smaller_batches(const Setup& setup, const Change& change) {
  const int64_t shards = setup.mesh().size_of(setup.distribution().batch_axes);
  std::vector<Change> out;
  for (int64_t each = setup.config().fit.batch_size.value / shards / 2; each > 0; each /= 2) {
    const std::string text = fmt::format("`batch_size: {}`", each * shards);
    out.push_back({change.text.empty() ? text : change.text + " with " + text, change.config});
    out.back().config.fit.batch_size.value = each * shards;
  }
  return out;
}

// The smallest change with which a device's part fits into its memory: more of ZeRO, then a smaller
// batch, then both.
std::string advice(const Setup& setup, int64_t memory) {
  const bool splits = !setup.distribution().batch_axes.empty();
  std::vector<Change> changes = splits ? higher_zero_levels(setup) : std::vector<Change>();
  std::vector<Change> from = {{"", setup.config()}};
  if (!changes.empty()) {
    from.push_back(changes.back());
  }
  for (const Change& change : from) {
    for (Change& smaller : smaller_batches(setup, change)) {
      changes.push_back(std::move(smaller));
    }
  }
  const auto fits = [memory](const Setup& changed) {
    const int64_t batch = changed.config().fit.batch_size.value;
    return memory_of(changed, changed.compile(StepKind::kTrain, batch).program).total() <= memory;
  };
  // The last one takes least.
  const Change* found = nullptr;
  if (!changes.empty() && first_fitting(setup, {changes.back()}, fits) != nullptr) {
    found = first_fitting(setup, changes, fits);
  }
  return found == nullptr ? "no `zero` and no batch fits: more devices, or a layout_map"
                          : found->text + " fits";
}

// Without what a run does not let NCCL use.
Hardware used_part(Hardware hardware) {
  hardware.switch_rate = nccl_sums_in_switch() ? hardware.switch_rate : 0;
  return hardware;
}

// The share of a search, from an earlier plan where layouts alone differ.
double searched_share(const Setup& setup, const PlanSummary& report, LaunchShares& shares) {
  const int64_t batch = report.batch / report.batch_shards;
  std::string key = fmt::format("{} {} {} {}", report.num_params, batch,
                                report.mesh.num_devices() > 1, setup.distribution().zero >= 2);
  for (const ModelConfig::Remat& remat : setup.config().model.remat) {
    key += fmt::format(" {} {} {}", remat.prefix, remat.keeps_products, remat.kept_parts);
  }
  const auto known = shares.find(key);
  if (known != shares.end()) {
    return known->second;
  }
  const Config one = on_one_device(setup);
  const Setup alone(one, &setup.data());
  return shares[key] = launch_share(alone, batch, report.mesh.num_devices(), nullptr);
}

// One device is looked at only where it could be faster: where its products alone take less than
// the step of all devices.
Estimate estimate(const Setup& setup, const PlanSummary& report, const Compiled& compiled,
                  const Hardware& hardware) {
  const int64_t devices = report.mesh.num_devices();
  const Config one = on_one_device(setup);
  std::optional<Setup> alone;  // with the batch of a device it starts what that starts
  if (devices > 1 && !hardware.is_virtual) {
    alone.emplace(one, &setup.data());
  }
  const double share =
      hardware.is_virtual ? 1
      : alone ? launch_share(*alone, report.batch / report.batch_shards, devices, nullptr)
              : launch_share(setup, report.batch, devices, &compiled.program);
  EstimateInput input = estimate_input(setup, report, compiled, share);
  if (hardware.memory > 0 && input.memory > hardware.memory) {
    input.advice = advice(setup, hardware.memory);
  }
  Estimate out = estimate_step(input, hardware);
  const double products = input.flops / hardware.matmul[static_cast<size_t>(out.products)];
  if (alone && products < out.step) {
    const Estimate of_one = estimate_alone(*alone, hardware);
    if (of_one.fits) {
      compare_with_one_device(out, of_one.step);
    }
  }
  return out;
}

// The hardware to estimate for, on as many hosts as --hosts says: devices on paper, or with a file
// of hardware virtual ones on this processor. None for GPUs that are here: they are not looked at.
std::optional<Hardware> hardware_of(const Setup& setup, int64_t hosts) {
  const Located<std::string>& file = setup.config().plan.hardware;
  const DeviceRequest& request = setup.distribution().devices;
  if (request.hardware.empty() && file->empty()) {
    return std::nullopt;
  }
  const std::vector<Hardware> table = load_hardware(file);
  const Hardware* found = requested_hardware(request, table);
  if (found == nullptr) {
    return std::nullopt;
  }
  Hardware out = *found;
  const int64_t devices = setup.mesh().num_devices();
  if (hosts > 0) {
    if (devices % hosts != 0) {
      throw ConfigError(
          "E140", {},
          fmt::format("`--hosts {}`: {} not divisible by it", hosts,
                      devices == 1 ? "1 device is" : fmt::format("{} devices are", devices)));
    }
    out.per_host = devices / hosts;
  }
  return out;
}

// The step arena of each way to compute forward values again; nothing for a config without `remat`.
std::vector<PlanSummary::Remat> remat_memory(const Config& config, int64_t batch) {
  std::vector<PlanSummary::Remat> out;
  if (config.model.remat.empty()) {
    return out;
  }
  for (const RematChoice& choice : remat_choices(config.model)) {
    Config changed = config;
    changed.model.remat = choice.parts;
    const Setup setup(changed, nullptr);
    const Compiled compiled = setup.compile(StepKind::kTrain, batch);
    out.push_back({choice.name, memory_of(setup, compiled.program).activations});
  }
  return out;
}

}  // namespace

PlanSummary make_plan(const Setup& setup, int64_t samples, bool bucket, const Hardware* hardware,
                      LaunchShares* shares) {
  PlanSummary report;
  report.name = setup.config().name.value;
  report.mesh = setup.mesh();
  report.devices = setup.distribution().devices.describe(report.mesh.num_devices());
  fill_batch(report, setup, samples);
  report.num_params = setup.model().num_params();

  const Compiled compiled = setup.compile(StepKind::kTrain, report.batch, bucket);
  const auto& weights = setup.model().weights();
  for (size_t w = 0; w < weights.size(); ++w) {
    const Variable& variable = setup.variables()[w];
    const LayoutRule* rule = setup.layouts().rules[w];
    report.variables.push_back({variable.path, variable.shape, variable.dtype, variable.layout,
                                variable.trainable, rule == nullptr ? "" : rule->key,
                                place_of(rule)});
  }
  for (const auto& [key, sharding] : setup.layouts().pins) {
    const LayoutRule* rule = setup.layouts().pin_rules.at(key);
    Shape shape;
    for (const Model::Call& call : setup.model().calls()) {
      if (!call.is_input && call.result_of == kNone &&
          setup.model().layers()[call.layer]->name + "/output" == key) {
        shape = call.output_shape;
      }
    }
    report.outputs.push_back({key, shape, sharding, rule->key, place_of(rule)});
  }
  report.collectives = collectives_of(setup, compiled.graph);
  report.memory = memory_of(setup, compiled.program);
  report.heads = planned_heads(compiled.graph, report.mesh);
  report.flops = planned_flops(compiled.graph);
  report.model_flops = planned_model_flops(compiled.graph);
  report.flops_per_device = planned_flops_per_device(compiled.graph, report.mesh);
  report.warnings = setup.warnings();
  if (hardware != nullptr && shares != nullptr) {
    const double share = hardware->is_virtual ? 1 : searched_share(setup, report, *shares);
    report.estimate =
        estimate_step(estimate_input(setup, report, compiled, share), used_part(*hardware));
  } else if (hardware != nullptr) {
    report.estimate = estimate(setup, report, compiled, used_part(*hardware));
  }
  return report;
}

std::optional<Hardware> own_hardware(const Setup& setup) {
  const DeviceRequest& request = setup.distribution().devices;
  if (!request.is_gpu) {
    return *find_hardware(known_hardware(), "cpu");
  }
  std::string reason;
  gpu::Runtime* const runtime = gpu::load_runtime(reason);
  const int first = request.gpus.empty() ? 0 : request.gpus[0];
  const Hardware* found =
      runtime == nullptr ? nullptr : hardware_of_device(runtime->info(first).name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

PlanSummary plan_config(const Config& config, int64_t hosts, const std::string& dump_ir) {
  const Setup setup(config, nullptr, dump_ir);
  const std::optional<Hardware> hardware = hardware_of(setup, hosts);
  PlanSummary plan = make_plan(setup, 0, true, hardware ? &*hardware : nullptr);
  plan.remat = remat_memory(config, plan.batch);
  warn_of_host_memory(setup, plan.warnings);
  if (!hardware && (hosts > 0 || !config.plan.hardware->empty())) {
    const Located<std::string>& devices = setup.distribution().devices.text;
    plan.warnings
        .warning("W621", devices.loc,
                 fmt::format("no estimate: `{}` names devices of this machine", devices.value))
        .help(fmt::format("write `--devices {}xH100`", setup.mesh().num_devices()));
  }
  return plan;
}

}  // namespace meshtrain
