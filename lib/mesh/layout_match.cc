// From layouts to shardings, and which rule acts on what.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "mesh/layout_axes.h"
#include "mesh/layout_map.h"

namespace meshtrain {

namespace {

std::string sizes_string(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) {
    sizes.push_back(size == kUnknownDim ? "null" : fmt::format("{}", size));
  }
  return sizes.empty() ? "a scalar" : join(sizes, " x ");
}

// "`model`" or "`data` x `model`"
std::string axes_string(const std::vector<std::string>& axes) {
  return fmt::format("`{}`", join(axes, "` x `"));
}

void add_indivisible(const TensorLayout& layout, size_t d, std::string_view path,
                     const Shape& shape, bool can_pad, const DeviceMesh& mesh, int64_t count,
                     Diagnostics& diagnostics) {
  const int64_t size = shape[d];
  Diagnostic& problem =
      diagnostics.error("E204", axis_loc(layout, d, 0),
                        fmt::format("cannot split dimension {} of `{}` ({}) over {} = {}", d, path,
                                    sizes_string(shape), axes_string(layout.dims[d]), count));
  problem.with_label(fmt::format("{} is not divisible by {}", size, count));
  std::vector<std::string> fits;
  for (int64_t n = 2; n <= std::min(size, mesh.num_devices()); ++n) {
    if (size % n == 0) {
      fits.push_back(fmt::format("{}", n));
    }
  }
  const int64_t below = size / count * count;
  const std::string other_sizes =
      below == 0 ? fmt::format("{}", count) : fmt::format("{} or {}", below, below + count);
  const bool is_written = axis_loc(layout, d, 0).column != layout.loc.column;  // by no preset
  problem.help(fits.empty()
                   ? fmt::format("no mesh size above 1 fits {}; {}make the dimension {}", size,
                                 is_written || !layout.loc ? "write null here, or " : "",
                                 other_sizes)
                   : fmt::format("mesh sizes that fit: 1, {}; or make the dimension {}",
                                 join(fits, ", "), other_sizes));
  if (can_pad)
    problem.help(fmt::format("or fill the table up in memory: `pad_to: {}` of its layer", count));
  std::vector<std::string> sizes;
  for (const MeshAxis& axis : mesh.axes()) {
    sizes.push_back(fmt::format("`{}` = {}", axis.name, axis.size));
  }
  problem.note("mesh: " + join(sizes, ", "));
}

}  // namespace

std::optional<Sharding> resolve_layout(const TensorLayout& layout, std::string_view tensor_path,
                                       const Shape& shape, const DeviceMesh& mesh,
                                       Diagnostics& diagnostics, int pad_dim) {
  const int errors = diagnostics.num_errors();
  if (layout.dims.size() > shape.size()) {
    diagnostics
        .error("E205", layout.loc,
               fmt::format("layout {} has {} entries; `{}` ({}) has {} dimension{}",
                           layout.to_string(), layout.dims.size(), tensor_path, sizes_string(shape),
                           shape.size(), shape.size() == 1 ? "" : "s"))
        .help("one entry per dimension; entries left out at the end are replicated");
  }
  Sharding sharding = Sharding::replicated(shape.size());
  for (size_t d = 0; d < std::min(shape.size(), layout.dims.size()); ++d) {
    for (const std::string& name : layout.dims[d]) {
      sharding.dims[d].push_back(mesh.axis_index(name));
    }
    const int64_t count = mesh.size_of(sharding.dims[d]);
    if (shape[d] != kUnknownDim && shape[d] % count != 0) {
      add_indivisible(layout, d, tensor_path, shape, static_cast<int>(d) == pad_dim, mesh, count,
                      diagnostics);
    }
  }
  if (diagnostics.num_errors() != errors) {
    return std::nullopt;
  }
  return normalized(std::move(sharding), mesh);
}

