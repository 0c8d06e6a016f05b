// The search for layout rules: for each mesh, one group of weights after another, each layout tried
// in the whole plan, of a model with fewer of its equal layers.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "config/load.h"
#include "engine/plan_search.h"
#include "engine/rank_plans.h"
#include "engine/setup.h"
#include "mesh/layout_map.h"

namespace meshtrain {
namespace {

constexpr int kPasses = 2;
constexpr int64_t kSmallest = 1024;  // elements: a smaller weight is not worth a rule

// Weights that share a rule: one, or those whose paths differ in numbers only.
struct WeightGroup {
  std::string key;       // "d1/kernel", or "block_\d+/up/kernel"
  std::string bias_key;  // of the vectors along the last dimension; "": none
  Shape shape;
  std::string path;  // of its first weight

  bool operator==(const WeightGroup&) const = default;
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
    WeightGroup& group = out.emplace_back(WeightGroup{key, "", variable.shape, variable.path});
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

using Choices = std::vector<std::optional<size_t>>;  // the split dimension of each group

// A model, and the same with fewer of its equal layers, from which its scores are extrapolated.
class SearchedModel {
 public:
  SearchedModel(const LoadOptions& options, Config whole)
      : options_(options), whole_(std::move(whole)) {
    int64_t params = 0;
    groups_ = read_groups(whole_, params);
    add_shallow(params);
  }

  const std::vector<WeightGroup>& groups() const { return groups_; }

  PlanScore exact(const PlanSearch& search, const DistributionConfig& distribution) const {
    return score(search, whole_, distribution);
  }
  PlanScore estimated(const PlanSearch& search, const DistributionConfig& distribution) const {
    if (shallow_.empty()) {
      return exact(search, distribution);
    }
    PlanScore out = score(search, shallow_[0], distribution);
    const PlanScore more = score(search, shallow_[1], distribution);
    if (!out.problem.empty() || !more.problem.empty()) {
      return out.problem.empty() ? more : out;
    }
    const auto extend = [&](auto& value, auto next) {
      value +=
          static_cast<std::decay_t<decltype(value)>>(steps_ * static_cast<double>(next - value));
    };
    extend(out.seconds, more.seconds);
    extend(out.memory, more.memory);
    extend(out.bytes_sent, more.bytes_sent);
    out.fits = search.fits(out.memory);
    return out;
  }

