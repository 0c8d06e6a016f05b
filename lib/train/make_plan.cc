#include "train/make_plan.h"

#include <algorithm>
#include <map>

#include "base/nccl_settings.h"
#include "passes/propagate.h"

namespace meshtrain {
namespace {

void fill_batch(PlanReport& report, const Setup& setup, int64_t samples) {
  const Distribution& distribution = setup.distribution();
  report.batch = setup.config().fit.batch_size.value;
  report.batch_shards = setup.mesh().size_of(distribution.batch_axes);
  report.batch_axes = distribution.batch_axis_names;
  report.samples = samples;
  report.full_steps = samples / report.batch;
  const bool drops = setup.config().data.remainder.value == "drop";
  report.last_batch = drops ? 0 : samples % report.batch;
  report.last_batch_sharded = report.last_batch % report.batch_shards == 0;
}

std::string place_of(const LayoutRule* rule) {
  return rule == nullptr ? "" : rule->loc.to_string();
}

// The first of these places that there is: what a file leaves out has none.
std::string first_place(std::initializer_list<SourceLoc> places) {
  const auto* found = std::find_if(places.begin(), places.end(),
                                   [](const SourceLoc& place) { return static_cast<bool>(place); });
  return found == places.end() ? "" : found->to_string();
}

PlannedCause rule_cause(const LayoutRule& rule) {
  return {"rule", rule.key, place_of(&rule)};
}

// What of the config each origin (passes/propagate.h) stands for.
std::map<std::string, PlannedCause> causes_by_origin(const Setup& setup) {
  const DistributionConfig& config = setup.config().distribution;
  const ResolvedLayouts& layouts = setup.layouts();
  std::map<std::string, PlannedCause> out;
  out[kBatchOrigin] = {"batch", setup.distribution().batch_axis_names,
                       first_place({config.batch_dim_name.loc, config.mesh.axis_names.loc,
                                    config.mesh.shape.loc, config.mesh.devices.loc})};
  const PlannedCause zero = {"zero", fmt::format("{}", setup.distribution().zero),
                             config.zero.loc.to_string()};
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

EstimateInput estimate_input(const Setup& setup, const PlanReport& report, const Program& program) {
  return {.program = program,
          .mesh = report.mesh,
          .collectives = report.collectives,
          .batch = report.batch,
          .memory = report.memory.total(),
          .flops = report.flops,
          .allow_tf32 = setup.config().matmul_precision.value != "highest",
          .fixed_reductions = setup.config().distribution.reductions.value != "fast"};
}

// A step of the same batch on one device: the same layers and layouts on a mesh of ones.
double step_on_one_device(const Setup& setup, const Hardware& hardware) {
  Config config = setup.config();
  MeshConfig& mesh = config.distribution.mesh;
  mesh.shape.value.assign(static_cast<size_t>(setup.mesh().num_axes()), 1);
  mesh.axis_names.value = setup.mesh().axis_names();
  mesh.devices.value = "auto";
  const Setup alone(config, &setup.data());
  PlanReport report;
  report.mesh = alone.mesh();
  report.batch = config.fit.batch_size.value;
  const Compiled compiled = alone.compile(StepKind::kTrain, report.batch);
  return estimate_step(estimate_input(alone, report, compiled.program), hardware).step;
}

// Without what a run does not let NCCL use.
Hardware used_part(Hardware hardware) {
  hardware.switch_rate = nccl_sums_in_switch() ? hardware.switch_rate : 0;
  return hardware;
}

// One device is looked at only where it could be faster: where its products alone take less than
// the step of all devices.
Estimate estimate(const Setup& setup, const PlanReport& report, const Program& program,
                  const Hardware& hardware) {
  Estimate out = estimate_step(estimate_input(setup, report, program), hardware);
  const double products = report.flops / hardware.matmul[static_cast<size_t>(out.products)];
  if (out.devices > 1 && !hardware.is_virtual && products < out.step) {
    compare_with_one_device(out, step_on_one_device(setup, hardware));
  }
  return out;
}

}  // namespace

PlanReport make_plan(const Setup& setup, int64_t samples, bool bucket, const Hardware* hardware) {
  PlanReport report;
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
      if (!call.is_input && setup.model().layers()[call.layer]->name + "/output" == key) {
        shape = call.output_shape;
      }
    }
    report.outputs.push_back({key, shape, sharding, rule->key, place_of(rule)});
  }
  report.collectives = collectives_of(setup, compiled.graph);
  report.memory = planned_memory(compiled.program);
  report.flops = planned_flops(compiled.graph);
  report.flops_per_device = planned_flops_per_device(compiled.graph, report.mesh);
  report.warnings = setup.warnings();
  if (hardware != nullptr) {
    report.estimate = estimate(setup, report, compiled.program, used_part(*hardware));
  }
  return report;
}

}  // namespace meshtrain
