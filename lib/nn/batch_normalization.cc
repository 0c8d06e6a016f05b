// BatchNormalization: statistics of each channel over the global batch, whatever the mesh. Source:
// Keras 3 layers/normalization/batch_normalization.py; Ioffe, Szegedy, "Batch Normalization", 2015.
#include <cmath>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/masks.h"

namespace meshtrain {
namespace {

// Mean and biased variance of each channel (C), float64.
struct Statistics {
  ValueId mean = kNone, variance = kNone;
};

// x (..., C). Sums of x and of x^2 in float64 leave nothing to lose for float32; float64 itself
// takes a second pass over x instead of their difference.
Statistics batch_statistics(Builder& b, ValueId x) {
  const Shape shape = b.shape(x);
  const double count = static_cast<double>(num_elements(shape) / shape.back());
  if (b.dtype(x) == DType::kFloat64) {
    std::vector<int64_t> axes;
    for (size_t d = 0; d + 1 < shape.size(); ++d) {
      axes.push_back(static_cast<int64_t>(d));
    }
    const ValueId mean = b.reduce_mean(x, axes);
    return {mean, b.reduce_mean(b.square(b.sub(x, mean)), axes)};
  }
  const ValueId means = b.mul(b.moments(x), 1 / count);
  const ValueId mean = b.squeeze(b.slice(means, 0, 0, 1), 0);
  const ValueId of_squares = b.squeeze(b.slice(means, 0, 1, 2), 0);
  return {mean, b.maximum(b.sub(of_squares, b.square(mean)), 0.0)};
}

// The same over the steps that a mask (batch, steps) leaves.
Statistics masked_statistics(Builder& b, ValueId x, ValueId mask) {
  const Shape shape = b.shape(x);
  std::vector<int64_t> axes;
  double others = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) {
    axes.push_back(static_cast<int64_t>(d));
    others *= d < 2 ? 1 : static_cast<double>(shape[d]);
  }
  const ValueId wide = b.cast(x, DType::kFloat64);
  const ValueId valid = mask_beside(b, mask, wide);
  const ValueId count =
      b.maximum(b.mul(b.reduce_sum_all(b.cast(mask, DType::kFloat64)), others), 1.0);
  const ValueId mean = b.div(b.reduce_sum(b.mul(wide, valid), axes), count);
  const ValueId square = b.mul(b.square(b.sub(wide, mean)), valid);
  return {mean, b.div(b.reduce_sum(square, axes), count)};
}

// Renormalization: ((x - mean) / sqrt(variance + epsilon)) r + d. No derivative goes through
// either.
struct Correction {
  ValueId r = kNone, d = kNone;
};

// gamma (x - mean) / sqrt(variance + epsilon) + beta. Training: the batch's statistics, and the
// moving averages follow them; inference, or a layer that does not train: the moving averages.
// With `renorm` training corrects by averages of its own, and the average of the deviation gives
// that of the variance.
class BatchNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;
  bool casts_weights() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = AxesLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    if (!check_limits(diagnostics)) {
      return failed_shape();
    }
    const Shape channels = sizes(output);
    gamma_ = config_.boolean("scale") ? add_weight("gamma", channels) : kNone;
    beta_ = config_.boolean("center") ? add_weight("beta", channels) : kNone;
    moving_mean_ = add_weight("moving_mean", channels, /*trainable=*/false);
    moving_variance_ = add_weight("moving_variance", channels, /*trainable=*/false);
    if (config_.boolean("renorm")) {
      moving_stddev_ =
          add_weight("moving_stddev", channels, variable_dtype, initial_stddev(), false);
      renorm_mean_ = add_weight("renorm_mean", channels, variable_dtype,
                                make_initializer(config_.arg("moving_mean_initializer")), false);
      renorm_stddev_ =
          add_weight("renorm_stddev", channels, variable_dtype, initial_stddev(), false);
    }
    return output;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    const size_t rank = b.shape(x).size();
    const auto axis = static_cast<size_t>(axes(rank)[0]);
    const ValueId mask = context.masks.empty() || axis == 1 ? kNone : context.masks[0];
    const ValueId y =
        to_compute(context, normalized(context, move_axis(b, x, axis, rank - 1), mask));
    return move_axis(b, y, rank - 1, axis);
  }

 private:
  // A limit of the argument renorm_clipping.
  std::optional<double> limit(std::string_view name) const {
    const ConfigValue& given = value_or_null(config_, "renorm_clipping");
    if (given.is_null() || given.field(name).is_null()) {
      return std::nullopt;
    }
    return given.field(name).number();
  }

  bool check_limits(Diagnostics& diagnostics) const {
    const std::optional<double> low = limit("rmin"), high = limit("rmax");
    if (low && high && *high < *low) {
      argument_error(diagnostics, "renorm_clipping",
                     fmt::format("has rmax {}, which is below rmin {}", *high, *low))
          .help("write an rmax that is at least rmin");
      return false;
    }
    return true;
  }

  // Roots of what moving_variance begins with.
  Initializer initial_stddev() const {
    const Initializer variance = make_initializer(config_.arg("moving_variance_initializer"));
    return [variance](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
      HostTensor out = variance(shape, dtype, seed, path);
      for (int64_t i = 0; i < out.size(); ++i) {
        out.set(i, std::sqrt(out.at(i)));
      }
      return out;
    };
  }

  ValueId normalized(CallContext& context, ValueId x, ValueId mask) const {
    Builder& b = context.builder;
    Statistics used{kNone, kNone};
    Correction correction;
    if (!context.training || !trainable) {
      used = {in_double(context, moving_mean_), in_double(context, moving_variance_)};
    } else {
      used = mask == kNone ? batch_statistics(b, x) : masked_statistics(b, x, mask);
      if (config_.boolean("renorm")) {
        correction = renormalize(context, used);
      } else {
        follow(context, moving_mean_, used.mean, "momentum");
        follow(context, moving_variance_, used.variance, "momentum");
      }
    }
    return affine(context, x, used, correction);
  }

  // x * factor + shift, both small and in float64 up to here.
  ValueId affine(CallContext& context, ValueId x, const Statistics& used,
                 const Correction& correction) const {
    Builder& b = context.builder;
    ValueId factor = b.unary("rsqrt", b.add(used.variance, config_.number("epsilon")));
    ValueId extra = correction.d;
    factor = correction.r == kNone ? factor : b.mul(factor, correction.r);
    if (gamma_ != kNone) {
      const ValueId gamma = in_double(context, gamma_);
      factor = b.mul(factor, gamma);
      extra = extra == kNone ? kNone : b.mul(extra, gamma);
    }
    ValueId shift = b.neg(b.mul(used.mean, factor));
    shift = extra == kNone ? shift : b.add(shift, extra);
    shift = beta_ == kNone ? shift : b.add(shift, in_double(context, beta_));
    return b.channel_affine(x, b.cast(factor, b.dtype(x)), b.cast(shift, b.dtype(x)));
  }

  // The correction of a batch by the averages before it; all averages follow.
  Correction renormalize(CallContext& context, const Statistics& batch) const {
    Builder& b = context.builder;
    const double epsilon = config_.number("epsilon");
    const ValueId stddev = b.sqrt(b.add(batch.variance, epsilon));
    const ValueId usual = b.maximum(in_double(context, renorm_stddev_), std::sqrt(epsilon));
    ValueId r = b.div(stddev, usual);
    ValueId d = b.div(b.sub(batch.mean, in_double(context, renorm_mean_)), usual);
    if (const auto low = limit("rmin")) {
      r = b.maximum(r, *low);
    }
    if (const auto high = limit("rmax")) {
      r = b.minimum(r, *high);
    }
    if (const auto most = limit("dmax")) {
      d = b.clamp(d, -*most, *most);
    }
    follow(context, renorm_mean_, batch.mean, "renorm_momentum");
    follow(context, renorm_stddev_, stddev, "renorm_momentum");
    follow(context, moving_mean_, batch.mean, "momentum");
    const ValueId moving = follow(context, moving_stddev_, stddev, "momentum");
    const ValueId variance = b.maximum(b.sub(b.square(moving), epsilon), 0.0);
    context.update(moving_variance_, b.cast(variance, variable_dtype));
    return {b.stop_gradient(r), b.stop_gradient(d)};
  }

  static ValueId in_double(CallContext& context, int weight) {
    return context.builder.cast(context.weight(weight), DType::kFloat64);
  }

  // moving <- moving * momentum + value * (1 - momentum), at the end of the step; returns it.
  ValueId follow(CallContext& context, int weight, ValueId value, const char* momentum) const {
    Builder& b = context.builder;
    const double kept = config_.number(momentum);
    const ValueId fresh = b.add(b.mul(in_double(context, weight), kept), b.mul(value, 1 - kept));
    context.update(weight, b.cast(fresh, variable_dtype));
    return fresh;
  }

  int gamma_ = kNone;
  int beta_ = kNone;
  int moving_mean_ = kNone;
  int moving_variance_ = kNone;
  int moving_stddev_ = kNone;  // these three with `renorm`
  int renorm_mean_ = kNone;
  int renorm_stddev_ = kNone;
};

}  // namespace

std::vector<LayerEntry> batch_normalization_layers() {
  return {{"BatchNormalization", make_as<BatchNormalization>}};
}

}  // namespace meshtrain
