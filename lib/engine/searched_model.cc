#include "engine/searched_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "engine/setup.h"
#include "mesh/layout_map.h"

namespace meshtrain {
namespace {

constexpr int64_t kSmallest = 1024;               // elements: a smaller weight is not worth a rule
constexpr int64_t kFewTimes = 2, kMoreTimes = 4;  // of a Repeat
constexpr double kLeastSteps = 3;                 // that are worth it

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

PlanScore score(const PlanSearch& search, Config config, const DistributionConfig& distribution) {
  config.distribution = distribution;
  return search.score(std::move(config));
}

std::vector<WeightGroup> read_groups(Config config, int64_t& params) {
  DistributionConfig& distribution = config.distribution;
  distribution.layout_map.clear();
  distribution.type.value = DistributionType::kDataParallel;
  distribution.mesh.shape.value = {1, 1};
  distribution.mesh.devices.value = "cpu:1";
  const Setup setup(config, nullptr);
  params = setup.model().num_params();
  return groups_of(setup);
}

std::optional<size_t> split_dim(const WeightGroup& group, const std::vector<LayoutRule>& rules) {
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

}  // namespace

SearchedModel::SearchedModel(const LoadOptions& options, Config whole)
    : options_(options), whole_(std::move(whole)) {
  int64_t params = 0;
  groups_ = read_groups(whole_, params);
  add_shallow(params);
}

PlanScore SearchedModel::exact(const PlanSearch& search,
                               const DistributionConfig& distribution) const {
  return score(search, whole_, distribution);
}
PlanScore SearchedModel::estimated(const PlanSearch& search,
                                   const DistributionConfig& distribution) const {
  if (shallow_.empty()) {
    return exact(search, distribution);
  }
  PlanScore out = score(search, shallow_[0], distribution);
  const PlanScore more = score(search, shallow_[1], distribution);
  if (!out.problem.empty() || !more.problem.empty()) {
    return out.problem.empty() ? more : out;
  }
  const auto extend = [&](auto& value, auto next) {
    value += static_cast<std::decay_t<decltype(value)>>(steps_ * static_cast<double>(next - value));
  };
  extend(out.seconds, more.seconds);
  extend(out.memory, more.memory);
  extend(out.bytes_sent, more.bytes_sent);
  out.fits = search.fits(out.memory);
  return out;
}

std::optional<Choices> SearchedModel::choices_of_preset(const char* preset,
                                                        const MeshConfig& mesh) const {
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

// The number of parameters says how many steps from few to more layers lead to all of them.
void SearchedModel::add_shallow(int64_t params) {
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

}  // namespace meshtrain
