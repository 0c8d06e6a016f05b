// The search for layout rules: for each mesh, one group of weights after another, each layout tried
// in the whole plan.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "engine/plan_search.h"
#include "engine/rank_plans.h"
#include "engine/setup.h"

namespace meshtrain {
namespace {

constexpr int kPasses = 2;
constexpr int64_t kSmallest = 1024;  // elements: a smaller weight is not worth a rule

// Weights that share a rule: one, or those whose paths differ in numbers only.
struct WeightGroup {
  std::string key;       // "d1/kernel", or "block_\d+/up/kernel"
  std::string bias_key;  // of the vectors along the last dimension; "": none
  Shape shape;
};

// "block_3/up" becomes "block_\d+/up".
std::string pattern_of(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(path[i])) == 0) {
      out += path[i];
    } else if (i == 0 || std::isdigit(static_cast<unsigned char>(path[i - 1])) == 0) {
      out += "\\d+";
    }
  }
  return out;
}

std::string layer_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::vector<WeightGroup> groups_of(const Setup& setup) {
  std::map<std::string, std::vector<const Variable*>> by_pattern;
  std::vector<std::string> order;
  const size_t num_weights = setup.model().weights().size();
  for (size_t w = 0; w < num_weights; ++w) {
    const Variable& variable = setup.variables()[w];
    if (variable.shape.size() >= 2 && num_elements(variable.shape) >= kSmallest) {
      std::vector<const Variable*>& group = by_pattern[pattern_of(variable.path)];
      if (group.empty()) {
        order.push_back(pattern_of(variable.path));
      }
      group.push_back(&variable);
    }
  }
  std::vector<WeightGroup> out;
  const auto add = [&](const std::string& key, const Variable& variable) {
    WeightGroup& group = out.emplace_back(WeightGroup{key, "", variable.shape});
    for (size_t w = 0; w < num_weights; ++w) {
      const Variable& other = setup.variables()[w];
      if (layer_of(other.path) == layer_of(variable.path) && other.shape.size() == 1 &&
          other.shape[0] == variable.shape.back() && other.path.ends_with("/bias")) {
        group.bias_key = layer_of(key) + "/bias";
      }
    }
  };
  for (const std::string& pattern : order) {
    const std::vector<const Variable*>& group = by_pattern[pattern];
    const bool is_alike =
        group.size() > 1 && std::all_of(group.begin(), group.end(), [&](const Variable* variable) {
          return variable->shape == group[0]->shape;
        });
    if (is_alike) {
      add(pattern, *group[0]);
      continue;
    }
    for (const Variable* variable : group) {
      add(variable->path, *variable);
    }
  }
  return out;
}

LayoutRule rule_of(const std::string& key, size_t rank, size_t dim, const std::string& axis) {
  LayoutRule rule{.key = key};
  rule.layout.dims.resize(rank);
  rule.layout.dims[dim] = {axis};
  return rule;
}

// The rules that split one dimension of a group; none when it stays whole.
std::vector<LayoutRule> rules_for(const WeightGroup& group, std::optional<size_t> dim,
                                  const std::string& axis) {
  std::vector<LayoutRule> out;
  if (dim) {
    out.push_back(rule_of(group.key, group.shape.size(), *dim, axis));
    if (!group.bias_key.empty() && *dim + 1 == group.shape.size()) {
      out.push_back(rule_of(group.bias_key, 1, 0, axis));
    }
  }
  return out;
}

class LayoutSearch {
 public:
  LayoutSearch(const PlanSearch& search, Config config, std::vector<WeightGroup> groups)
      : search_(search), config_(std::move(config)), groups_(std::move(groups)) {
    choices_.resize(groups_.size());
  }

  SuggestedLayout run() {
    const MeshConfig& mesh = config_.distribution.mesh;
    SuggestedLayout out;
    out.axes = mesh.axis_names.value;
    out.shape = mesh.shape.value;
    best_ = score_of(choices_);
    if (mesh.shape->back() > 1) {
      search_rules();
    }
    choose_zero();
    out.zero = config_.distribution.zero.value;
    out.score = best_;
    for (size_t g = 0; g < groups_.size(); ++g) {
      add_rules(g, out.rules);
    }
    return out;
  }

 private:
  using Choices = std::vector<std::optional<size_t>>;  // the split dimension of each group

