#include "config/precision.h"

#include <algorithm>
#include <optional>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/catalogue.h"
#include "config/other_names.h"

namespace meshtrain {
namespace {

struct NamedPolicy {
  std::string_view name;
  DTypePolicy policy;
};

const NamedPolicy kPolicies[] = {
    {"float32", DType::kFloat32},
    {"float64", DType::kFloat64},
    {"bfloat16", DType::kBFloat16},
    {"float16", DType::kFloat16},
    {"mixed_bfloat16", {DType::kBFloat16, DType::kFloat32}},
    {"mixed_float16", {DType::kFloat16, DType::kFloat32}},
};

// One entry of dtype_policy_map. Keras takes a key for a pattern where no layer is called so.
struct PolicyRule {
  const std::string& key;
  const ConfigValue& policy;
  std::optional<Pattern> pattern;
  bool acts = false;
};

std::vector<PolicyRule> policy_rules(const ConfigValue& map, Diagnostics& diagnostics) {
  std::vector<PolicyRule> rules;
  for (const auto& [key, policy] : map.dict()) {
    const std::vector<std::string>& names = dtype_policy_names();
    if (std::find(names.begin(), names.end(), policy.string()) == names.end()) {
      Diagnostic& d =
          diagnostics.error("E113", policy.loc,
                            fmt::format("`{}` of `dtype_policy_map` must be {}, not `{}`", key,
                                        join(names, " or "), policy.string()));
      if (const std::string other = instead_of_policy(policy.string()); !other.empty()) {
        d.help(other);
      } else {
        suggest(d, policy.string(), names);
      }
      continue;
    }
    try {
      rules.push_back({key, policy, Pattern(key, policy.loc)});
    } catch (const ConfigError& error) {
      diagnostics.append(error.diagnostics());
    }
  }
  return rules;
}

// The one rule for a layer, or null.
PolicyRule* rule_of(std::vector<PolicyRule>& rules, const LayerConfig& layer,
                    Diagnostics& diagnostics) {
  PolicyRule* found = nullptr;
  for (PolicyRule& rule : rules) {
    if (rule.key == layer.name.value) {
      rule.acts = true;
      return &rule;
    }
  }
  for (PolicyRule& rule : rules) {
    if (!rule.pattern->full_match(layer.name.value)) {
      continue;
    }
    rule.acts = true;
    if (found != nullptr) {
      diagnostics
          .error("E121", rule.policy.loc,
                 fmt::format("two keys of `dtype_policy_map` match layer `{}`: `{}` and `{}`",
                             layer.name.value, found->key, rule.key))
          .help(fmt::format("make one narrower, or add `{}` itself", layer.name.value));
    }
    found = &rule;
  }
  return found;
}

void apply_map(const ConfigValue& map, ModelConfig& model, Diagnostics& diagnostics) {
  std::vector<PolicyRule> rules = policy_rules(map, diagnostics);
  std::vector<std::string> names;
  for (LayerConfig& layer : model.layers) {
    if (layer.object.class_name == "Input" || layer.object.class_name == "Call") {
      continue;
    }
    names.push_back(layer.name.value);
    const PolicyRule* rule = rule_of(rules, layer, diagnostics);
    if (rule != nullptr && !layer.object.has("dtype")) {
      layer.object.args["dtype"] = rule->policy;
    }
  }
  for (const PolicyRule& rule : rules) {
    if (!rule.acts) {
      Diagnostic& d =
          diagnostics.error("E121", rule.policy.loc,
                            fmt::format("`{}` of `dtype_policy_map` matches no layer", rule.key));
      suggest(d, rule.key, names);
      d.note(fmt::format("layers: {}", join(nearest_names(rule.key, names, 8), ", ")));
    }
  }
}

void scale_loss(ConfigObject& optimizer) {
  ConfigObject outer = default_object(Category::kOptimizer, "LossScaleOptimizer");
  outer.loc = optimizer.loc;
  ConfigValue inner;
  inner.data = std::make_shared<ConfigObject>(std::move(optimizer));
  inner.loc = outer.loc;
  outer.args["inner_optimizer"] = std::move(inner);
  optimizer = std::move(outer);
}

}  // namespace

const std::vector<std::string>& dtype_policy_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const NamedPolicy& named : kPolicies)
      names.emplace_back(named.name);
    return names;
  }();
  return kNames;
}

DTypePolicy dtype_policy(std::string_view name) {
  for (const NamedPolicy& named : kPolicies) {
    if (named.name == name) {
      return named.policy;
    }
  }
  throw InternalError(fmt::format("there is no dtype policy {}", name));
}

std::string dtype_policy_name(const DTypePolicy& policy) {
  const std::string compute(dtype_name(policy.compute));
  return policy.compute == policy.variable ? compute : "mixed_" + compute;
}

void bind_precision(const ConfigValue& tree, Config& config, Diagnostics& diagnostics) {
  apply_map(tree.field("dtype_policy_map"), config.model, diagnostics);
  ConfigObject& optimizer = config.compile.optimizer;
  if (config.dtype_policy.value == "mixed_float16" && !optimizer.class_name.empty() &&
      optimizer.class_name != "LossScaleOptimizer" && config.compile.auto_scale_loss) {
    scale_loss(optimizer);
  }
}

}  // namespace meshtrain
