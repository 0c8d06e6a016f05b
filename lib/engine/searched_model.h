// A model whose layout rules are searched (suggest_layouts.cc): its groups of weights, and the
// scores of plans, which models of many equal layers have from two with fewer of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "engine/plan_search.h"

namespace meshtrain {

// Weights that share a rule: one, or those whose paths differ in numbers only.
struct WeightGroup {
  std::string key;       // "d1/kernel", or "block_\d+/up/kernel"
  std::string bias_key;  // of the vectors along the last dimension; "": none
  Shape shape;
  std::string path;  // of its first weight

  bool operator==(const WeightGroup&) const = default;
};

using Choices = std::vector<std::optional<size_t>>;  // the split dimension of each group

class SearchedModel {
 public:
  // `options` gave the config `whole`, and must outlive this.
  SearchedModel(const LoadOptions& options, Config whole);

  const std::vector<WeightGroup>& groups() const { return groups_; }

  PlanScore exact(const PlanSearch& search, const DistributionConfig& distribution) const;
  // Of the models with fewer layers, extrapolated by the number of parameters; exact() where there
  // are none.
  PlanScore estimated(const PlanSearch& search, const DistributionConfig& distribution) const;

  // The dimensions that a preset splits on a mesh; nothing where it does not know the model.
  std::optional<Choices> choices_of_preset(const char* preset, const MeshConfig& mesh) const;

 private:
  void add_shallow(int64_t params);

  const LoadOptions& options_;
  Config whole_;
  std::vector<Config> shallow_;
  double steps_ = 0;
  std::vector<WeightGroup> groups_;
};

}  // namespace meshtrain
