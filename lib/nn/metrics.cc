// Metrics: running means whose state is (total, count). Source: Keras 3
// metrics/reduction_metrics.py and accuracy_metrics.py.
#include <cmath>
#include <map>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/loss_functions.h"

namespace meshtrain {
namespace {

// One value per sample (or position); y_pred is floating, y_true as stored.
using ValuesFunction =
    std::function<ValueId(Builder&, ValueId y_true, ValueId y_pred, DType state_dtype)>;

DType comparison_dtype(DType labels, DType predictions) {
  return is_floating(labels) ? predictions : DType::kInt32;
}

ValueId as_number(Builder& b, ValueId condition, DType dtype) {
  return b.cast(condition, dtype);
}

int last_axis(Builder& b, ValueId x) {
  return static_cast<int>(b.shape(x).size()) - 1;
}

// Class ids (...) or (..., 1) beside predictions (..., classes), without the 1.
ValueId squeezed_ids(Builder& b, ValueId y, ValueId p) {
  const Shape shape = b.shape(y);
  const bool has_one = shape.size() == b.shape(p).size() && shape.back() == 1;
  return has_one ? b.squeeze(y, static_cast<int>(shape.size()) - 1) : y;
}

ValueId accuracy(Builder& b, ValueId y, ValueId p, DType dtype) {
  y = b.cast(y, b.dtype(p));
  to_same_rank(b, y, p);
  return as_number(b, b.binary("eq", y, p), dtype);
}

ValueId binary_accuracy(Builder& b, ValueId y, ValueId p, double threshold, DType dtype) {
  to_same_rank(b, y, p);
  const ValueId is_one = b.binary("gt", p, b.constant(threshold, b.dtype(p)));
  const DType labels = comparison_dtype(b.dtype(y), b.dtype(p));
  return as_number(b, b.binary("eq", b.cast(y, labels), b.cast(is_one, labels)), dtype);
}

ValueId categorical_accuracy(Builder& b, ValueId y, ValueId p, DType dtype) {
  const ValueId wanted = b.argmax(b.cast(y, b.dtype(p)), last_axis(b, y));
  return as_number(b, b.binary("eq", wanted, b.argmax(p, last_axis(b, p))), dtype);
}

ValueId sparse_categorical_accuracy(Builder& b, ValueId y, ValueId p, DType dtype) {
  const ValueId ids = squeezed_ids(b, y, p);
  const DType labels = comparison_dtype(b.dtype(ids), b.dtype(p));
  const ValueId best = b.argmax(p, last_axis(b, p));
  return as_number(b, b.binary("eq", b.cast(ids, labels), b.cast(best, labels)), dtype);
}

// A target is among the k largest when fewer than k predictions are larger: ties count as in.
ValueId in_top_k(Builder& b, ValueId ids, ValueId p, int64_t k, DType dtype) {
  const int last = last_axis(b, p);
  const ValueId target = b.one_hot(b.cast(ids, DType::kInt32), b.shape(p)[last], b.dtype(p));
  const ValueId is_target = b.binary("gt", target, b.constant(0, b.dtype(p)));
  const ValueId zero = b.constant(0, b.dtype(p));
  const ValueId of_target = b.reduce_sum(b.select(is_target, p, zero), {last}, /*keepdims=*/true);
  const ValueId larger = b.cast(b.binary("gt", p, of_target), dtype);
  const ValueId rank = b.reduce_sum(larger, {last});
  const ValueId limit = b.constant(static_cast<double>(k), dtype);
  const ValueId is_in = b.binary("lt", rank, limit);
  return as_number(
      b, b.binary("logical_and", is_in, b.unary("is_finite", b.squeeze(of_target, last))), dtype);
}

struct MetricKind {
  bool larger_is_better = false;
  bool takes_class_ids = false;
  bool takes_classes = false;  // targets like the output, one value per class
};

const std::map<std::string, MetricKind, std::less<>>& accuracy_kinds() {
  static const std::map<std::string, MetricKind, std::less<>> kKinds = {
      {"accuracy", {true, false, false}},
      {"binaryaccuracy", {true, false, false}},
      {"categoricalaccuracy", {true, false, true}},
      {"sparsecategoricalaccuracy", {true, true, false}},
      {"topkcategoricalaccuracy", {true, false, true}},
      {"sparsetopkcategoricalaccuracy", {true, true, false}}};
  return kKinds;
}

// The accuracies by class; null when `key` is none.
ValuesFunction accuracy_function(const std::string& key, const ConfigObject* args) {
  if (key == "accuracy") {
    return accuracy;
  }
  if (key == "binaryaccuracy") {
    const double threshold = number_or(args, "threshold", 0.5);
    return [=](Builder& b, ValueId y, ValueId p, DType dtype) {
      return binary_accuracy(b, y, p, threshold, dtype);
    };
  }
  if (key == "categoricalaccuracy") {
    return categorical_accuracy;
  }
  if (key == "sparsecategoricalaccuracy") {
    return sparse_categorical_accuracy;
  }
  const int64_t k = integer_or(args, "k", 5);
  if (key == "topkcategoricalaccuracy") {
    return [=](Builder& b, ValueId y, ValueId p, DType dtype) {
      const ValueId wanted = b.argmax(b.cast(y, b.dtype(p)), last_axis(b, y));
      return in_top_k(b, wanted, p, k, dtype);
    };
  }
  if (key == "sparsetopkcategoricalaccuracy") {
    return [=](Builder& b, ValueId y, ValueId p, DType dtype) {
      return in_top_k(b, squeezed_ids(b, y, p), p, k, dtype);
    };
  }
  return nullptr;
}

// Metric classes that are means of a loss function under another name.
std::string loss_name(const std::string& key) {
  static const std::map<std::string, std::string, std::less<>> kNames = {
      {"logcosherror", "LogCosh"}, {"rootmeansquarederror", "MeanSquaredError"}};
  const auto found = kNames.find(key);
  return found == kNames.end() ? key : found->second;
}

// Keras' rule for `accuracy` and `crossentropy` (keras-semantics 3.3).
std::string resolved(const std::string& what, const Shape& y_true, const Shape& y_pred) {
  const int64_t classes = y_pred.empty() ? 1 : y_pred.back();
  if (classes == 1) {
    return "Binary" + what;
  }
  const bool sparse = y_true.size() < y_pred.size() || (!y_true.empty() && y_true.back() == 1);
  return sparse ? "SparseCategorical" + what : "Categorical" + what;
}

// The class to compute; `accuracy` and `crossentropy` (lower case) go by the shapes, unlike the
// class Accuracy, which is elementwise equality.
std::string metric_class(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred) {
  if (metric.class_name == "accuracy") {
    return resolved("Accuracy", y_true, y_pred);
  }
  if (metric.class_name == "crossentropy") {
    return resolved("Crossentropy", y_true, y_pred);
  }
  return metric.class_name;
}

std::string metric_name(const ConfigObject& metric) {
  if (metric.has("name") && !metric.arg("name").is_default) {
    return metric.string("name");
  }
  if (!metric.spelled.empty() && metric.spelled != metric.class_name) {
    return metric.spelled;
  }
  if (name_key(metric.class_name) == "logcosherror") {
    return "logcosh";
  }
  return to_snake_case(metric.class_name);
}

// The mean over dimensions from `first` on.
ValueId mean_from(Builder& b, ValueId x, size_t first) {
  std::vector<int64_t> axes;
  for (size_t i = first; i < b.shape(x).size(); ++i) {
    axes.push_back(static_cast<int64_t>(i));
  }
  return axes.empty() ? x : b.reduce_mean(x, axes);
}

struct TotalAndCount {
  ValueId total, count;
};

// Sum and weight of the samples: values beyond the weight's rank are averaged first.
TotalAndCount total_and_count(Builder& b, ValueId values, ValueId weight, DType dtype) {
  values = b.cast(values, dtype);
  if (weight == kNone) {
    const Shape& shape = b.shape(values);
    const double count = shape.empty() ? 1.0 : static_cast<double>(shape[0]);
    return {b.reduce_sum_all(mean_from(b, values, 1)), b.constant(count, dtype)};
  }
  weight = b.cast(weight, dtype);
  to_same_rank(b, values, weight);
  values = mean_from(b, values, b.shape(weight).size());
  weight = b.broadcast_to(weight, b.shape(values));
  const ValueId weighted = mean_from(b, b.mul(values, weight), 1);
  return {b.reduce_sum_all(weighted), b.reduce_sum_all(mean_from(b, weight, 1))};
}

double mean_result(const std::vector<HostTensor>& state) {
  const double count = state[1].at(0);
  return count == 0 ? 0 : state[0].at(0) / count;
}

Metric mean_of(std::string name, ValuesFunction values_of) {
  Metric metric;
  metric.name = std::move(name);
  metric.states = {{"total", {}}, {"count", {}}};
  const std::string scope_name = "metric_" + metric.name;
  metric.update = [=](Builder& b, ValueId y_true, ValueId y_pred, ValueId sample_weight,
                      std::span<const ValueId> state) -> std::vector<ValueId> {
    const Builder::Scope scope = b.scope(scope_name);
    const DType dtype = b.dtype(state[0]);
    const ValueId values = values_of(b, y_true, y_pred, dtype);
    const auto [total, count] = total_and_count(b, values, sample_weight, dtype);
    return {b.add(state[0], total), b.add(state[1], count)};
  };
  metric.result = [](const std::vector<HostTensor>& s) { return std::vector{mean_result(s)}; };
  return metric;
}

// A loss with the metric's place and class, so that check_loss can judge the shapes.
ConfigObject as_loss(const ConfigObject& metric, const std::string& class_name) {
  ConfigObject loss = metric;
  loss.class_name = class_name;
  loss.args.erase("reduction");
  return loss;
}

// The loss whose shape rules the metric shares.
std::string shape_rules(const std::string& key) {
  const auto kind = accuracy_kinds().find(key);
  if (kind == accuracy_kinds().end()) {
    return loss_name(key);
  }
  return kind->second.takes_class_ids ? "SparseCategoricalCrossentropy"
         : kind->second.takes_classes ? "CategoricalCrossentropy"
                                      : "MeanSquaredError";
}

void check_metric(const ConfigObject& metric, const std::string& key, const Shape& y_true,
                  const Shape& y_pred, Diagnostics& diagnostics) {
  Diagnostics found;
  check_loss(as_loss(metric, shape_rules(key)), y_true, y_pred, found);
  for (const Diagnostic& problem : found.list()) {
    Diagnostic& copy = diagnostics.error(
        problem.code, problem.loc,
        fmt::format("metric `{}` cannot compare targets {} with "
                    "outputs {}",
                    metric_name(metric), shape_string(y_true), shape_string(y_pred)));
    copy.notes = problem.notes;
  }
}

}  // namespace

Metric make_metric(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred,
                   DType dtype, Diagnostics& diagnostics) {
  if (metric.has("dtype") && metric.string("dtype") != dtype_name(dtype)) {
    diagnostics
        .error("E124", metric.loc_of("dtype"),
               fmt::format("metrics are computed in {} here", dtype_name(dtype)))
        .help("remove `dtype`, or set `dtype_policy`");
  }
  const std::string name = metric_name(metric);
  const std::string key = name_key(metric_class(metric, y_true, y_pred));
  if (key == "mean") {
    return mean_of(name, [](Builder&, ValueId, ValueId p, DType) { return p; });
  }
  if (ValuesFunction function = accuracy_function(key, &metric)) {
    check_metric(metric, key, y_true, y_pred, diagnostics);
    Metric out = mean_of(name, std::move(function));
    out.larger_is_better = true;
    return out;
  }
  const std::string loss = loss_name(key);
  if (!is_loss_function(loss)) {
    diagnostics.error("E122", metric.loc, fmt::format("there is no metric `{}`", metric.spelled));
    return make_mean(name);
  }
  check_metric(metric, key, y_true, y_pred, diagnostics);
  const bool is_cosine = key == "cosinesimilarity";
  Metric out = mean_of(name, [=, args = metric](Builder& b, ValueId y, ValueId p, DType dtype) {
    const ValueId values = loss_values(b, loss, &args, y, p, dtype).values;
    return is_cosine ? b.neg(values) : values;  // the loss is its negative
  });
  out.larger_is_better = is_cosine;
  if (key == "rootmeansquarederror") {
    out.result = [](const std::vector<HostTensor>& state) {
      return std::vector{std::sqrt(mean_result(state))};
    };
  }
  return out;
}

Metric make_mean(std::string name) {
  return mean_of(std::move(name), [](Builder&, ValueId, ValueId value, DType) { return value; });
}

}  // namespace meshtrain
