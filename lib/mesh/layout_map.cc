#include "mesh/layout_map.h"

#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "mesh/layout_axes.h"

namespace meshtrain {

std::string TensorLayout::to_string() const {
  std::vector<std::string> entries;
  for (const std::vector<std::string>& axes : dims) {
    entries.push_back(axes.empty()       ? "null"
                      : axes.size() == 1 ? axes[0]
                                         : fmt::format("[{}]", join(axes, ", ")));
  }
  return fmt::format("[{}]", join(entries, ", "));
}

SourceLoc axis_loc(const TensorLayout& layout, size_t d, size_t i) {
  return d < layout.axis_locs.size() && i < layout.axis_locs[d].size() ? layout.axis_locs[d][i]
                                                                       : layout.loc;
}

void check_layout_axes(const TensorLayout& layout, const std::vector<std::string>& names,
                       Diagnostics& diagnostics) {
  std::set<std::string_view> seen;
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    for (size_t i = 0; i < layout.dims[d].size(); ++i) {
      const std::string& name = layout.dims[d][i];
      const SourceLoc loc = axis_loc(layout, d, i);
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        Diagnostic& problem = diagnostics.error(
            "E205", loc,
            fmt::format("axis `{}` of {} is not in the mesh", name, layout.to_string()));
        if (name.empty() || name == "-" || to_lower(name) == "none") {
          problem.help("write null where nothing splits a dimension");
        } else {
          suggest(problem, name, names);
        }
        problem.notes.push_back(names.empty() ? std::string("the mesh has no axes")
                                              : "mesh axes: " + join(names, ", "));
      } else if (!seen.insert(name).second) {
        diagnostics
            .error("E205", loc,
                   fmt::format("axis `{}` occurs twice in {}", name, layout.to_string()))
            .help("an axis can split one dimension of a tensor; write null for the other");
      }
    }
  }
}

void LayoutMap::set(LayoutRule rule) {
  Diagnostics diagnostics;
  const auto same = std::find_if(rules_.begin(), rules_.end(),
                                 [&](const LayoutRule& r) { return r.key == rule.key; });
  if (same != rules_.end()) {
    Diagnostic& problem = diagnostics.error(
        "E203", rule.loc,
        fmt::format("rule `{}` is there already, as {}", rule.key, same->layout.to_string()));
    if (same->loc) {
      problem.note("first at " + same->loc.to_string());
    }
  }
  check_layout_axes(rule.layout, mesh_.axis_names(), diagnostics);
  std::optional<Pattern> pattern;
  try {
    pattern.emplace(rule.key, rule.loc);
  } catch (const ConfigError& error) {
    diagnostics.append(error.diagnostics());
  }
  diagnostics.throw_if_errors();
  rules_.push_back(std::move(rule));
  patterns_.push_back(std::move(*pattern));
}

void LayoutMap::erase(std::string_view key) {
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].key == key) {
      rules_.erase(rules_.begin() + static_cast<ptrdiff_t>(i));
      patterns_.erase(patterns_.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
  }
  throw Error(ExitCode::kConfig, fmt::format("the layout map has no rule `{}`", key));
}

namespace {
bool is_prefixed(std::string_view key, std::string_view model_name, std::string_view path) {
  return !model_name.empty() && key.size() == model_name.size() + 1 + path.size() &&
         starts_with(key, model_name) && key[model_name.size()] == '/' && ends_with(key, path);
}
}  // namespace

bool LayoutMap::matches(size_t rule, std::string_view path, std::string_view model_name) const {
  const Pattern& pattern = patterns_[rule];
  if (search_ ? pattern.search(path) : pattern.full_match(path)) {
    return true;
  }
  // Only a key that speaks of the model is tried with its name in front: `[^/]+/d1/kernel` must not
  // begin to match `d1/kernel`.
  const std::string& key = rules_[rule].key;
  if (model_name.empty() || key.find(model_name) == std::string::npos) {
    return false;
  }
  const std::string prefixed = fmt::format("{}/{}", model_name, path);
  if (!search_) {
    return pattern.full_match(prefixed);
  }
  return key.find(std::string(model_name) + "/") != std::string::npos && pattern.search(prefixed);
}

std::vector<size_t> LayoutMap::candidates(std::string_view path,
                                          std::string_view model_name) const {
  std::vector<size_t> hits;
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].key == path || is_prefixed(rules_[i].key, model_name, path)) {
      hits.push_back(i);
    }
  }
  if (!hits.empty()) {
    return hits;
  }
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (matches(i, path, model_name)) {
      hits.push_back(i);
    }
  }
  return hits;
}

const LayoutRule* LayoutMap::find(std::string_view path, std::string_view model_name) const {
  const std::vector<size_t> hits = candidates(path, model_name);
  if (hits.size() > 1) {
    Diagnostics diagnostics;
    add_ambiguity(path, hits, diagnostics);
    throw ConfigError(std::move(diagnostics));
  }
  return hits.empty() ? nullptr : &rules_[hits[0]];
}

Diagnostic& LayoutMap::add_ambiguity(std::string_view path, const std::vector<size_t>& hits,
                                     Diagnostics& diagnostics) const {
  std::vector<std::string> keys;
  std::vector<std::string> places;
  for (const size_t hit : hits) {
    keys.push_back(fmt::format("`{}`", rules_[hit].key));
    if (rules_[hit].loc) {
      places.push_back(fmt::format("`{}` at {}", rules_[hit].key, rules_[hit].loc.to_string()));
    }
  }
  Diagnostic& problem = diagnostics.error(
      "E203", rules_[hits.back()].loc,
      fmt::format("{} rules match `{}`: {}", hits.size(), path, join(keys, " and ")));
  if (!places.empty()) {
    problem.note(join(places, ", "));
  }
  problem.help(fmt::format("make one of them stricter, or add a rule for exactly `{}`", path));
  return problem;
}

}  // namespace meshtrain
