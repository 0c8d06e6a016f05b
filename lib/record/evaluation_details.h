// What `evaluate --details` says of predictions beside their targets: confusion matrix, precision,
// recall, ROC and the worst samples of classes, also of those of pixels and steps; each of several
// yes/no labels; residuals of numbers. Samples count alike: sample weights play no part.
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
  double target = 0;      // class, or number; of one prediction a sample
  double prediction = 0;  // class, or number
  // Probability of the predicted class; |target - prediction|; or the wrong share of the sample's
  // predictions.
  double measure = 0;
};

struct ClassDetails {
  std::string name;
  int64_t support = 0;  // targets that it is
  // NaN where nothing was predicted, or nothing is to be found.
  double precision = 0, recall = 0, f1 = 0;
  double iou = 0;  // intersection over union, as of BinaryIoU
  double auc = 0;  // area under the ROC curve against all other classes; NaN without either
  std::vector<std::pair<double, double>> roc;  // false and true positive rates, from (0, 0) on
};

struct OutputDetails {
  std::string name;
  int64_t samples = 0;
  std::string none_because;  // why there are no details; else ""
  std::string unit;          // "pixels", "steps" or "labels": of several predictions a sample
  // Of classes, or of labels:
  std::vector<ClassDetails> classes;
  std::vector<std::vector<int64_t>> confusion;  // [target][prediction]; empty of labels
  double accuracy = 0;
  double mean_iou = 0;        // of the classes that are there or predicted; NaN of labels
  double exact = 0;           // of labels: share of the samples with all of them right; else NaN
  int64_t without_class = 0;  // targets that are no class, such as an ignored one
  // Of numbers:
  std::vector<std::pair<double, double>> quantiles;  // share and residual target - prediction
  double mean_residual = 0, mean_absolute = 0;
  std::vector<WorstSample> worst;  // at most kWorstSamples, the worst first
};
inline constexpr size_t kWorstSamples = 10;
inline constexpr size_t kRocPoints = 200;  // a curve is thinned to so many
inline constexpr int64_t kMostClasses = 4096;

// `prediction` (samples, ...) of an output and its `target`: class numbers, one-hot rows, or
// numbers of the prediction's shape. Of classes of pixels or steps, ROC is left out. `files`: of
// each sample; may be empty. Sources: Keras 3 metrics AUC (one against all others); the area is
// that of the whole curve, ties counting half (T. Fawcett, "An introduction to ROC analysis",
// 2006).
OutputDetails output_details(const std::string& name, const HostTensor& prediction,
                             const HostTensor& target, const ClassOutput& classes,
                             const std::vector<std::string>& files);

// {"samples": .., "outputs": [..]}; NaN is null.
nlohmann::ordered_json details_json(const std::vector<OutputDetails>& outputs);
// For a terminal.
std::string details_text(const std::vector<OutputDetails>& outputs);

}  // namespace meshtrain
