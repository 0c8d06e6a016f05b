// Accuracies: running means of hits. Source: Keras 3 metrics/accuracy_metrics.py.
#include <map>

#include "nn/arguments.h"
#include "nn/head_loss.h"
#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

DType comparison_dtype(DType labels, DType predictions) {
  return is_floating(labels) ? predictions : DType::kInt32;
}

LossValues accuracy(Builder& b, ValueId y, ValueId p, DType dtype) {
  y = b.cast(y, b.dtype(p));
  to_same_rank(b, y, p);
  return {b.cast(b.binary("eq", y, p), dtype)};
}

LossValues binary_accuracy(Builder& b, ValueId y, ValueId p, double threshold, DType dtype) {
  to_same_rank(b, y, p);
  const ValueId is_one = b.binary("gt", p, b.constant(threshold, b.dtype(p)));
  const DType labels = comparison_dtype(b.dtype(y), b.dtype(p));
  return {b.cast(b.binary("eq", b.cast(y, labels), b.cast(is_one, labels)), dtype)};
}

LossValues categorical_accuracy(Builder& b, ValueId y, ValueId p, DType dtype) {
  const ValueId wanted = b.argmax(b.cast(y, b.dtype(p)), -1);
  return {b.cast(b.binary("eq", wanted, b.argmax(p, -1)), dtype)};
}

LossValues sparse_categorical_accuracy(Builder& b, ValueId y, ValueId p, DType dtype) {
  if (const auto of_tokens = token_losses(b, p)) {
    return {b.cast(of_tokens->hits, dtype)};
  }
  const ValueId ids = squeezed_ids(b, y, p);
  const DType labels = comparison_dtype(b.dtype(ids), b.dtype(p));
  const ValueId best = b.argmax(p, -1);
  return {b.cast(b.binary("eq", b.cast(ids, labels), b.cast(best, labels)), dtype)};
}

// A target is among the k largest when fewer than k predictions are larger: ties count as in.
LossValues in_top_k(Builder& b, ValueId ids, ValueId p, int64_t k, DType dtype) {
  const ValueId target = b.one_hot(b.cast(ids, DType::kInt32), b.shape(p).back(), b.dtype(p));
  const ValueId zero = b.constant(0, b.dtype(p));
  const ValueId is_target = b.binary("gt", target, zero);
  const ValueId of_target = b.reduce_sum(b.select(is_target, p, zero), {-1}, /*keepdims=*/true);
  const ValueId rank = b.reduce_sum(b.cast(b.binary("gt", p, of_target), dtype), {-1});
  const ValueId is_in = b.binary("lt", rank, b.constant(static_cast<double>(k), dtype));
  const ValueId is_number = b.unary("is_finite", b.squeeze(of_target, -1));
  return {b.cast(b.binary("logical_and", is_in, is_number), dtype)};
}

struct Accuracy {
  const char* shape_rules;  // the loss whose shapes it takes
  ValuesFunction (*function)(const ConfigObject& args);
};

const std::map<std::string, Accuracy, std::less<>>& accuracies() {
  static const std::map<std::string, Accuracy, std::less<>> kAccuracies = {
      {"accuracy",
       {"MeanSquaredError", [](const ConfigObject&) -> ValuesFunction { return accuracy; }}},
      {"binaryaccuracy",
       {"MeanSquaredError",
        [](const ConfigObject& args) -> ValuesFunction {
          return [threshold = args.number("threshold")](Builder& b, ValueId y, ValueId p,
                                                        DType dtype) {
            return binary_accuracy(b, y, p, threshold, dtype);
          };
        }}},
      {"categoricalaccuracy",
       {"CategoricalCrossentropy",
        [](const ConfigObject&) -> ValuesFunction { return categorical_accuracy; }}},
      {"sparsecategoricalaccuracy",
       {"SparseCategoricalCrossentropy",
        [](const ConfigObject&) -> ValuesFunction { return sparse_categorical_accuracy; }}},
      {"topkcategoricalaccuracy",
       {"CategoricalCrossentropy",
        [](const ConfigObject& args) -> ValuesFunction {
          return [k = args.integer("k")](Builder& b, ValueId y, ValueId p, DType dtype) {
            const ValueId wanted = b.argmax(b.cast(y, b.dtype(p)), -1);
            return in_top_k(b, wanted, p, k, dtype);
          };
        }}},
      {"sparsetopkcategoricalaccuracy",
       {"SparseCategoricalCrossentropy", [](const ConfigObject& args) -> ValuesFunction {
          return [k = args.integer("k")](Builder& b, ValueId y, ValueId p, DType dtype) {
            return in_top_k(b, squeezed_ids(b, y, p), p, k, dtype);
          };
        }}}};
  return kAccuracies;
}

}  // namespace

std::optional<Metric> make_accuracy_metric(const MetricRequest& request) {
  const auto found = accuracies().find(request.key);
  if (found == accuracies().end()) {
    return std::nullopt;
  }
  request.shapes_fit(found->second.shape_rules);
  Metric out = mean_of(request.name, found->second.function(all_arguments(
                                         Category::kMetric, request.key, &request.config)));
  out.larger_is_better = true;
  return out;
}

}  // namespace meshtrain
