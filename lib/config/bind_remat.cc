// model.remat: which parts of the model compute forward values again, and what they keep.
#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"

namespace meshtrain {
namespace {

struct RematRule {
  const std::string& key;
  const ConfigValue& value;
  Pattern pattern;
  bool acts = false;
  std::set<std::string> unknown_parts = {};  // that no match has so far
};

// Of a layer "a/b/c": "a", "a/b" and itself.
std::vector<std::string> prefixes_of(const std::string& layer) {
  std::vector<std::string> out;
  for (size_t at = layer.find('/'); at != std::string::npos; at = layer.find('/', at + 1))
    out.push_back(layer.substr(0, at));
  out.push_back(layer);
  return out;
}

bool is_policy(const ConfigValue& value) {
  return value.is_string() &&
         (value.string() == "none" || value.string() == "block" || value.string() == "dots");
}

std::vector<std::string> parts_of(const ConfigValue& value) {
  std::vector<std::string> parts;
  if (value.is_list()) {
    for (const ConfigValue& part : value.list())
      parts.push_back(part.string());
  } else if (!is_policy(value)) {
    parts.push_back(value.string());
  }
  return parts;
}

std::vector<RematRule> rules_of(const ConfigValue& map, Diagnostics& diagnostics) {
  std::vector<RematRule> rules;
  for (const auto& [key, value] : map.dict()) {
    if (!value.is_string() && !value.is_list()) {
      diagnostics
          .error("E112", value.loc, fmt::format("`{}` of `remat` must be a word or a list", key))
          .help("none, block, dots, or the names of layers whose results are kept");
      continue;
    }
    try {
      rules.push_back({key, value, Pattern(key, value.loc)});
      const std::vector<std::string> parts = parts_of(value);
      rules.back().unknown_parts.insert(parts.begin(), parts.end());
    } catch (const ConfigError& error) {
      diagnostics.append(error.diagnostics());
    }
  }
  return rules;
}

// The name itself comes before patterns, which then are no slip all the same.
RematRule* rule_for(std::vector<RematRule>& rules, const std::string& name) {
  for (RematRule& rule : rules)
    rule.acts = rule.acts || rule.pattern.full_match(name);
  const auto exact = std::find_if(rules.begin(), rules.end(),
                                  [&](const RematRule& rule) { return rule.key == name; });
  const auto found = exact != rules.end()
                         ? exact
                         : std::find_if(rules.begin(), rules.end(), [&](const RematRule& rule) {
                             return rule.pattern.full_match(name);
                           });
  return found == rules.end() ? nullptr : &*found;
}

// The names that stand directly below a prefix, for messages.
std::vector<std::string> names_below(const ModelConfig& model, const std::string& prefix) {
  std::vector<std::string> names;
  for (const LayerConfig& layer : model.layers) {
    const std::string& name = layer.name.value;
    if (starts_with(name, prefix + "/"))
      names.push_back(name.substr(prefix.size() + 1));
  }
  return names;
}

// `said`: places and parts; a Repeat has a rule for each repetition.
void check_parts(const RematRule& rule, const ModelConfig& model, const std::string& example,
                 std::set<std::string>& said, Diagnostics& diagnostics) {
  for (const std::string& part : rule.unknown_parts) {
    if (!said.insert(rule.value.loc.to_string() + " " + part).second)
      continue;
    const std::vector<std::string> names = names_below(model, example);
    Diagnostic& d =
        diagnostics.error("E113", rule.value.loc,
                          fmt::format("`remat` of `{}` keeps `{}`, which is no layer of `{}`",
                                      rule.key, part, example));
    suggest(d, part, names);
    d.note(names.empty() ? "none, block or dots; a layer by itself has no parts"
                         : fmt::format("none, block, dots, or layers: {}",
                                       join(nearest_names(part, names, 8), ", ")));
  }
}

}  // namespace

// The outermost match of each layer counts.
void bind_remat(const ConfigValue& map, ModelConfig& out, Diagnostics& diagnostics) {
  std::vector<RematRule> rules = rules_of(map, diagnostics);
  std::set<std::string> known, names, said;
  std::vector<std::string> examples(rules.size());
  for (const LayerConfig& layer : out.layers) {
    for (const std::string& name : prefixes_of(layer.name.value)) {
      names.insert(name);
      RematRule* rule = rule_for(rules, name);
      if (rule == nullptr)
        continue;
      rule->acts = true;
      examples[static_cast<size_t>(rule - rules.data())] = name;
      for (const std::string& inner : prefixes_of(layer.name.value)) {
        if (starts_with(inner, name + "/"))
          rule->unknown_parts.erase(inner.substr(name.size() + 1));
      }
      const bool is_none = rule->value.is_string() && rule->value.string() == "none";
      if (!is_none && known.insert(name).second) {
        const bool keeps_products = rule->value.is_string() && rule->value.string() == "dots";
        out.remat.push_back({name, keeps_products, parts_of(rule->value)});
      }
      break;
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].acts && examples[i].empty()) {
      continue;  // names came before it
    }
    if (rules[i].acts) {
      check_parts(rules[i], out, examples[i], said, diagnostics);
      continue;
    }
    const std::vector<std::string> all(names.begin(), names.end());
    Diagnostic& d = diagnostics.error(
        "E121", rules[i].value.loc, fmt::format("`{}` of `remat` matches no layer", rules[i].key));
    suggest(d, rules[i].key, all);
    d.note(fmt::format("layers and blocks: {}", join(nearest_names(rules[i].key, all, 8), ", ")));
  }
}

}  // namespace meshtrain
