// Metrics: Keras 3 keras/src/metrics.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

// Metrics of losses take name and dtype first, as in Keras.
ClassSpec metric(std::string name, std::string help, Args args = {},
                 std::vector<std::string> aliases = {}) {
  args.insert(args.begin(), {own_name(), own_dtype()});
  return make_class(std::move(name), std::move(help), std::move(args), std::move(aliases));
}

// Others take them last.
ClassSpec metric_with(std::string name, std::string help, Args args) {
  args.push_back(own_name());
  args.push_back(own_dtype());
  return make_class(std::move(name), std::move(help), std::move(args));
}

Spec vector_axis() {
  return integer("axis", "-1", "axis of the values compared");
}

std::vector<ClassSpec> accuracies() {
  const Spec k = integer("k", "5", "how many of the largest count").least(1).most(kMaxSize);
  const Spec threshold =
      number("threshold", "0.5", "predictions above it are yes").least(0).most(1);
  return {
      metric("accuracy", "the accuracy that fits the shapes of target and output", {}, {"acc"}),
      metric("crossentropy", "the crossentropy that fits the shapes", {}, {"ce"}),
      metric("Accuracy", "target equals prediction; without arguments the same as accuracy"),
      metric("BinaryAccuracy", "target equals (prediction > threshold)", {threshold}),
      metric("CategoricalAccuracy", "largest of a one-hot target is the largest predicted"),
      metric("SparseCategoricalAccuracy", "integer target is the largest predicted"),
      metric_with("TopKCategoricalAccuracy", "one-hot target is among the k largest", {k}),
      metric_with("SparseTopKCategoricalAccuracy", "integer target is among the k largest", {k}),
  };
}

std::vector<ClassSpec> of_losses() {
  return {
      metric_with("Lambda",
                  "mean of an expression of y_true and y_pred, named in the logs by `name`",
                  with_function({})),
      metric("MeanSquaredError", "mean (y - p)^2", {}, {"mse", "MSE"}),
      metric("MeanAbsoluteError", "mean |y - p|", {}, {"mae", "MAE"}),
      metric("MeanAbsolutePercentageError", "100 mean |(y - p) / y|", {}, {"mape", "MAPE"}),
      metric("MeanSquaredLogarithmicError", "mean (ln(1 + y) - ln(1 + p))^2", {}, {"msle", "MSLE"}),
      metric("RootMeanSquaredError", "root of the mean squared error over all samples"),
      metric("LogCoshError", "mean ln cosh(p - y)"),
      metric("CosineSimilarity", "cosine of the angle between target and output", {vector_axis()}),
      metric("Poisson", "mean p - y ln p"),
      metric("KLDivergence", "sum y ln(y / p)"),
      metric("Hinge", "mean max(1 - y p, 0)"),
      metric("SquaredHinge", "mean max(1 - y p, 0)^2"),
      metric("CategoricalHinge", "max(1 + largest wrong - right, 0)"),
      metric("BinaryCrossentropy", "mean of the loss", {from_logits(), label_smoothing()},
             {"bce", "BCE"}),
      metric("CategoricalCrossentropy", "mean of the loss",
             {from_logits(), label_smoothing(), class_axis()}),
      metric("SparseCategoricalCrossentropy", "mean of the loss",
             {from_logits(), integer("ignore_class", "null", "target that does not count"),
              class_axis()}),
      metric("Perplexity", "e to the mean crossentropy of integer targets (Keras Hub)",
             {from_logits(), integer("mask_token_id", "null", "target that does not count")}),
      metric("BitsPerByte", "mean crossentropy of integer targets in bits, for each byte of text",
             {from_logits(), integer("mask_token_id", "null", "target that does not count"),
              number("bytes_per_token", "1.0", "bytes of the text / its tokens").above(0)}),
      metric("Mean", "mean of the output"),
      metric("Sum", "sum of the output"),
  };
}

std::vector<ClassSpec> regression_scores() {
  return {
      make_class(
          "R2Score", "1 - squared error / variance of the targets",
          {choice("class_aggregation", {"uniform_average", "variance_weighted_average"},
                  "uniform_average", "how outputs become one; null = one value each")
               .nullable(),
           integer("num_regressors", "0", "of the adjusted score; 0 = not adjusted").least(0),
           own_name(), own_dtype()}),
      metric("PearsonCorrelation", "mean correlation of each sample's values", {vector_axis()}),
      metric("ConcordanceCorrelation", "correlation that also wants equal means", {vector_axis()}),
  };
}

Spec thresholds() {
  return make_spec("thresholds", ValueKind::kFloatOrList, "null",
                   "predictions above are yes; a list gives one value each; null = 0.5")
      .least(0)
      .most(1);
}
Spec class_id() {
  return integer("class_id", "null", "only this class").least(0);
}

