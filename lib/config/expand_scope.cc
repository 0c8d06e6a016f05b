#include "config/expand_scope.h"

#include "base/text.h"

namespace meshtrain {

void ExpandScope::continue_from(ExpandScope& around) {
  prefix = around.prefix;
  outer = &around;
  home = around.home;
  locals = around.locals;
  use = around.use;
  frozen = around.frozen;
  own_root = around.own_root;
  shared_root = around.shared_root;
}

std::string ExpandScope::shared_name(const std::string& full_name) const {
  return starts_with(full_name, own_root) ? shared_root + full_name.substr(own_root.size())
                                          : full_name;
}

std::vector<std::string> ExpandScope::known_names() const {
  std::vector<std::string> out;
  for (const ExpandScope* scope = this; scope != nullptr; scope = scope->outer) {
    for (const auto& [name, outputs] : scope->names) {
      out.push_back(name);
    }
    out.insert(out.end(), scope->layers.begin(), scope->layers.end());
  }
  return out;
}

std::optional<OutputNames> find_outputs(const std::string& name, const ExpandScope& scope) {
  const std::string first = name.substr(0, name.find('/'));
  for (const ExpandScope* at = &scope; at != nullptr; at = at->outer) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) {
      return found->second;
    }
    if (at->layers.contains(first) || at->uses.contains(first)) {
      return OutputNames{at->prefix + name};
    }
    if (at->block != nullptr) {
      return std::nullopt;
    }
  }
  return OutputNames{name};
}

}  // namespace meshtrain