namespace {

std::string_view last_part(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// The letters of a key without its operators, to compare with paths.
std::string plain_text(std::string_view key) {
  std::string out;
  std::copy_if(key.begin(), key.end(), std::back_inserter(out), [](char c) {
    return std::string_view(".*+?^$\\()[]{}|").find(c) == std::string_view::npos;
  });
  return out;
}

// Explains the rules that act on nothing.
class UnusedRules {
 public:
  // `found`: the rule of each target, or null.
  UnusedRules(const LayoutMap& map, const std::vector<LayoutTarget>& targets,
              const std::vector<const LayoutRule*>& found,
              const std::vector<std::string>& layer_paths, std::string_view model_name,
              Diagnostics& diagnostics)
      : map_(map),
        targets_(targets),
        found_(found),
        layers_(layer_paths.begin(), layer_paths.end()),
        model_name_(model_name),
        diagnostics_(diagnostics) {}

  void report(size_t rule) {
    if (!report_shadowed(rule) && !report_missing_variable(map_.rules()[rule])) {
      report_unmatched(map_.rules()[rule]);
    }
  }

 private:
  // Matches, but every path it matches has an exact rule of its own.
  bool report_shadowed(size_t rule) {
    for (const LayoutTarget& target : targets_) {
      if (map_.matches(rule, target.path, model_name_)) {
        diagnostics_.warning("W203", map_.rules()[rule].loc,
                             fmt::format("rule `{}` acts on nothing: every path that it matches "
                                         "has a rule of its own, such as `{}`",
                                         map_.rules()[rule].key, target.path));
        return true;
      }
    }
    return false;
  }

  // "<layer>/<name>" of a layer that is there and merely lacks that variable, as `d1/bias` when
  // the layer has use_bias: false. A misspelt name is an error.
  bool report_missing_variable(const LayoutRule& rule) {
    const size_t slash = rule.key.rfind('/');
    if (slash == std::string::npos) {
      return false;
    }
    std::string layer = rule.key.substr(0, slash);
    const std::string name = rule.key.substr(slash + 1);
    const std::string prefix = std::string(model_name_) + "/";
    if (!layers_.contains(layer) && !model_name_.empty() && starts_with(layer, prefix)) {
      layer.erase(0, prefix.size());
    }
    if (!layers_.contains(layer)) {
      return false;
    }
    std::vector<std::string> own;
    for (const LayoutTarget& target : targets_) {
      if (target.path.size() > layer.size() + 1 && target.path[layer.size()] == '/' &&
          starts_with(target.path, layer)) {
        own.push_back(target.path.substr(layer.size() + 1));
      }
    }
    const auto begins = [&](const std::string& variable) { return starts_with(variable, name); };
    if (name != plain_text(name) || nearest_name(name, own) ||
        std::any_of(own.begin(), own.end(), begins)) {
      return false;
    }
    Diagnostic& problem = diagnostics_.warning(
        "W203", rule.loc,
        fmt::format("rule `{}` acts on nothing: layer `{}` has no `{}`", rule.key, layer, name));
    if (!own.empty()) {
      problem.note(fmt::format("`{}` has {}", layer, join(own, ", ")));
    }
    return true;
  }

  // "adam/.*", as Keras names the variables of an optimizer.
  static bool names_optimizer(std::string_view key) {
    static const std::set<std::string> kNames = {
        "optimizer", "adadelta", "adafactor", "adagrad", "adam",  "adamax",  "adamw",
        "ftrl",      "lamb",     "lion",      "muon",    "nadam", "rmsprop", "sgd"};
    return kNames.contains(to_lower(key.substr(0, key.find('/'))));
  }

  void report_unmatched(const LayoutRule& rule) {
    const bool is_of_state = names_optimizer(rule.key);
    const std::vector<std::string> near =
        is_of_state ? std::vector<std::string>() : nearest_paths(rule.key);
    const std::string what =
        fmt::format("rule `{}` matches no variable and no layer output", rule.key);
    Diagnostic& problem = map_.unmatched() == Unmatched::kWarn
                              ? diagnostics_.warning("W203", rule.loc, what)
                              : diagnostics_.error("E202", rule.loc, what);
    const std::optional<std::string> best = nearest_name(plain_text(rule.key), near);
    if (best) {
      problem.with_label(fmt::format("did you mean `{}`?", *best));
    }
    note_replicated(rule, best, problem);
    if (!near.empty()) {
      problem.notes.push_back("closest paths: " + join(near, ", "));
    }
    if (const std::optional<std::string> tail = path_after_prefix(rule.key)) {
      problem.help(fmt::format("paths here have no such name in front: write `{}`", *tail));
    }
    if (is_of_state) {
      problem.help("optimizer state has the layout of its weight; `zero: 1` splits it further");
    } else if (!map_.search()) {
      suggest_pattern(rule, problem);
    }
  }

  // Notes the likely target of the rule that has no other rule, and so is replicated.
  void note_replicated(const LayoutRule& rule, const std::optional<std::string>& best,
                       Diagnostic& problem) const {
    const Pattern pattern(rule.key, rule.loc);
    const auto is_inside = [&](const LayoutTarget& target) {
      return ends_with(rule.key, "/" + target.path) || pattern.search(target.path);
    };
    const bool has_inside = std::any_of(targets_.begin(), targets_.end(), is_inside);
    std::vector<std::string> paths;
    int64_t bytes = 0;
    for (size_t i = 0; i < targets_.size(); ++i) {
      const LayoutTarget& target = targets_[i];
      const bool is_variable =
          std::find(target.shape.begin(), target.shape.end(), kUnknownDim) == target.shape.end();
      const bool is_meant = has_inside ? is_inside(target) : target.path == best;
      if (is_variable && is_meant && found_[i] == nullptr) {
        paths.push_back(target.path);
        bytes += num_elements(target.shape) * target.element_bytes;
      }
    }
    if (!paths.empty()) {
      problem.note(fmt::format(
          "{} stay replicated on each device because of it: `{}`{}", format_bytes(bytes), paths[0],
          paths.size() == 1 ? std::string() : fmt::format(" and {} more", paths.size() - 1)));
    }
  }

  // `sequential/d1/kernel` -> `d1/kernel`
  std::optional<std::string> path_after_prefix(std::string_view key) const {
    for (const LayoutTarget& target : targets_) {
      if (key.size() > target.path.size() && ends_with(key, target.path) &&
          key[key.size() - target.path.size() - 1] == '/') {
        return target.path;
      }
    }
    return std::nullopt;
  }

  // A key written for a substring search becomes one that matches whole paths.
  void suggest_pattern(const LayoutRule& rule, Diagnostic& problem) const {
    const Pattern pattern(rule.key, rule.loc);
    std::vector<std::string> found;
    for (const LayoutTarget& target : targets_) {
      if (pattern.search(target.path)) {
        found.push_back(target.path);
      }
    }
    if (found.empty()) {
      return;
    }
    const std::string key =
        rule.key.find('|') == std::string::npos ? rule.key : fmt::format("(?:{})", rule.key);
    for (const std::string& fixed : {".*" + key, key + ".*", ".*" + key + ".*"}) {
      const Pattern whole(fixed);
      if (std::all_of(found.begin(), found.end(),
                      [&](const std::string& path) { return whole.full_match(path); })) {
        problem.help(fmt::format(
            "a rule must match the whole path: `{}` would match {}{}", fixed, found[0],
            found.size() == 1 ? std::string() : fmt::format(" and {} more", found.size() - 1)));
        return;
      }
    }
  }

  // Paths that end alike go first: `dense/kernel` is nearer to `mlp_up/kernel` than to
  // `dense/bias`.
  std::vector<std::string> nearest_paths(std::string_view key) const {
    constexpr size_t kMaxCompared = 2000;  // each comparison takes microseconds
    const std::string wanted = plain_text(key);
    std::vector<std::string> alike;
    std::vector<std::string> all;
    std::set<std::string_view> seen;  // a layer that is called twice has two outputs of one path
    for (const LayoutTarget& target : targets_) {
      if (!seen.insert(target.path).second) {
        continue;
      }
      if (alike.size() < kMaxCompared && last_part(target.path) == last_part(wanted)) {
        alike.push_back(target.path);
      }
      if (all.size() < kMaxCompared) {
        all.push_back(target.path);
      }
    }
    return nearest_names(wanted, alike.empty() ? all : alike, 2);
  }

  const LayoutMap& map_;
  const std::vector<LayoutTarget>& targets_;
  const std::vector<const LayoutRule*>& found_;
  std::set<std::string> layers_;
  std::string_view model_name_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::vector<const LayoutRule*> match_layouts(const LayoutMap& map,
                                             const std::vector<LayoutTarget>& targets,
                                             const std::vector<std::string>& layer_paths,
                                             std::string_view model_name,
                                             Diagnostics& diagnostics) {
  std::vector<const LayoutRule*> found(targets.size(), nullptr);
  std::vector<bool> used(map.size(), false);
  // Two rules that meet usually meet on many paths; each set is reported once, by its first path.
  std::map<std::vector<size_t>, std::vector<size_t>> ambiguous;
  for (size_t i = 0; i < targets.size(); ++i) {
    std::vector<size_t> hits;
    try {
      hits = map.candidates(targets[i].path, model_name);
    } catch (const ConfigError& error) {  // a match limit: every later path would hit it again
      diagnostics.append(error.diagnostics());
      return found;
    }
    for (const size_t hit : hits) {
      used[hit] = true;
    }
    if (hits.size() == 1) {
      found[i] = &map.rules()[hits[0]];
    } else if (hits.size() > 1) {
      ambiguous[hits].push_back(i);
    }
  }
  for (const auto& [hits, where] : ambiguous) {
    Diagnostic& problem = map.add_ambiguity(targets[where[0]].path, hits, diagnostics);
    if (where.size() > 1) {
      problem.note(fmt::format("they meet on {} more path{}, such as `{}`", where.size() - 1,
                               where.size() == 2 ? "" : "s", targets[where[1]].path));
    }
  }
  UnusedRules unused(map, targets, found, layer_paths, model_name, diagnostics);
  for (size_t rule = 0; rule < map.size(); ++rule) {
    if (!used[rule] && map.unmatched() != Unmatched::kOff) {
      unused.report(rule);
    }
  }
  return found;
}

}  // namespace meshtrain
