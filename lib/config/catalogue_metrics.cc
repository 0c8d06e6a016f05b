// Metrics: keras-semantics 9.2; Keras 3 keras/src/metrics.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

using Args = std::vector<Spec>;

// Metrics take name and dtype first, as in Keras.
ClassSpec metric(std::string name, std::string help, Args args,
                 std::vector<std::string> aliases = {}) {
  args.insert(args.begin(), {own_name(), own_dtype()});
  return make_class(std::move(name), std::move(help), std::move(args), std::move(aliases));
}

ClassSpec top_k(std::string name, std::string help) {
  return make_class(std::move(name), std::move(help),
                    {integer("k", "5", "how many of the largest count").least(1).most(kMaxSize),
                     own_name(), own_dtype()});
}

}  // namespace

std::vector<ClassSpec> metric_classes() {
  const Spec threshold =
      number("threshold", "0.5", "predictions above it are yes").least(0).most(1);
  return {
      metric("accuracy", "the accuracy that fits the shapes of target and output", {}, {"acc"}),
      metric("crossentropy", "the crossentropy that fits the shapes", {}, {"ce"}),
      metric("Accuracy", "target equals prediction", {}),
      metric("BinaryAccuracy", "target equals (prediction > threshold)", {threshold}),
      metric("CategoricalAccuracy", "largest of a one-hot target is the largest predicted", {}),
      metric("SparseCategoricalAccuracy", "integer target is the largest predicted", {}),
      top_k("TopKCategoricalAccuracy", "one-hot target is among the k largest"),
      top_k("SparseTopKCategoricalAccuracy", "integer target is among the k largest"),
      metric("MeanSquaredError", "mean (y - p)^2", {}, {"mse", "MSE"}),
      metric("MeanAbsoluteError", "mean |y - p|", {}, {"mae", "MAE"}),
      metric("RootMeanSquaredError", "root of the mean squared error over all samples", {}),
      metric("BinaryCrossentropy", "mean of the loss", {from_logits(), label_smoothing()},
             {"bce", "BCE"}),
      metric("CategoricalCrossentropy", "mean of the loss",
             {from_logits(), label_smoothing(), class_axis()}),
      metric("SparseCategoricalCrossentropy", "mean of the loss", {from_logits(), class_axis()}),
      metric("Mean", "mean of the output", {}),
  };
}

}  // namespace meshtrain
