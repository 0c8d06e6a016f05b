#include "nn/roles.h"

#include <algorithm>

#include "base/error.h"

namespace meshtrain {
namespace {

struct Role {
  std::string_view name;
  std::optional<size_t> AttentionInputs::*place;
};
constexpr Role kRoles[] = {{"query_mask", &AttentionInputs::query_mask},
                           {"value_mask", &AttentionInputs::value_mask},
                           {"key_mask", &AttentionInputs::key_mask},
                           {"attention_mask", &AttentionInputs::attention_mask},
                           {"positions", &AttentionInputs::positions},
                           {"segments", &AttentionInputs::segments}};

}  // namespace

std::optional<AttentionInputs> try_inputs(const LayerUse& use, size_t count, std::string& problem) {
  AttentionInputs out;
  if (use.roles.empty()) {
    if (count == 0 || count > 3) {
      problem = "it takes a query, a value and a key";
      return std::nullopt;
    }
    out.value = count > 1 ? 1 : 0;
    out.key = count > 2 ? 2 : out.value;
    return out;
  }
  std::optional<size_t> query, value, key;
  for (size_t i = 0; i < use.roles.size(); ++i) {
    const std::string& name = use.roles[i];
    const auto role = std::find_if(std::begin(kRoles), std::end(kRoles),
                                   [&](const Role& known) { return known.name == name; });
    if (name == "query") {
      query = i;
    } else if (name == "value") {
      value = i;
    } else if (name == "key") {
      key = i;
    } else if (role != std::end(kRoles)) {
      out.*(role->place) = i;
    } else {
      problem = fmt::format("there is no input `{}`", name);
      return std::nullopt;
    }
  }
  if (!query) {
    problem = "its inputs name no `query`";
    return std::nullopt;
  }
  out.query = *query;
  out.value = value.value_or(*query);
  out.key = key.value_or(out.value);
  return out;
}

AttentionInputs inputs_of(const LayerUse& use, size_t count) {
  std::string problem;
  const std::optional<AttentionInputs> found = try_inputs(use, count, problem);
  MESHTRAIN_CHECK(found.has_value(), "{}", problem);
  return *found;
}

ValueId add_attention(Builder& b, ValueId q, ValueId k, ValueId v, const AttentionCall& call) {
  ValueList inputs = {q, k, v};
  std::string names;
  for (size_t i = 0; i < kNumAttentionOperands; ++i) {
    if (call.operands[i] != kNone) {
      inputs.push_back(call.operands[i]);
      names += names.empty() ? "" : " ";
      names += attention_operand_name(static_cast<AttentionOperand>(i));
    }
  }
  return b.add_node("attention", inputs,
                    {{"scale", call.scale},
                     {"causal", int64_t{call.causal}},
                     {"window", call.window},
                     {"rate", call.rate},
                     {"seed", call.seed},
                     {"operands", names}})[0];
}

ValueId both_masks(Builder& builder, ValueId a, ValueId b) {
  return a == kNone ? b : b == kNone ? a : builder.binary("logical_and", a, b);
}

}  // namespace meshtrain
