// Meshes, ZeRO levels and layouts of a config, ranked by the step time that the plan of each
// predicts. Needs no device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "plan/hardware.h"

namespace meshtrain {

// What the lowered program of a config takes on the hardware.
struct PlanScore {
  bool fits = false;
  double seconds = 0;      // of a step
  int64_t memory = 0;      // bytes of a device
  int64_t bytes_sent = 0;  // by a device in a step
  std::string problem;     // why there is no such plan; else empty

  // True when this one fits and `other` does not, or when both fit and this one is faster, or when
  // none fits and this one needs less memory.
  bool is_better_than(const PlanScore& other) const;
};

struct RankedPlan {
  std::vector<int64_t> shape;
  int64_t zero = 0;
  std::string remat;  // RematChoice::name
  PlanScore score;
};

// Of a search: how many meshes are done, and how many there are.
using BeforeMesh = std::function<void(size_t done, size_t all)>;

struct PlanRanking {
  std::vector<std::string> axes;
  std::string devices;            // "8 x H100 (on paper)"
  std::vector<RankedPlan> plans;  // best first; those without a plan last
};

// Every mesh of the config's axes over its devices, each with ZeRO 0 to 3 where the batch is split,
// and with each way to compute forward values again, with the layout rules of the config. The rules
// of a preset are those for each mesh. Throws ConfigError E113 for GPUs of this machine, about
// which nothing is known, and E210 when nothing says how many devices there are. `before_mesh`,
// where given, is called before each mesh.
PlanRanking rank_meshes(const LoadOptions& options, int64_t hosts,
                        const BeforeMesh& before_mesh = nullptr);
std::string ranking_text(const PlanRanking& ranking);
std::string ranking_json(const PlanRanking& ranking);

// A rule of a suggested layout map.
struct SuggestedRule {
  std::string key, layout;   // "d1/kernel", "[null, model]"
  double seconds_saved = 0;  // of a step, beside the same layout without this rule
  int64_t bytes_saved = 0;   // of a device's memory
};

struct SuggestedLayout {
  std::vector<std::string> axes;
  std::vector<int64_t> shape;
  int64_t zero = 0;
  std::vector<SuggestedRule> rules;
  PlanScore score;

  // So many devices compute the same: they are no faster than one of them.
  int64_t copies() const { return rules.empty() ? shape.back() : 1; }
};

// Layouts for the config's devices, best first: for each mesh of a batch axis and a model axis (or
// for `shape` alone) the rules that make a step fastest, found one weight after another, from no
// rules and from those of the preset `megatron`. Weights whose paths differ in numbers only share a
// rule. A model that repeats equal layers is searched with few of them, from which time and memory
// of all are extrapolated; the scores of the results are those of the whole model. Layouts where
// all devices compute the same come last, as do those of virtual devices that compute the same on
// shared cores. Throws as rank_meshes().
std::vector<SuggestedLayout> suggest_layouts(const LoadOptions& options,
                                             const std::optional<std::vector<int64_t>>& shape,
                                             int64_t hosts,
                                             const BeforeMesh& before_mesh = nullptr);
// A `distribution` section to paste into the config. `devices`: as the config has them.
std::string suggestion_yaml(const SuggestedLayout& layout, const std::string& devices);
std::string suggestions_text(const std::vector<SuggestedLayout>& layouts,
                             const std::string& devices);
std::string suggestions_json(const std::vector<SuggestedLayout>& layouts,
                             const std::string& devices);

}  // namespace meshtrain
