// BatchNormalization: statistics of each channel over the global batch, whatever the mesh. Source:
// Keras 3 layers/normalization/batch_normalization.py; Ioffe, Szegedy, "Batch Normalization", 2015.
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

// gamma (x - mean) / sqrt(variance + epsilon) + beta. Training: the batch's statistics, and the
// moving averages follow them; inference, or a layer that does not train: the moving averages.
class BatchNormalization : public AxesLayer {
 public:
  using AxesLayer::AxesLayer;
  bool casts_weights() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const Shape output = AxesLayer::build(inputs, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    if (config_.boolean("renorm")) {
      argument_error(diagnostics, "renorm", "is not supported").help("remove it");
    }
    const Shape channels = sizes(output);
    gamma_ = config_.boolean("scale") ? add_weight("gamma", channels) : kNone;
    beta_ = config_.boolean("center") ? add_weight("beta", channels) : kNone;
    moving_mean_ = add_weight("moving_mean", channels, /*trainable=*/false);
    moving_variance_ = add_weight("moving_variance", channels, /*trainable=*/false);
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
  ValueId normalized(CallContext& context, ValueId x, ValueId mask) const {
    Builder& b = context.builder;
    const auto in_double = [&](int weight) {
      return b.cast(context.weight(weight), DType::kFloat64);
    };
    Statistics used{kNone, kNone};
    if (context.training && trainable) {
      used = mask == kNone ? batch_statistics(b, x) : masked_statistics(b, x, mask);
      follow(context, moving_mean_, used.mean);
      follow(context, moving_variance_, used.variance);
    } else {
      used = {in_double(moving_mean_), in_double(moving_variance_)};
    }
    // x * factor + shift, both small and in float64 up to here.
    ValueId factor = b.unary("rsqrt", b.add(used.variance, config_.number("epsilon")));
    factor = gamma_ == kNone ? factor : b.mul(factor, in_double(gamma_));
    ValueId shift = b.neg(b.mul(used.mean, factor));
    shift = beta_ == kNone ? shift : b.add(shift, in_double(beta_));
    return b.channel_affine(x, b.cast(factor, b.dtype(x)), b.cast(shift, b.dtype(x)));
  }

  // moving <- moving * momentum + value * (1 - momentum), at the end of the step.
  void follow(CallContext& context, int weight, ValueId value) const {
    Builder& b = context.builder;
    const double momentum = config_.number("momentum");
    const ValueId old = context.weight(weight);
    const ValueId kept = b.mul(b.cast(old, DType::kFloat64), momentum);
    const ValueId fresh = b.add(kept, b.mul(value, 1 - momentum));
    context.update(weight, b.cast(fresh, b.dtype(old)));
  }

  int gamma_ = kNone;
  int beta_ = kNone;
  int moving_mean_ = kNone;
  int moving_variance_ = kNone;
};

}  // namespace

std::vector<LayerEntry> batch_normalization_layers() {
  return {{"BatchNormalization", make_as<BatchNormalization>}};
}

}  // namespace meshtrain