  // The dimensions that a preset splits on a mesh; nothing where it does not know the model.
  std::optional<Choices> choices_of_preset(const char* preset, const MeshConfig& mesh) const {
    LoadOptions options = on_mesh(options_, mesh.shape.value, mesh.axis_names.value);
    options.most_times = shallow_.empty() ? 0 : kFewTimes;
    options.overrides.push_back(fmt::format("distribution.layout_map={}", preset));
    try {
      const Config config = load_config(options);
      Choices out;
      for (const WeightGroup& group : groups_) {
        out.push_back(split_dim(group, config.distribution.layout_map));
      }
      return out;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

 private:
  static constexpr int64_t kFewTimes = 2, kMoreTimes = 4;  // of a Repeat
  static constexpr double kLeastSteps = 3;                 // that are worth it

  static PlanScore score(const PlanSearch& search, Config config,
                         const DistributionConfig& distribution) {
    config.distribution = distribution;
    return search.score(std::move(config));
  }

  static std::vector<WeightGroup> read_groups(Config config, int64_t& params) {
    DistributionConfig& distribution = config.distribution;
    distribution.layout_map.clear();
    distribution.type.value = DistributionType::kDataParallel;
    distribution.mesh.shape.value = {1, 1};
    distribution.mesh.devices.value = "cpu:1";
    const Setup setup(config, nullptr);
    params = setup.model().num_params();
    return groups_of(setup);
  }

  // The number of parameters says how many steps from few to more layers lead to all of them.
  void add_shallow(int64_t params) {
    std::vector<Config> models;
    int64_t counts[2] = {};
    for (const int64_t times : {kFewTimes, kMoreTimes}) {
      LoadOptions options = options_;
      options.most_times = times;
      try {
        Config config = load_config(options);
        config.distribution = whole_.distribution;
        if (read_groups(config, counts[models.size()]) != groups_) {
          return;  // repetitions that are not alike
        }
        models.push_back(std::move(config));
      } catch (const ConfigError&) {
        return;  // the config names a repetition that is left out
      }
    }
    const auto more = static_cast<double>(counts[1] - counts[0]);
    steps_ = more > 0 ? static_cast<double>(params - counts[0]) / more : 0;
    if (steps_ >= kLeastSteps) {
      shallow_ = std::move(models);
    }
  }

  static std::optional<size_t> split_dim(const WeightGroup& group,
                                         const std::vector<LayoutRule>& rules) {
    for (const LayoutRule& rule : rules) {
      const auto& dims = rule.layout.dims;
      const auto split =
          std::find_if(dims.begin(), dims.end(), [](const auto& axes) { return !axes.empty(); });
      if (split != dims.end() && Pattern(rule.key).full_match(group.path)) {
        return static_cast<size_t>(split - dims.begin());
      }
    }
    return std::nullopt;
  }

  const LoadOptions& options_;
  Config whole_;
  std::vector<Config> shallow_;
  double steps_ = 0;
  std::vector<WeightGroup> groups_;
};

class LayoutSearch {
 public:
  LayoutSearch(const PlanSearch& search, const SearchedModel& model, DistributionConfig on)
      : search_(search), model_(model), on_(std::move(on)), groups_(model.groups()) {}

  SuggestedLayout run() {
    SuggestedLayout out;
    out.axes = on_.mesh.axis_names.value;
    out.shape = on_.mesh.shape.value;
    if (parts() > 1) {
      preset_ = model_.choices_of_preset("megatron", on_.mesh);
    }
    search_level(0);
    if (on_.zero.value > 0) {  // the rules may be those of least memory, not of least time
      const auto [choices, best, zero] = std::tuple(choices_, best_, on_.zero.value);
      search_level(3);
      if (!best_.is_better_than(best)) {
        choices_ = choices;
        best_ = best;
        on_.zero.value = zero;
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      add_rules(g, out.rules);
    }
    out.score = whole_score();
    out.zero = on_.zero.value;
    return out;
  }

 private:
  DistributionConfig with_rules(const Choices& choices) const {
    DistributionConfig out = on_;
    out.layout_map.clear();
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (LayoutRule& rule : rules_for(groups_[g], choices[g], axis())) {
        out.layout_map.push_back(std::move(rule));
      }
    }
    out.type.value =
        out.layout_map.empty() ? DistributionType::kDataParallel : DistributionType::kModelParallel;
    return out;
  }
  PlanScore score_of(const Choices& choices) const {
    const auto [found, is_new] = scores_.try_emplace({on_.zero.value, choices});
    if (is_new) {
      found->second = model_.estimated(search_, with_rules(choices));
    }
    return found->second;
  }

  PlanScore score_at(int64_t zero) {
    on_.zero.value = zero;
    return score_of(choices_);
  }

  bool splits_batch() const { return on_.mesh.shape->front() > 1; }
  const std::string& axis() const { return on_.mesh.axis_names->back(); }
  int64_t parts() const { return on_.mesh.shape->back(); }

  // Searches rules with this ZeRO level, and then the level for them.
  void search_level(int64_t zero) {
    on_.zero.value = zero;
    choices_.clear();
    search_from(Choices(groups_.size()));
    if (preset_) {
      search_from(*preset_);
    }
    choose_zero();
  }

  // Improves `choices`, and keeps what comes of it if it is better than what is known.
  void search_from(Choices choices) {
    PlanScore score = score_of(choices);
    for (int pass = 0; pass < kPasses && parts() > 1; ++pass) {
      const Choices before = choices;
      for (size_t g = 0; g < groups_.size(); ++g) {
        improve(g, choices, score);
      }
      if (choices == before) {
        break;
      }
    }
    if (choices_.empty() || score.is_better_than(best_)) {
      choices_ = std::move(choices);
      best_ = score;
    }
  }

  // Tries the last two dimensions of a group, and none.
  void improve(size_t g, Choices& choices, PlanScore& best) const {
    const size_t rank = groups_[g].shape.size();
    for (const std::optional<size_t> dim :
         {std::optional<size_t>(), std::optional(rank - 1), std::optional(rank - 2)}) {
      if (dim == choices[g] || (dim && groups_[g].shape[*dim] % parts() != 0)) {
        continue;
      }
      Choices changed = choices;
      changed[g] = dim;
      const PlanScore score = score_of(changed);
      if (score.is_better_than(best)) {
        best = score;
        choices = std::move(changed);
      }
    }
  }

  // As far as a device's memory needs it, and where the estimate is faster by more than it can be
  // wrong.
  void choose_zero() {
    constexpr double kFaster = 0.95;
    best_ = score_at(0);
    if (!splits_batch() || !best_.problem.empty()) {
      return;
    }
    int64_t chosen = 0;
    for (int64_t zero = 1; zero <= 3; ++zero) {
      const PlanScore score = score_at(zero);
      const bool is_needed = !best_.fits && score.problem.empty();
      const bool is_faster =
          score.fits && score.problem.empty() && score.seconds < kFaster * best_.seconds;
      if (is_needed || is_faster) {
        best_ = score;
        chosen = zero;
      }
    }
    on_.zero.value = chosen;
  }

  // Where all layers need more memory than was estimated, ZeRO may still make them fit.
  PlanScore whole_score() {
    PlanScore out = model_.exact(search_, with_rules(choices_));
    const int64_t chosen = on_.zero.value;
    while (out.problem.empty() && !out.fits && best_.fits && on_.zero.value < 3 && splits_batch()) {
      on_.zero.value += 1;
      out = model_.exact(search_, with_rules(choices_));
    }
    if (!out.problem.empty() && on_.zero.value != chosen) {
      on_.zero.value = chosen;
      out = model_.exact(search_, with_rules(choices_));
    }
    return out;
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
  const SearchedModel& model_;
  DistributionConfig on_;
  const std::vector<WeightGroup>& groups_;
  std::optional<Choices> preset_;
  Choices choices_;
  PlanScore best_;
  mutable std::map<std::pair<int64_t, Choices>, PlanScore> scores_;  // by ZeRO level
};

}  // namespace

std::vector<SuggestedLayout> suggest_layouts(const LoadOptions& options,
                                             const std::optional<std::vector<int64_t>>& shape,
                                             int64_t hosts, const BeforeMesh& before_mesh) {
  Config base = load_config(options);
  const PlanSearch search(base, hosts);
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
  DistributionConfig on = distribution;
  const SearchedModel model(options, std::move(base));
  const auto shapes =
      shape ? std::vector<std::vector<int64_t>>{*shape} : factorizations(search.num_devices(), 2);
  std::vector<SuggestedLayout> out;
  for (size_t s = 0; s < shapes.size(); ++s) {
    if (before_mesh) {
      before_mesh(s, shapes.size());
    }
    on.mesh.shape.value = shapes[s];
    out.push_back(LayoutSearch(search, model, on).run());
  }
  std::stable_sort(out.begin(), out.end(), [](const SuggestedLayout& a, const SuggestedLayout& b) {
    return a.score.is_better_than(b.score);
  });
  return out;
}

}  // namespace meshtrain
