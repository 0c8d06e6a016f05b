// Updates of variables by their gradients. Sizes and addresses are arguments, so that all variables
// of a model are updated by one kernel.
#include <algorithm>
#include <string>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

std::string_view rule_name(OptimizerRule rule) {
  switch (rule) {
    case OptimizerRule::kSgd:
      return "Rule::kSgd";
    case OptimizerRule::kMomentum:
      return "Rule::kMomentum";
    case OptimizerRule::kNesterov:
      return "Rule::kNesterov";
    case OptimizerRule::kRmsprop:
      return "Rule::kRmsprop";
    default:
      return "Rule::kAdam";
  }
}

int slots_of(const OptimizerSpec& spec) {
  const bool is_variant = spec.args.scalars[kVariant] != 0;
  switch (spec.rule) {
    case OptimizerRule::kSgd:
      return 0;
    case OptimizerRule::kMomentum:
    case OptimizerRule::kNesterov:
      return 1;
    case OptimizerRule::kRmsprop:
      return 1 + (spec.args.scalars[kMomentumFactor] > 0 ? 1 : 0) + (is_variant ? 1 : 0);
    default:
      return is_variant ? 3 : 2;
  }
}

std::string update_text(const OptimizerSpec& spec, int pack) {
  const auto& scalars = spec.args.scalars;
  return call_text(
      "update",
      {struct_text("Optimizing", {{"rule", rule_name(spec.rule)},
                                  {"has_decay", spec.decay != nullptr ? "true" : "false"},
                                  {"is_variant", scalars[kVariant] != 0 ? "true" : "false"},
                                  {"momentum", scalars[kMomentumFactor]},
                                  {"rho", scalars[kRho]},
                                  {"beta1", scalars[kBeta1]},
                                  {"beta2", scalars[kBeta2]},
                                  {"epsilon", scalars[kEpsilonTerm]}}),
       std::to_string(pack), std::string(type_name(spec.dtype))},
      false);
}

}  // namespace

void GpuLowering::make(const OptimizerSpec& spec) {
  MESHTRAIN_CHECK(is_floating(spec.dtype), "no optimizer of {}", dtype_name(spec.dtype));
  if (spec.num_elements == 0)
    return;
  const int slots = slots_of(spec);
  const auto item = static_cast<int64_t>(dtype_size(spec.dtype));
  int pack = std::min(largest_pack(item), 4);
  std::vector<Use> uses;
  Launch launch;
  const auto add_array = [&](const void* data, bool is_write) {
    while (!is_aligned(data, pack * item))
      pack /= 2;
    launch.args.push_back(address(data));
    uses.push_back({static_cast<const std::byte*>(data), spec.num_elements * item, is_write});
  };
  add_array(spec.args.param, false);
  add_array(spec.args.grad, false);
  add_array(spec.args.new_param, true);
  for (int s = 0; s < slots; ++s) {
    add_array(spec.args.slots[s], false);
    add_array(spec.args.new_slots[s], true);
  }
  for (const std::byte* scalar : {spec.rate, spec.decay}) {
    if (scalar == nullptr)
      continue;
    launch.args.push_back(address(scalar));
    uses.push_back({scalar, item, false});
  }
  launch.blocks = blocks_for(spec.num_elements, pack);
  launch.work = spec.num_elements * (3 + 2 * slots);
  launch.args.push_back(static_cast<uint64_t>(spec.num_elements));
  launch.args.push_back(launch.blocks * kThreads * static_cast<uint64_t>(pack));
  launch.body = make_body("optimizer", update_text(spec, pack), 0, false, "optimizer");
  add(std::move(launch), uses);
}

}  // namespace meshtrain::gpu
