#include "engine/sample_weights.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/scalars.h"
#include "config/tensor_expression.h"
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

// Whether the numbers of the last axis add up to 1, as those of one-hot rows do; of the first
// samples.
bool are_one_hot(const Rows& labels) {
  constexpr int64_t kLookedAt = 16;
  const HostTensor first = labels.read_range(0, std::min(kLookedAt, labels.size()));
  const int64_t width = first.shape().back();
  for (int64_t row = 0; row < first.size() / width; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      sum += first.at(row * width + i);
    }
    if (std::abs(sum - 1) > 1e-3) {
      return false;
    }
  }
  return true;
}

// What labels are, by their loss, which may be null.
enum class Labels : uint8_t { kIds, kOneHot, kYesNo };

Labels labels_of(const ConfigObject* loss, const Rows& labels) {
  const int64_t width = labels.shape().size() > 1 ? labels.shape().back() : 1;
  if (width == 1) {
    return Labels::kIds;
  }
  if (loss == nullptr) {
    return Labels::kOneHot;
  }
  if (loss->class_name == "crossentropy" || loss->class_name == kLambda) {  // says neither
    return are_one_hot(labels) ? Labels::kOneHot : Labels::kIds;
  }
  return loss_takes_class_ids(*loss)                        ? Labels::kIds
         : is_classification(*loss) && !tells_one_of(*loss) ? Labels::kYesNo
                                                            : Labels::kOneHot;
}

// The loss of the target that only_target() names, or null.
const ConfigObject* loss_of_target(const Config& config, size_t target) {
  for (const OutputObject& loss : config.compile.loss) {
    const auto& outputs = config.model.outputs;
    if (loss.output.empty() || (target < outputs.size() && loss.output == outputs[target].first)) {
      return &loss.object;
    }
  }
  return nullptr;
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

// Weights of labels, made when they are read: those of masks would take four bytes a pixel.
class WeightRows final : public Rows {
 public:
  // `width`: numbers of a one-hot row, 1 of class ids. Without labels all weights are 1.
  WeightRows(RowsPtr labels, int64_t width, ClassWeights weights, DType dtype, Shape shape)
      : labels_(std::move(labels)),
        width_(width),
        weights_(std::move(weights)),
        dtype_(dtype),
        shape_(std::move(shape)) {}

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return labels_ ? labels_->cost() : Cost::kMemory; }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    Shape shape = shape_;
    shape[0] = std::ssize(order);
    HostTensor out(dtype_, shape), labels;
    if (labels_) {
      Shape of_labels = labels_->shape();
      of_labels[0] = std::ssize(order);
      labels = HostTensor(labels_->dtype(), of_labels);
      labels_->read(order, labels.bytes());
    }
    for (int64_t i = 0; i < out.size(); ++i) {
      out.set(i, labels_ ? weight_of(labels, i) : 1.0);
    }
    std::copy_n(out.bytes(), out.num_bytes(), to);
  }

 private:
  double weight_of(const HostTensor& labels, int64_t i) const {
    const int64_t label =
        width_ == 1 ? std::llround(labels.at(i)) : class_of_row(labels, i, width_);
    const auto found = std::find_if(weights_.begin(), weights_.end(),
                                    [&](const auto& entry) { return entry.first == label; });
    return found == weights_.end() ? 1.0 : found->second.value;
  }

  RowsPtr labels_;
  int64_t width_;
  ClassWeights weights_;
  DType dtype_;
  Shape shape_;
};

// In memory, but for weights of pixels.
RowsPtr weight_rows(RowsPtr labels, int64_t width, ClassWeights weights, DType dtype,
                    const Shape& shape) {
  auto rows =
      std::make_shared<WeightRows>(std::move(labels), width, std::move(weights), dtype, shape);
  return shape.size() > 2 ? std::move(rows) : make_rows(rows->read_range(0, shape[0]));
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

std::optional<size_t> only_target(const Config& config, const Dataset& dataset) {
  if (dataset.targets.size() == 1) {
    return 0;
  }
  const std::vector<OutputObject>& losses = config.compile.loss;
  for (size_t o = 0; losses.size() == 1 && o < config.model.outputs.size(); ++o) {
    if (losses[0].output == config.model.outputs[o].first && o < dataset.targets.size()) {
      return o;
    }
  }
  return std::nullopt;
}

void apply_class_weight(const Config& config, bool knows_classes, Dataset& dataset,
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
  const std::optional<size_t> target = only_target(config, dataset);
  if (!target) {
    return refuse(fmt::format("have {} targets, and more than one output has a loss",
                              dataset.targets.size()));
  }
  const RowsPtr& labels = dataset.targets[*target].rows;
  Shape shape = labels->shape();
  const Labels kind = labels_of(loss_of_target(config, *target), *labels);
  if (kind == Labels::kYesNo) {
    return refuse(fmt::format("have {} yes or no labels a sample", shape.back()));
  }
  const int64_t width = kind == Labels::kOneHot ? shape.back() : 1;
  if (shape.size() > 1 && (kind == Labels::kOneHot || shape.back() == 1)) {
    shape.pop_back();
  }
  ClassWeights weights =
      class_weights(fit, dataset.class_names, knows_classes ? &diagnostics : nullptr);
  const DType dtype = config.data.is_for_float64 ? DType::kFloat64 : DType::kFloat32;
  dataset.sample_weight = weight_rows(labels, width, std::move(weights), dtype, shape);
}

void match_sample_weight(const Dataset& like, Dataset& dataset) {
  if (!like.sample_weight || dataset.sample_weight) {
    return;
  }
  Shape shape = like.sample_weight->shape();
  shape[0] = dataset.num_samples;
  dataset.sample_weight = weight_rows(nullptr, 1, {}, like.sample_weight->dtype(), shape);
}

}  // namespace meshtrain
