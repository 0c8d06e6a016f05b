// Metrics as functions that add ops to a Graph.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/object.h"
#include "ir/builder.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// A metric's state is a list of variables; `update` adds the batch and returns the new state;
// `result` reads the state on the host.
struct Metric {
  std::string name;  // the log name: the string given, or the object's name
  struct State {
    std::string name;  // "total", "count"
    Shape shape;
    std::optional<DType> dtype = {};  // otherwise float32, or float64 under that policy
  };
  std::vector<State> states;
  std::function<std::vector<ValueId>(Builder&, ValueId y_true, ValueId y_pred,
                                     ValueId sample_weight, std::span<const ValueId> state)>
      update;
  // One number; or one for each threshold or class, where Keras' result is a vector. Progress lines
  // and logs show the mean of a vector, as Keras' progress bar does.
  std::function<std::vector<double>(const std::vector<HostTensor>&)> result;
  // max when larger is better, min when smaller is; for callbacks' auto mode.
  bool larger_is_better = false;
  bool has_direction = true;  // false: unknown (Mean, Sum, counts)
  bool takes_mask = false;    // a mask of the output weighs its values, 0 or 1
};

// Outputs of the model that an expression may name beside y_pred: shapes with the batch. Their
// values are those of Builder::name_value().
using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// The class to compute; the words `accuracy` and `crossentropy` go by the shapes, unlike the class
// Accuracy, which is elementwise equality.
std::string metric_class(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred);

// `accuracy`/`acc` and `crossentropy`/`ce` resolve by shapes (Keras 3 trainers/compile_utils.py).
// Shapes have the batch as kUnknownDim. Reports shapes that do not fit (E123) and arguments that do
// not fit the shapes or each other (E113).
Metric make_metric(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred,
                   DType dtype, Diagnostics& diagnostics, const NamedShapes& outputs = {});
// The loss tracker and any other running mean: total += value * weight, count += weight.
Metric make_mean(std::string name);

}  // namespace meshtrain
