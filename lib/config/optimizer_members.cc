#include "config/optimizer_members.h"

namespace meshtrain {

std::vector<OptimizerMember> optimizer_members(const ConfigObject& optimizer) {
  if (optimizer.class_name == "LossScaleOptimizer") {
    return optimizer.has("inner_optimizer")
               ? optimizer_members(optimizer.arg("inner_optimizer").object())
               : std::vector<OptimizerMember>();
  }
  if (optimizer.class_name != "MultiOptimizer") {
    return {{"", optimizer.loc, &optimizer}};
  }
  std::vector<OptimizerMember> members;
  const auto add = [&](const std::string& key, const ConfigValue& member) {
    if (member.is_object()) {
      members.push_back({key, member.loc, &member.object()});
    }
  };
  add("", optimizer.arg("default_optimizer"));
  for (const auto& [key, member] : optimizer.arg("optimizer_map").dict()) {
    add(key, member);
  }
  return members;
}

}  // namespace meshtrain
