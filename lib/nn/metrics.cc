// Metrics by name: which one a config means, and those that are running means of a loss function.
// Source: Keras 3 metrics/reduction_metrics.py, regression_metrics.py, correlation_metrics.py.
#include <cmath>
#include <map>
#include <numbers>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

// Metric classes that are means of a loss function under another name.
std::string loss_name(const std::string& key) {
  static const std::map<std::string, std::string, std::less<>> kNames = {
      {"logcosherror", "LogCosh"}, {"rootmeansquarederror", "MeanSquaredError"}};
  const auto found = kNames.find(key);
  return found == kNames.end() ? key : found->second;
}

std::string metric_name(const ConfigObject& metric) {
  if (metric.has("name") && !metric.arg("name").is_default) {
    return metric.string("name");
  }
  if (!metric.spelled.empty() && metric.spelled != metric.class_name) {
    return metric.spelled;
  }
  const std::string key = name_key(metric.class_name);
  return key == "logcosherror" ? "logcosh"
         : key == "fbetascore" ? "fbeta_score"
                               : to_snake_case(metric.class_name);
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
  return ratio(state[0].at(0), state[1].at(0));
}

// The sum of the output; weights multiply it.
Metric make_sum(const std::string& name) {
  Metric metric;
  metric.name = name;
  metric.states = {{"total", {}}};
  metric.update = [name](Builder& b, ValueId, ValueId p, ValueId weight,
                         std::span<const ValueId> state) -> std::vector<ValueId> {
    const Builder::Scope scope = b.scope("metric_" + name);
    p = b.cast(p, b.dtype(state[0]));
    weight = weight_beside(b, weight, p);
    return {b.add(state[0], b.reduce_sum_all(weight == kNone ? p : b.mul(p, weight)))};
  };
  metric.result = [](const std::vector<HostTensor>& state) { return state_values(state, 0); };
  return metric;
}

ValueId centred(Builder& b, ValueId x, int64_t axis) {
  return b.sub(x, b.reduce_mean(x, {axis}, /*keepdims=*/true));
}

ValueId variance_of(Builder& b, ValueId centred, int64_t axis) {
  return b.reduce_mean(b.square(centred), {axis}, /*keepdims=*/true);
}

ValueId pearson(Builder& b, ValueId y, ValueId p, int64_t axis) {
  const auto standard = [&](ValueId x) {
    const ValueId from_mean = centred(b, x, axis);
    return b.div(from_mean, b.sqrt(variance_of(b, from_mean, axis)));
  };
  return b.reduce_mean(b.mul(standard(y), standard(p)), {axis});
}

// Keras' covariance takes the mean of the predictions from the targets too.
ValueId concordance(Builder& b, ValueId y, ValueId p, int64_t axis) {
  const ValueId y_mean = b.reduce_mean(y, {axis}, true);
  const ValueId p_mean = b.reduce_mean(p, {axis}, true);
  const ValueId covariance = b.mul(b.sub(y, p_mean), b.sub(p, p_mean));
  const ValueId spread =
      b.add(variance_of(b, b.sub(y, y_mean), axis), variance_of(b, b.sub(p, p_mean), axis));
  const ValueId norm = b.add(spread, b.square(b.sub(y_mean, p_mean)));
  return b.reduce_mean(b.div(b.mul(covariance, 2.0), b.add(norm, kEpsilon)), {axis});
}

Metric make_correlation(const MetricRequest& request) {
  const auto function = request.key == "pearsoncorrelation" ? pearson : concordance;
  const int64_t given = request.config.integer("axis");
  request.shapes_fit("CosineSimilarity");  // an axis, and targets like the output
  Metric out =
      mean_of(request.name, [=](Builder& b, ValueId y, ValueId p, DType dtype) -> LossValues {
        y = b.cast(y, dtype);
        p = b.cast(p, dtype);
        to_same_rank(b, y, p);
        return {function(b, y, p, normal_axis(given, b.shape(p).size()))};
      });
  out.larger_is_better = true;
  return out;
}

Metric make_loss_metric(const MetricRequest& request) {
  const std::string loss = loss_name(request.key);
  const bool is_expression = request.key == "lambda";
  if (is_expression) {
    check_lambda_loss(request.config, request.y_true, request.y_pred, request.outputs,
                      request.diagnostics);
  } else {
    request.shapes_fit(loss);
  }
  const bool is_cosine = request.key == "cosinesimilarity";
  Metric out = mean_of(request.name,
                       [=, args = request.config](Builder& b, ValueId y, ValueId p, DType dtype) {
                         LossValues found = loss_values(b, loss, &args, y, p, dtype);
                         if (is_cosine) {
                           found.values = b.neg(found.values);  // the loss is its negative
                         }
                         return found;
                       });
  out.larger_is_better = is_cosine;
  out.has_direction = !is_expression;
  if (request.key == "rootmeansquarederror") {
    out.result = [](const std::vector<HostTensor>& state) {
      return std::vector{std::sqrt(mean_result(state))};
    };
  }
  return out;
}

