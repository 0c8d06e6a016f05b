// What `evaluate --details` says of predictions beside their targets: confusion matrix, precision,
// recall, ROC and the worst samples of classes; residuals of numbers. Samples count alike: sample
// weights play no part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/class_outputs.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// A sample whose prediction is far from its target.
struct WorstSample {
  int64_t sample = 0;
  std::string file;       // "" where samples have none
  double target = 0;      // class, or number
  double prediction = 0;  // class, or number
  double measure = 0;     // probability of the predicted class, or |target - prediction|
};

struct ClassDetails {
  std::string name;
  int64_t support = 0;  // samples whose target it is
  // NaN where nothing was predicted, or nothing is to be found.
  double precision = 0, recall = 0, f1 = 0;
  double auc = 0;  // area under the ROC curve against all other classes; NaN without either
  std::vector<std::pair<double, double>> roc;  // false and true positive rates, from (0, 0) on
};

struct OutputDetails {
  std::string name;
  int64_t samples = 0;
  std::string none_because;  // why there are no details; else ""
  // Of classes:
  std::vector<ClassDetails> classes;
  std::vector<std::vector<int64_t>> confusion;  // [target][prediction]
  double accuracy = 0;
  int64_t without_class = 0;  // targets that are no class, such as an ignored one
  // Of numbers:
  std::vector<std::pair<double, double>> quantiles;  // share and residual target - prediction
  double mean_residual = 0, mean_absolute = 0;
  std::vector<WorstSample> worst;  // at most kWorstSamples, the worst first
};
inline constexpr size_t kWorstSamples = 10;
inline constexpr size_t kRocPoints = 200;  // a curve is thinned to so many

// `prediction` (samples, ...) of an output and its `target`: class numbers, one-hot rows, or
// numbers of the prediction's shape. `files`: of each sample; may be empty. Sources: Keras 3
// metrics AUC (one against all others); the area is that of the whole curve, ties counting half (T.
// Fawcett, "An introduction to ROC analysis", 2006).
OutputDetails output_details(const std::string& name, const HostTensor& prediction,
                             const HostTensor& target, const ClassOutput& classes,
                             const std::vector<std::string>& files);

// {"samples": .., "outputs": [..]}; NaN is null.
nlohmann::ordered_json details_json(const std::vector<OutputDetails>& outputs);
// For a terminal.
std::string details_text(const std::vector<OutputDetails>& outputs);

}  // namespace meshtrain
