// Rescaling and Normalization. Source: Keras 3 layers/preprocessing.
#include <algorithm>
#include <cmath>

#include "nn/arguments.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

bool all_equal(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
}

// Numbers as a graph constant of `shape` (their count is its number of elements). The graph knows
// constants of one value only, so distinct numbers are placed by their index.
ValueId vector_constant(Builder& b, const std::vector<double>& values, const Shape& shape,
                        DType dtype) {
  if (all_equal(values)) {
    return b.constant(values[0], dtype);
  }
  const auto count = static_cast<int64_t>(values.size());
  std::vector<ValueId> parts;
  for (const double value : values) {
    parts.push_back(b.constant(value, dtype, {1}));
  }
  return b.reshape(count == 1 ? parts[0] : b.concat(parts, 0), shape);
}

// x * scale + offset, in the compute dtype; either may be a list with one number per channel (last
// axis).
class Rescaling : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    for (const char* argument : {"scale", "offset"}) {
      const ConfigValue& value = value_or_null(config_, argument);
      if (value.is_list() &&
          (output.size() < 2 || static_cast<int64_t>(numbers_of(value).size()) != output.back())) {
        argument_error(diagnostics, argument,
                       fmt::format("has {} numbers, but its input {} has {} channels",
                                   numbers_of(value).size(), shape_string(output),
                                   output.size() < 2 ? 0 : output.back()))
            .help("write one number, or one for each channel (the last dimension)");
      }
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = to_compute(context, inputs[0]);
    const std::vector<double> scale = numbers_of(config_.arg("scale"));
    x = b.mul(x, channels(b, scale));
    const ConfigValue& offset = value_or_null(config_, "offset");
    if (offset.is_null() || (offset.is_number() && offset.number() == 0)) {
      return x;
    }
    return b.add(x, channels(b, numbers_of(offset)));
  }

 private:
  ValueId channels(Builder& b, const std::vector<double>& values) const {
    return vector_constant(b, values, {static_cast<int64_t>(values.size())}, dtype);
  }
};

// (x - mean) / max(sqrt(variance), 1e-7), or the inverse, with given statistics: one number, or one
// per position of the kept axes.
class Normalization : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = FloatLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    if (value_or_null(config_, "mean").is_null() || value_or_null(config_, "variance").is_null()) {
      diagnostics
          .error("E124", loc,
                 fmt::format("layer `{}` (Normalization) needs `mean` and `variance`", name))
          .help("give both; they are not taken from the data here");
      return failed_shape();
    }
    return check_statistics(inputs, diagnostics) ? output : failed_shape();
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    std::vector<double> stddev = numbers_of(config_.arg("variance"));
    for (double& value : stddev) {
      value = std::max(std::sqrt(value), 1e-7);
    }
    const Shape shape = b.shape(x);
    const ValueId mean = statistic(b, numbers_of(config_.arg("mean")), shape);
    const ValueId scale = statistic(b, stddev, shape);
    if (boolean_or(&config_, "invert", false)) {
      return b.add(b.mul(x, scale), mean);
    }
    return b.div(b.sub(x, mean), scale);
  }

 private:
  // The kept axes from 0; none for `axis: null`.
  std::vector<int64_t> kept_axes(const Shape& input) const {
    const ConfigValue& axis = value_or_null(config_, "axis");
    std::vector<int64_t> axes;
    if (axis.is_null()) {
      return axes;
    }
    for (const int64_t a : axis.is_list() ? axis.integers() : std::vector{axis.integer()}) {
      axes.push_back(axis_in(a, input.size()).value_or(0));
    }
    return axes;
  }

  bool check_statistics(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    const Shape& input = inputs[0];
    for (const int64_t axis : kept_axes(input)) {
      if (axis == 0 || input[axis] == kUnknownDim) {
        shape_error(diagnostics, inputs,
                    "`axis` must name dimensions of known size, not the batch");
        return false;
      }
    }
    const int64_t count = num_elements(statistics_shape(input));
    for (const char* argument : {"mean", "variance"}) {
      const auto given = static_cast<int64_t>(numbers_of(config_.arg(argument)).size());
      if (given != 1 && given != count) {
        argument_error(
            diagnostics, argument,
            fmt::format("has {} numbers; its input {} needs {}", given, shape_string(input),
                        count == 1 ? "1" : fmt::format("1 or {}", count)));
        return false;
      }
    }
    return true;
  }

  // The kept axes' sizes, 1 elsewhere.
  Shape statistics_shape(const Shape& input) const {
    Shape shape(input.size(), 1);
    for (const int64_t axis : kept_axes(input)) {
      shape[axis] = input[axis];
    }
    return shape;
  }

  ValueId statistic(Builder& b, const std::vector<double>& values, const Shape& input) const {
    if (values.size() == 1) {
      return b.constant(values[0], dtype);
    }
    return vector_constant(b, values, statistics_shape(input), dtype);
  }
};

}  // namespace

std::vector<LayerEntry> preprocessing_layers() {
  return {{"Rescaling", make_as<Rescaling>}, {"Normalization", make_as<Normalization>}};
}

}  // namespace meshtrain