std::vector<ClassSpec> counts() {
  std::vector<ClassSpec> out;
  const std::pair<const char*, const char*> kinds[] = {
      {"TruePositives", "targets 1, predicted 1"},
      {"FalsePositives", "targets 0, predicted 1"},
      {"TrueNegatives", "targets 0, predicted 0"},
      {"FalseNegatives", "targets 1, predicted 0"}};
  for (const auto& [name, help] : kinds) {
    out.push_back(metric_with(name, help, {thresholds()}));
  }
  const Spec top_k =
      integer("top_k", "null", "only the k largest can be yes").least(1).most(kMaxSize);
  out.push_back(
      metric_with("Precision", "right among those predicted 1", {thresholds(), top_k, class_id()}));
  out.push_back(
      metric_with("Recall", "found among the targets 1", {thresholds(), top_k, class_id()}));
  return out;
}

ClassSpec best(const char* name, const char* limited, const char* help) {
  return metric_with(
      name, help,
      {number(limited, "", "what it must reach").required().least(0).most(1),
       integer("num_thresholds", "200", "thresholds tried").least(1).most(10000), class_id()});
}

std::vector<ClassSpec> curves() {
  return {
      best("SensitivityAtSpecificity", "specificity", "best sensitivity at that specificity"),
      best("SpecificityAtSensitivity", "sensitivity", "best specificity at that sensitivity"),
      best("PrecisionAtRecall", "recall", "best precision at that recall"),
      best("RecallAtPrecision", "precision", "best recall at that precision"),
      make_class(
          "AUC", "area under the curve over all thresholds",
          {integer("num_thresholds", "200", "thresholds tried").least(2).most(10000),
           choice("curve", {"ROC", "PR", "PRGAIN", "roc", "pr", "prgain"}, "ROC",
                  "true over false positives, precision over recall, or their gains"),
           choice(
               "summation_method",
               {"interpolation", "minoring", "majoring", "Interpolation", "Minoring", "Majoring"},
               "interpolation", "how the area is summed"),
           own_name(), own_dtype(),
           make_spec("thresholds", ValueKind::kFloatOrList, "null",
                     "thresholds instead of num_thresholds even ones")
               .least(0)
               .most(1),
           boolean("multi_label", "false", "one curve for each label, then their mean"),
           integer("num_labels", "null", "labels of the output").least(1),
           make_spec("label_weights", ValueKind::kFloatOrList, "null", "one per label").least(0),
           from_logits()}),
  };
}

Spec average() {
  return choice("average", {"micro", "macro", "weighted"}, "null",
                "how classes become one; null = one value each")
      .nullable();
}
Spec decision() {
  return number("threshold", "null", "predictions above are yes; null = the largest")
      .above(0)
      .most(1);
}

std::vector<ClassSpec> scores() {
  return {
      metric_with("F1Score", "harmonic mean of precision and recall", {average(), decision()}),
      metric_with("FBetaScore", "weighted harmonic mean of precision and recall",
                  {average(), number("beta", "1.0", "weight of recall").above(0), decision()}),
  };
}

// Weights of samples are cut to whole numbers unless dtype is given, as in Keras.
std::vector<ClassSpec> overlaps() {
  const Spec num_classes =
      integer("num_classes", "", "number of classes").required().least(1).most(10000);
  const Spec targets =
      make_spec("target_class_ids", ValueKind::kIntOrList, "", "classes that count")
          .required()
          .listed()
          .least(0);
  const Spec ignored = integer("ignore_class", "null", "target that does not count");
  const Spec sparse_true = boolean("sparse_y_true", "true", "targets are class ids");
  const Spec sparse_pred = boolean("sparse_y_pred", "true", "outputs are class ids");
  const Spec one_hot_pred = boolean("sparse_y_pred", "false", "outputs are class ids");
  const Spec axis = class_axis();
  const Spec threshold = number("threshold", "0.5", "predictions from it on are yes");
  const Spec both = make_spec("target_class_ids", ValueKind::kIntOrList, "null",
                              "classes that count; null = both")
                        .listed()
                        .least(0)
                        .most(1);
  const Spec name = own_name();
  const Spec dtype = own_dtype();
  return {
      make_class("IoU", "overlap of some classes",
                 {num_classes, targets, name, dtype, ignored, sparse_true, sparse_pred, axis}),
      make_class("BinaryIoU", "overlap of yes and no", {both, threshold, name, dtype}),
      make_class("MeanIoU", "mean overlap of all classes",
                 {num_classes, name, dtype, ignored, sparse_true, sparse_pred, axis}),
      make_class("OneHotIoU", "overlap of some classes, one-hot targets",
                 {num_classes, targets, name, dtype, ignored, one_hot_pred, axis}),
      make_class("OneHotMeanIoU", "mean overlap of all classes, one-hot targets",
                 {num_classes, name, dtype, ignored, one_hot_pred, axis}),
  };
}

}  // namespace

std::vector<ClassSpec> metric_classes() {
  std::vector<ClassSpec> all;
  for (auto family : {accuracies, of_losses, regression_scores, counts, curves, scores, overlaps}) {
    for (ClassSpec& spec : family()) {
      all.push_back(std::move(spec));
    }
  }
  return all;
}

}  // namespace meshtrain
