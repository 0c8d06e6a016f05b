#include "engine/sample_weights.h"

#include <algorithm>
#include <cmath>

namespace meshtrain {
namespace {

// The class of sample `sample`, as Keras' class_weight_to_sample_weights finds it.
int64_t class_of(const HostTensor& labels, int64_t sample) {
  const int64_t width = labels.shape().size() > 1 ? labels.shape()[1] : 1;
  if (width == 1) {
    return std::llround(labels.at(sample));
  }
  int64_t best = 0;
  for (int64_t i = 1; i < width; ++i) {
    if (labels.at(sample * width + i) > labels.at(sample * width + best)) {
      best = i;
    }
  }
  return best;
}

}  // namespace

void apply_class_weight(const FitConfig& fit, Dataset& dataset, Diagnostics& diagnostics) {
  if (fit.class_weight.empty()) {
    return;
  }
  std::string problem;
  if (dataset.sample_weight) {
    problem = "has sample weights of its own";
  } else if (dataset.targets.size() != 1) {
    problem = fmt::format("has {} targets, not one", dataset.targets.size());
  } else if (dataset.targets[0].rows->shape().size() > 2) {
    problem = fmt::format("has labels of shape {}, not (samples,) or (samples, classes)",
                          shape_string(dataset.targets[0].rows->shape()));
  }
  if (!problem.empty()) {
    diagnostics.error("E317", dataset.loc, "fit.class_weight cannot be used: the data " + problem)
        .help("remove fit.class_weight, or give the weight of each sample in the data");
    return;
  }
  const HostTensor labels = dataset.targets[0].rows->read_range(0, dataset.num_samples);
  HostTensor weights(DType::kFloat32, {dataset.num_samples});
  for (int64_t i = 0; i < dataset.num_samples; ++i) {
    const int64_t label = class_of(labels, i);
    const auto found = std::find_if(fit.class_weight.begin(), fit.class_weight.end(),
                                    [&](const auto& entry) { return entry.first == label; });
    weights.set(i, found == fit.class_weight.end() ? 1.0 : found->second.value);
  }
  dataset.sample_weight = make_rows(std::move(weights));
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
