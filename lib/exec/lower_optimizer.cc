// optimizer_update: operands and attributes as ir/ops/optimizer.cc states them.
//
// A kernel for each variable, in memory of its own, is one pass over all of them all the same: no
// barrier stands between them on the CPU (exec/schedule.h), and a GPU has one launch for those of
// one rule (backend/gpu/merge_launches.h). Flat buffers would only add copies to and from the
// layers' shapes.
#include <algorithm>

#include "exec/lower.h"

namespace meshtrain {
namespace {

OptimizerRule find_rule(const StepContext& context) {
  const std::string& kind = context.attr_string("kind");
  if (kind == "sgd")
    return OptimizerRule::kSgd;
  if (kind == "momentum") {
    return context.attr_int("nesterov") != 0 ? OptimizerRule::kNesterov : OptimizerRule::kMomentum;
  }
  if (kind == "rmsprop")
    return OptimizerRule::kRmsprop;
  MESHTRAIN_CHECK(kind == "adam", "{}: no optimizer kind `{}`", context.step.path, kind);
  return OptimizerRule::kAdam;
}

OptimizerSpec common_spec(const StepContext& context) {
  OptimizerSpec spec;
  spec.rule = find_rule(context);
  spec.dtype = context.output(0).dtype;
  const auto take = [&](std::string_view name, int scalar) {
    if (context.has_attr(name))
      spec.args.scalars[scalar] = context.attr_double(name);
  };
  take("momentum", kMomentumFactor);
  take("rho", kRho);
  take("beta_1", kBeta1);
  take("beta_2", kBeta2);
  take("epsilon", kEpsilonTerm);
  take("centered", kVariant);
  take("amsgrad", kVariant);
  return spec;
}

void lower_optimizer_update(StepContext& context) {
  const size_t num_slots = context.step.outputs.size() - 1;
  const size_t rate = 2 + num_slots;
  const bool has_decay = context.has_attr("has_decay") && context.attr_int("has_decay") != 0;
  const AxisMask axes = context.output(0).axes;
  bool together = true;  // all tensors are sharded alike
  for (size_t i = 0; i < rate; ++i)
    together = together && context.input(i).axes == axes;
  const int64_t shards = together ? 1 : context.num_shards();
  OptimizerSpec spec = common_spec(context);
  spec.num_elements = num_elements(context.output(0).shape) * (together ? context.num_shards() : 1);
  context.add(BeginGroup{});
  for (int64_t p = 0; p < shards; ++p) {
    spec.args.param = context.input_shard(0, p);
    spec.args.grad = context.input_shard(1, p);
    spec.args.new_param = context.output_shard(0, p);
    for (size_t s = 0; s < num_slots; ++s) {
      spec.args.slots[s] = context.input_shard(2 + s, p);
      spec.args.new_slots[s] = context.output_shard(1 + s, p);
    }
    spec.rate = context.input_shard(rate, p);
    spec.decay = has_decay ? context.input_shard(rate + 1, p) : nullptr;
    context.add(spec);
  }
  context.add(EndGroup{});
}

}  // namespace

std::vector<OpLowering> optimizer_lowerings() {
  return {
      {"optimizer_update", lower_optimizer_update},
  };
}

}  // namespace meshtrain
