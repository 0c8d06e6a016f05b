// The search for layout rules: for each mesh, one group of weights after another, each layout tried
// in the whole plan, of a model with fewer of its equal layers.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "engine/rank_plans.h"
#include "engine/searched_model.h"

namespace meshtrain {
namespace {

constexpr int kPasses = 2;

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

// Best first; copies last, whatever the estimate says of their work: where all devices compute the
// same, and on `shared_cores` where some do. Where the fastest are as good as equal, the one of
// least memory leads, and of these the one with more parts of the batch.
void rank(std::vector<SuggestedLayout>& layouts, bool shared_cores) {
  constexpr double kEqual = 1.02;
  const auto copies = [&](const SuggestedLayout& layout) {
    return layout.score.fits && (shared_cores || layout.shape.front() == 1) ? layout.copies() : 1;
  };
  std::stable_sort(layouts.begin(), layouts.end(),
                   [&](const SuggestedLayout& a, const SuggestedLayout& b) {
                     const bool both_fit = a.score.fits && b.score.fits;
                     return both_fit && copies(a) != copies(b) ? copies(a) < copies(b)
                                                               : a.score.is_better_than(b.score);
                   });
  const SuggestedLayout& first = layouts.front();
  if (!first.score.fits) {
    return;
  }
  const auto equal_end =
      std::find_if(layouts.begin() + 1, layouts.end(), [&](const SuggestedLayout& layout) {
        return !layout.score.fits || copies(layout) != copies(first) ||
               layout.score.seconds > kEqual * first.score.seconds;
      });
  const auto lead = std::min_element(layouts.begin(), equal_end,
                                     [](const SuggestedLayout& a, const SuggestedLayout& b) {
                                       return std::pair(a.score.memory, -a.shape.front()) <
                                              std::pair(b.score.memory, -b.shape.front());
                                     });
  std::rotate(layouts.begin(), lead, lead + 1);
}

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
  rank(out, search.has_shared_cores());
  return out;
}

}  // namespace meshtrain