// Perplexity, and BitsPerByte: the same mean as bits. Source: Keras Hub metrics/perplexity.py. A
// masked target has no weight, unlike an ignored class.
Metric make_perplexity(const MetricRequest& request) {
  const std::string loss = "SparseCategoricalCrossentropy";
  request.shapes_fit(loss);
  ConfigObject args = default_object(Category::kLoss, loss);
  args.args["from_logits"] = request.config.arg("from_logits");
  std::optional<int64_t> masked;
  if (request.config.has("mask_token_id")) {
    masked = request.config.integer("mask_token_id");
  }
  Metric out = mean_of(request.name, [=](Builder& b, ValueId y, ValueId p, DType dtype) {
    return loss_values(b, loss, &args, y, p, dtype);
  });
  if (masked) {
    out.update = [=, plain = out.update](Builder& b, ValueId y, ValueId p, ValueId weight,
                                         std::span<const ValueId> state) {
      const DType dtype = b.dtype(state[0]);
      const ValueId ids = b.cast(squeezed_ids(b, y, p), DType::kInt32);
      const ValueId is_counted =
          b.binary("ne", ids, b.constant(static_cast<double>(*masked), DType::kInt32));
      const ValueId counted = b.cast(is_counted, dtype);
      weight = weight_beside(b, weight, counted);
      return plain(b, y, p, weight == kNone ? counted : b.mul(weight, counted), state);
    };
  }
  const double nats_per_byte = request.config.has("bytes_per_token")
                                   ? std::numbers::ln2 * request.config.number("bytes_per_token")
                                   : 0;
  out.result = [nats_per_byte](const std::vector<HostTensor>& state) {
    const double mean = mean_result(state);
    return std::vector{state[1].at(0) == 0 ? 0
                       : nats_per_byte > 0 ? mean / nats_per_byte
                                           : std::exp(mean)};
  };
  return out;
}

}  // namespace

std::string metric_class(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred) {
  if (metric.class_name == "accuracy") {
    return class_by_shapes("Accuracy", y_true, y_pred);
  }
  if (metric.class_name == "crossentropy") {
    return class_by_shapes("Crossentropy", y_true, y_pred);
  }
  return metric.class_name;
}

Diagnostic& MetricRequest::shape_error() const {
  return diagnostics.error("E123", config.loc,
                           fmt::format("metric `{}` cannot compare targets {} with outputs {}",
                                       name, shape_string(y_true), shape_string(y_pred)));
}

Diagnostic& MetricRequest::argument_error(std::string_view argument,
                                          const std::string& problem) const {
  return diagnostics.error("E113", config.loc_of(argument),
                           fmt::format("metric `{}`: `{}` {}", name, argument, problem));
}

bool MetricRequest::shapes_fit(const std::string& loss) const {
  ConfigObject as_loss = config;
  as_loss.class_name = loss;
  as_loss.args.erase("reduction");
  Diagnostics found;
  check_loss(as_loss, y_true, y_pred, found);
  for (const Diagnostic& problem : found.list()) {
    Diagnostic& copy = shape_error();
    copy.loc = problem.loc;
    for (std::string note : problem.notes) {
      const std::string_view of_loss = "use categorical_crossentropy";
      if (const size_t at = note.find(of_loss); at != std::string::npos) {
        note.replace(at, of_loss.size(), "use the metric without `sparse`");
      }
      copy.notes.push_back(std::move(note));
    }
  }
  return found.num_errors() == 0;
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
    const auto [values, mask] = values_of(b, y_true, y_pred, dtype);
    if (mask != kNone && sample_weight != kNone) {
      const ValueId weight = weight_beside(b, b.cast(sample_weight, dtype), values);
      sample_weight = b.mul(weight, b.cast(mask, dtype));
    }
    const auto [total, count] = total_and_count(b, values, sample_weight, dtype);
    return {b.add(state[0], total), b.add(state[1], count)};
  };
  metric.takes_mask = true;
  metric.result = [](const std::vector<HostTensor>& state) {
    return std::vector{mean_result(state)};
  };
  return metric;
}

ValueId weight_beside(Builder& b, ValueId weight, ValueId values) {
  if (weight == kNone) {
    return weight;
  }
  const size_t rank = b.shape(values).size();
  weight = b.cast(weight, b.dtype(values));
  while (b.shape(weight).size() > rank && b.shape(weight).back() == 1) {
    weight = b.squeeze(weight, static_cast<int>(b.shape(weight).size()) - 1);
  }
  while (b.shape(weight).size() < rank) {
    weight = b.expand_dims(weight, static_cast<int>(b.shape(weight).size()));
  }
  return weight;
}

std::vector<double> state_values(const std::vector<HostTensor>& state, size_t index) {
  std::vector<double> out;
  for (int64_t i = 0; i < state[index].size(); ++i) {
    out.push_back(state[index].at(i));
  }
  return out;
}

Metric make_metric(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred,
                   DType dtype, Diagnostics& diagnostics, const NamedShapes& outputs) {
  if (metric.has("dtype") && metric.string("dtype") != dtype_name(dtype)) {
    diagnostics
        .error("E124", metric.loc_of("dtype"),
               fmt::format("metrics are computed in {} here", dtype_name(dtype)))
        .help("remove `dtype`, or set `dtype_policy`");
  }
  const MetricRequest request{metric,
                              name_key(metric_class(metric, y_true, y_pred)),
                              metric_name(metric),
                              y_true,
                              y_pred,
                              outputs,
                              dtype,
                              diagnostics};
  if (request.key == "mean" || request.key == "sum") {
    Metric out = request.key == "mean" ? make_mean(request.name) : make_sum(request.name);
    out.has_direction = false;
    return out;
  }
  if (request.key == "pearsoncorrelation" || request.key == "concordancecorrelation") {
    return make_correlation(request);
  }
  if (request.key == "perplexity" || request.key == "bitsperbyte") {
    return make_perplexity(request);
  }
  for (const auto& family :
       {make_accuracy_metric, make_threshold_metric, make_overlap_metric, make_score_metric}) {
    if (std::optional<Metric> made = family(request)) {
      return std::move(*made);
    }
  }
  MESHTRAIN_CHECK(is_loss_function(loss_name(request.key)), "no metric {}", metric.class_name);
  return make_loss_metric(request);
}

Metric make_mean(std::string name) {
  return mean_of(std::move(name),
                 [](Builder&, ValueId, ValueId value, DType) -> LossValues { return {value}; });
}

}  // namespace meshtrain
