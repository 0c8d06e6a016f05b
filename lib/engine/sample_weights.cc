#include "engine/sample_weights.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/scalars.h"
#include "nn/compile.h"

namespace meshtrain {
namespace {

std::optional<int64_t> class_number(const std::string& key, const std::vector<std::string>& names) {
  const auto named = std::find(names.begin(), names.end(), key);
  if (named != names.end()) {
    return named - names.begin();
  }
  const bool has_numbers = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return try_integer(name).has_value();
  });
  const auto number = try_integer(key);
  return number && *number >= 0 && !has_numbers ? number : std::nullopt;
}

// "0 high, 1 low, ..."
std::string numbered_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    parts.push_back(fmt::format("{} {}", i, names[i]));
  }
  return join(parts, ", ") + (names.size() > kShown ? ", ..." : "");
}

// What the labels of the only target are, by its loss.
enum class Labels : uint8_t { kIds, kOneHot, kYesNo };

Labels labels_of(const Config& config, const HostTensor& labels) {
  const int64_t rows = labels.shape()[0], width = labels.size() / std::max<int64_t>(rows, 1);
  for (const OutputObject& loss : config.compile.loss) {
    if (loss_takes_class_ids(loss.object)) {
      return Labels::kIds;
    }
    if (width > 1 && is_classification(loss.object) && !tells_one_of(loss.object) &&
        loss.object.class_name != "crossentropy") {
      return Labels::kYesNo;
    }
  }
  return width == 1 ? Labels::kIds : Labels::kOneHot;
}

// The class of a one-hot row, as Keras' class_weight_to_sample_weights finds it.
int64_t class_of_row(const HostTensor& labels, int64_t row, int64_t width) {
  int64_t best = 0;
  for (int64_t i = 1; i < width; ++i) {
    if (labels.at(row * width + i) > labels.at(row * width + best)) {
      best = i;
    }
  }
  return best;
}

}  // namespace

ClassWeights class_weights(const FitConfig& fit, const std::vector<std::string>& names,
                           Diagnostics* problems) {
  ClassWeights weights;
  for (const auto& [key, weight] : fit.class_weight) {
    if (const auto number = class_number(key, names)) {
      weights.emplace_back(*number, weight);
    } else if (problems != nullptr) {
      Diagnostic& problem =
          problems->error("E112", weight.loc,
                          fmt::format("`{}` of `class_weight` is no class{}", key,
                                      names.empty() ? ": 0, 1, ..." : " of the training data"));
      if (!names.empty()) {
        problem.help("classes: " + numbered_names(names));
      }
    }
  }
  return weights;
}

void apply_class_weight(const Config& config, bool is_whole, Dataset& dataset,
                        Diagnostics& diagnostics) {
  const FitConfig& fit = config.fit;
  if (fit.class_weight.empty()) {
    return;
  }
  const auto refuse = [&](const std::string& problem) {
    diagnostics
        .error("E317", fit.class_weight[0].second.loc,
               "fit.class_weight cannot be used: the data " + problem)
        .help("remove fit.class_weight, or give the weight of each sample in the data");
  };
  if (dataset.sample_weight) {
    return refuse("have sample weights of their own");
  }
  if (dataset.targets.size() != 1) {
    return refuse(fmt::format("have {} targets, not one", dataset.targets.size()));
  }
  const HostTensor labels = dataset.targets[0].rows->read_range(0, dataset.num_samples);
  const Labels kind = labels_of(config, labels);
  Shape shape = labels.shape();
  if (shape.size() > 2) {
    return refuse(
        fmt::format("have labels of shape {}, not (samples,), (samples, steps) or "
                    "(samples, classes)",
                    shape_string(shape)));
  }
  if (kind == Labels::kYesNo) {
    return refuse(fmt::format("have {} yes or no labels a sample", shape[1]));
  }
  const int64_t width = kind == Labels::kOneHot ? shape[1] : 1;
  if (shape.size() == 2 && (kind == Labels::kOneHot || shape[1] == 1)) {
    shape.pop_back();
  }
  const ClassWeights weights =
      class_weights(fit, dataset.class_names, is_whole ? &diagnostics : nullptr);
  HostTensor of_labels(config.data.is_for_float64 ? DType::kFloat64 : DType::kFloat32, shape);
  for (int64_t i = 0; i < of_labels.size(); ++i) {
    const int64_t label = width == 1 ? std::llround(labels.at(i)) : class_of_row(labels, i, width);
    const auto found = std::find_if(weights.begin(), weights.end(),
                                    [&](const auto& entry) { return entry.first == label; });
    of_labels.set(i, found == weights.end() ? 1.0 : found->second.value);
  }
  dataset.sample_weight = make_rows(std::move(of_labels));
}

void match_sample_weight(const Dataset& like, Dataset& dataset) {
  if (!like.sample_weight || dataset.sample_weight) {
    return;
  }
  Shape shape = like.sample_weight->shape();
  shape[0] = dataset.num_samples;
  HostTensor weights(like.sample_weight->dtype(), shape);
  for (int64_t i = 0; i < weights.size(); ++i) {
    weights.set(i, 1.0);
  }
  dataset.sample_weight = make_rows(std::move(weights));
}

}  // namespace meshtrain
