// Rescaling and Normalization. Source: Keras 3 layers/preprocessing.
#include <algorithm>
#include <cmath>

#include "nn/arguments.h"
#include "nn/category_layers.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

bool all_equal(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
}

// Numbers as a graph constant of `shape` (their count is its number of elements); equal ones as a
// scalar, which broadcasts.
ValueId spread_constant(Builder& b, const std::vector<double>& values, const Shape& shape,
                        DType dtype) {
  return all_equal(values) ? b.constant(values[0], dtype)
                           : b.reshape(vector_of(b, values, dtype), shape);
}

// x * scale + offset, in the compute dtype; either may be a list with one number per channel (last
// axis), or with a single one for all.
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
      const auto count = static_cast<int64_t>(value.is_null() ? 1 : numbers_of(value).size());
      if (count != 1 && (output.size() < 2 || count != output.back())) {
        argument_error(diagnostics, argument,
                       fmt::format("has {} numbers, but its input {} has {} channels", count,
                                   shape_string(output), output.size() < 2 ? 0 : output.back()))
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
    return spread_constant(b, values, {static_cast<int64_t>(values.size())}, dtype);
  }
};

// (x - mean) / max(sqrt(variance), 1e-7), or the inverse: one number, or one per position of the
// kept axes. Without given statistics they are weights, which the trainer takes from the training
// data (engine/adapt.h) or a weight file holds.
class Normalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = AxesLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    const bool has_mean = !value_or_null(config_, "mean").is_null();
    const bool has_variance = !value_or_null(config_, "variance").is_null();
    if (has_mean != has_variance) {
      argument_error(diagnostics, has_mean ? "mean" : "variance", "stands alone")
          .help(
              "give both `mean` and `variance`, or neither: then they come from the training "
              "data");
      return failed_shape();
    }
    if (has_mean && !check_statistics(inputs[0], diagnostics)) {
      return failed_shape();
    }
    if (!has_mean) {
      add_statistics(inputs[0]);
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_compute(context, inputs[0]);
    const Shape shape = b.shape(x);
    ValueId mean, scale;
    if (adapts()) {
      const Shape wide = spread_sizes(shape);
      mean = b.reshape(b.cast(context.weight(mean_), dtype), wide);
      const ValueId variance = b.reshape(b.cast(context.weight(variance_), dtype), wide);
      scale = b.maximum(b.sqrt(variance), kEpsilon);
    } else {
      std::vector<double> stddev = numbers_of(config_.arg("variance"));
      for (double& value : stddev) {
        value = std::max(std::sqrt(value), kEpsilon);
      }
      mean = spread_constant(b, numbers_of(config_.arg("mean")), spread_sizes(shape), dtype);
      scale = spread_constant(b, stddev, spread_sizes(shape), dtype);
    }
    if (config_.boolean("invert")) {
      return b.add(b.mul(x, scale), mean);
    }
    return b.div(b.sub(x, mean), scale);
  }

 private:
  bool adapts() const { return value_or_null(config_, "mean").is_null(); }

  // Keras' variables of statistics from data; `count` is there for its weight files.
  void add_statistics(const Shape& input) {
    const Shape shape = sizes(input);
    mean_ = add_weight("mean", shape, variable_dtype, filled_with(0), false);
    variance_ = add_weight("variance", shape, variable_dtype, filled_with(1), false);
    add_weight("count", {}, DType::kInt32, filled_with(0), false);
  }

  bool check_statistics(const Shape& input, Diagnostics& diagnostics) const {
    const int64_t count = num_elements(spread_sizes(input));
    for (const char* argument : {"mean", "variance"}) {
      const auto given = static_cast<int64_t>(numbers_of(config_.arg(argument)).size());
      if (given != 1 && given != count) {
        argument_error(
            diagnostics, argument,
            fmt::format("has {} numbers; its input {} needs {}", given, shape_string(input),
                        count == 1 ? "1" : fmt::format("1 or {}", count)))
            .help("`axis` names the dimensions that have statistics of their own");
        return false;
      }
    }
    return true;
  }

  int mean_ = kNone, variance_ = kNone;
};

}  // namespace

std::vector<LayerEntry> preprocessing_layers() {
  std::vector<LayerEntry> out = category_layers();
  out.push_back({"Rescaling", make_as<Rescaling>});
  out.push_back({"Normalization", make_as<Normalization>});
  return out;
}

}  // namespace meshtrain