  PlanScore score_of(const Choices& choices) const {
    Config changed = config_;
    changed.distribution.layout_map.clear();
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (LayoutRule& rule : rules_for(groups_[g], choices[g], axis())) {
        changed.distribution.layout_map.push_back(std::move(rule));
      }
    }
    const bool has_rules = !changed.distribution.layout_map.empty();
    changed.distribution.type.value =
        has_rules ? DistributionType::kModelParallel : DistributionType::kDataParallel;
    return search_.score(std::move(changed));
  }

  const std::string& axis() const { return config_.distribution.mesh.axis_names->back(); }

  void search_rules() {
    for (int pass = 0; pass < kPasses; ++pass) {
      bool is_changed = false;
      for (size_t g = 0; g < groups_.size(); ++g) {
        is_changed = improve(g) || is_changed;
      }
      if (!is_changed) {
        break;
      }
    }
  }

  // Tries the last two dimensions of a group, and none.
  bool improve(size_t g) {
    const std::optional<size_t> before = choices_[g];
    const size_t rank = groups_[g].shape.size();
    for (const std::optional<size_t> dim :
         {std::optional<size_t>(), std::optional(rank - 1), std::optional(rank - 2)}) {
      const int64_t parts = config_.distribution.mesh.shape->back();
      if (dim == choices_[g] || (dim && groups_[g].shape[*dim] % parts != 0)) {
        continue;
      }
      Choices changed = choices_;
      changed[g] = dim;
      const PlanScore score = score_of(changed);
      if (score.is_better_than(best_)) {
        best_ = score;
        choices_ = std::move(changed);
      }
    }
    return choices_[g] != before;
  }

  // As far as a device's memory needs it, and where the estimate is faster by more than it can be
  // wrong.
  void choose_zero() {
    constexpr double kFaster = 0.95;
    if (config_.distribution.mesh.shape->front() <= 1 || !best_.problem.empty()) {
      return;
    }
    int64_t chosen = 0;
    for (int64_t zero = 1; zero <= 3; ++zero) {
      config_.distribution.zero.value = zero;
      const PlanScore score = score_of(choices_);
      const bool is_needed = !best_.fits && score.problem.empty();
      const bool is_faster =
          score.fits && score.problem.empty() && score.seconds < kFaster * best_.seconds;
      if (is_needed || is_faster) {
        best_ = score;
        chosen = zero;
      }
    }
    config_.distribution.zero.value = chosen;
  }

  void add_rules(size_t g, std::vector<SuggestedRule>& out) const {
    const std::vector<LayoutRule> rules = rules_for(groups_[g], choices_[g], axis());
    if (rules.empty()) {
      return;
    }
    Choices without = choices_;
    without[g].reset();
    const PlanScore score = score_of(without);
    for (const LayoutRule& rule : rules) {
      SuggestedRule& added = out.emplace_back(SuggestedRule{rule.key, rule.layout.to_string()});
      if (&rule == &rules[0] && score.problem.empty()) {
        added.seconds_saved = score.seconds - best_.seconds;
        added.bytes_saved = score.memory - best_.memory;
      }
    }
  }

  const PlanSearch& search_;
  Config config_;
  const std::vector<WeightGroup> groups_;
  Choices choices_;
  PlanScore best_;
};

}  // namespace

std::vector<SuggestedLayout> suggest_layouts(const Config& config,
                                             const std::optional<std::vector<int64_t>>& shape,
                                             int64_t hosts) {
  const PlanSearch search(config, hosts);
  Config base = config;
  DistributionConfig& distribution = base.distribution;
  distribution.layout_map.clear();
  distribution.zero.value = 0;
  distribution.zero_axes.value.clear();
  std::vector<std::string> names = distribution.mesh.axis_names.value;
  if (names.size() != 2) {
    names = {"data", "model"};
  }
  distribution.mesh.axis_names.value = names;
  distribution.batch_dim_name.value = {names[0]};
  std::vector<WeightGroup> groups;
  {
    Config alone = base;
    alone.distribution.type.value = DistributionType::kDataParallel;
    alone.distribution.mesh.shape.value = {1, 1};
    alone.distribution.mesh.devices.value = "cpu:1";
    groups = groups_of(Setup(alone, nullptr));
  }
  std::vector<SuggestedLayout> out;
  for (const std::vector<int64_t>& sizes : shape ? std::vector<std::vector<int64_t>>{*shape}
                                                 : factorizations(search.num_devices(), 2)) {
    Config on_mesh = base;
    on_mesh.distribution.mesh.shape.value = sizes;
    out.push_back(LayoutSearch(search, std::move(on_mesh), groups).run());
  }
  std::stable_sort(out.begin(), out.end(), [](const SuggestedLayout& a, const SuggestedLayout& b) {
    return a.score.is_better_than(b.score);
  });
  return out;
}

}  // namespace meshtrain
