// Intersection over union from a confusion matrix. Source: Keras 3 metrics/iou_metrics.py.
#include <algorithm>
#include <numeric>

#include "nn/arguments.h"
#include "nn/confusion_counts.h"
#include "nn/graph_parts.h"
#include "nn/metric_parts.h"

namespace meshtrain {
namespace {

struct OverlapOptions {
  int64_t num_classes = 2;
  std::vector<int64_t> target_ids;
  bool one_hot_targets = false, one_hot_outputs = false;
  int64_t axis = -1;
  std::optional<int64_t> ignored;
  std::optional<double> threshold;  // BinaryIoU
  bool whole_weights = true;        // cut to integers, as Keras' integer matrix does
};

OverlapOptions options_of(const MetricRequest& request) {
  const ConfigObject& config = request.config;
  OverlapOptions options;
  const bool is_binary = request.key == "binaryiou";
  const bool is_one_hot = request.key.starts_with("onehot");
  options.num_classes = is_binary ? 2 : config.integer("num_classes");
  if (config.has("target_class_ids")) {
    options.target_ids = integers_of(config.arg("target_class_ids"));
  } else {
    options.target_ids.resize(static_cast<size_t>(options.num_classes));
    std::iota(options.target_ids.begin(), options.target_ids.end(), int64_t{0});
  }
  options.one_hot_targets = is_one_hot || !boolean_or(config, "sparse_y_true", true);
  options.one_hot_outputs = !boolean_or(config, "sparse_y_pred", true);
  options.axis = integer_or(config, "axis", -1);
  if (config.has("ignore_class")) {
    options.ignored = config.integer("ignore_class");
  }
  if (is_binary) {
    options.threshold = config.number("threshold");
  }
  options.whole_weights = !config.has("dtype");
  return options;
}

Shape ids_shape(Shape shape, bool one_hot, int64_t axis) {
  if (one_hot) {
    shape.erase(shape.begin() + normal_axis(axis, shape.size()));
  }
  while (shape.size() > 1 && shape.back() == 1) {
    shape.pop_back();
  }
  return shape;
}

bool check(const MetricRequest& request, const OverlapOptions& options) {
  bool is_fine = true;
  for (const int64_t id : options.target_ids) {
    if (id < 0 || id >= options.num_classes) {
      request
          .argument_error("target_class_ids", fmt::format("has {}; there are classes 0 to {}", id,
                                                          options.num_classes - 1))
          .help("write classes below `num_classes`");
      is_fine = false;
    }
  }
  const auto check_axis = [&](bool one_hot, const Shape& shape, const char* what) {
    if (one_hot && !axis_in(options.axis, shape.size())) {
      request
          .argument_error("axis", fmt::format("is {}; the {} have shape {}", options.axis, what,
                                              shape_string(shape)))
          .help("name the dimension of the classes: -1 for the last");
      is_fine = false;
    }
  };
  check_axis(options.one_hot_targets, request.y_true, "targets");
  check_axis(options.one_hot_outputs, request.y_pred, "outputs");
  if (is_fine && ids_shape(request.y_true, options.one_hot_targets, options.axis) !=
                     ids_shape(request.y_pred, options.one_hot_outputs, options.axis)) {
    request.shape_error().help(fmt::format("it takes {} targets and {} outputs",
                                           options.one_hot_targets ? "one-hot" : "class id",
                                           options.one_hot_outputs ? "one-hot" : "class id"));
    is_fine = false;
  }
  return is_fine;
}

// One class id per position, int32, without trailing dimensions of 1.
ValueId ids_of(Builder& b, ValueId x, bool one_hot, int64_t axis) {
  if (one_hot) {
    x = b.argmax(x, static_cast<int>(normal_axis(axis, b.shape(x).size())));
  }
  x = b.cast(x, DType::kInt32);
  while (b.shape(x).size() > 1 && b.shape(x).back() == 1) {
    x = b.squeeze(x, static_cast<int>(b.shape(x).size()) - 1);
  }
  return x;
}

ValueId int_constant(Builder& b, int64_t value) {
  return b.constant(static_cast<double>(value), DType::kInt32);
}

ValueId is_class(Builder& b, ValueId ids, int64_t num_classes) {
  return b.binary("logical_and", b.binary("ge", ids, int_constant(b, 0)),
                  b.binary("lt", ids, int_constant(b, num_classes)));
}

// The batch's matrix, rows by target: (classes, classes). Ids outside of the classes, and targets
// that are ignored, do not count.
ValueId confusion_matrix(Builder& b, const OverlapOptions& options, ValueId y, ValueId p,
                         ValueId weight, DType dtype) {
  if (options.threshold) {
    p = b.binary("ge", p, b.constant(*options.threshold, b.dtype(p)));
  }
  y = ids_of(b, y, options.one_hot_targets, options.axis);
  p = ids_of(b, p, options.one_hot_outputs, options.axis);
  ValueId counts = b.binary("logical_and", is_class(b, y, options.num_classes),
                            is_class(b, p, options.num_classes));
  if (options.ignored) {
    counts = b.binary("logical_and", counts, b.binary("ne", y, int_constant(b, *options.ignored)));
  }
  const ValueId cell = b.add(b.mul(y, int_constant(b, options.num_classes)), p);
  const ValueId id = b.select(counts, cell, int_constant(b, -1));
  ValueId one = b.broadcast_to(b.constant(1, dtype), b.shape(id));
  if (weight != kNone) {
    weight = options.whole_weights ? b.cast(b.cast(weight, DType::kInt32), dtype) : weight;
    one = b.mul(one, weight_beside(b, weight, one));
  }
  const ValueId cells = add_exactly(b, one, id, options.num_classes * options.num_classes);
  return b.reshape(cells, {options.num_classes, options.num_classes});
}

// The mean over the target classes that occur, of those in both over those in either.
double mean_overlap(const HostTensor& matrix, const OverlapOptions& options) {
  const int64_t n = options.num_classes;
  double sum = 0, occurring = 0;
  for (const int64_t id : options.target_ids) {
    double either = -matrix.at(id * n + id);
    for (int64_t i = 0; i < n; ++i) {
      either += matrix.at(id * n + i) + matrix.at(i * n + id);
    }
    if (either > 1e-9) {
      sum += matrix.at(id * n + id) / (either + kEpsilon);
      occurring += 1;
    }
  }
  return sum / (occurring + kEpsilon);
}

}  // namespace

std::optional<Metric> make_overlap_metric(const MetricRequest& request) {
  if (!request.key.ends_with("iou")) {
    return std::nullopt;
  }
  const OverlapOptions options = options_of(request);
  if (!check(request, options)) {
    return make_mean(request.name);
  }
  Metric metric;
  metric.name = request.name;
  metric.states = {{"total_confusion_matrix", {options.num_classes, options.num_classes}}};
  if (options.whole_weights) {
    metric.states[0].dtype = DType::kInt32;
  }
  metric.update = [options, name = request.name, dtype = request.dtype](
                      Builder& b, ValueId y, ValueId p, ValueId weight,
                      std::span<const ValueId> state) -> std::vector<ValueId> {
    const Builder::Scope scope = b.scope("metric_" + name);
    const ValueId batch = confusion_matrix(b, options, y, p, weight, dtype);
    return {b.add(state[0], b.cast(batch, b.dtype(state[0])))};
  };
  metric.result = [options](const std::vector<HostTensor>& state) {
    return std::vector{mean_overlap(state[0], options)};
  };
  metric.larger_is_better = true;
  return metric;
}

}  // namespace meshtrain
