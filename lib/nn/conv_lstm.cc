// The cell of ConvLSTM1D, 2D and 3D over all steps: one convolution of all inputs, then one op
// whose recurrent product is a convolution (ir/ops/rnn.cc). Source: Keras 3
// layers/rnn/conv_lstm.py.
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/conv.h"
#include "nn/recurrent.h"

namespace meshtrain {
namespace {

// kernel (k..., in, 4 filters), recurrent_kernel (k..., filters, 4 filters), bias (4 filters): of
// the gates i, f, c, o. As a part of a recurrent layer it sees the sequence and two states.
class ConvLstmCell final : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_scan_activations(config_, [&](auto... of) -> Diagnostic& {
          return argument_error(diagnostics, of...);
        })) {
      return failed_shape();
    }
    Shape image = inputs[0];
    image.erase(image.begin() + 1);
    state_ = SpatialLayer::build({&image, 1}, diagnostics);
    if (is_failed(state_)) {
      return failed_shape();
    }
    Shape out = state_;
    out.insert(out.begin() + 1, inputs[0][1]);
    state_[0] = kUnknownDim;
    return out;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const size_t last = b.shape(inputs[0]).size() - 1, channels = channels_first() ? 2 : last;
    const ValueId x = move_axis(b, inputs[0], channels, last);
    const ValueId product = input_product(context, x);
    ValueList operands = {product, context.weight(recurrent_)};
    for (const ValueId state : inputs.subspan(1)) {
      operands.push_back(move_axis(b, state, channels - 1, last - 1));
    }
    const ValueId mask = context.masks.empty() ? kNone : context.masks[0];
    ValueList states = add_scan(b, config_, "lstm", std::move(operands), mask,
                                state_drop(context, b.shape(product)));
    for (ValueId& state : states) {
      state = move_axis(b, state, last, channels);
      context.also(state);
    }
    return states[0];
  }

  std::vector<Shape> further_shapes() const override { return {state_, state_}; }

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_strict_window(diagnostics)) {
      return failed_shape();
    }
    filters_ = config_.integer("filters");
    const Shape output = fit_window(input, filters_, diagnostics);
    if (is_failed(output)) {
      return output;
    }
    kernel_ = ConfiguredLayer::add_weight("kernel", kernel_shape(input.back(), kGates * filters_));
    recurrent_ =
        ConfiguredLayer::add_weight("recurrent_kernel", kernel_shape(filters_, kGates * filters_));
    if (config_.boolean("use_bias")) {
      const Initializer bias = make_initializer(config_.arg("bias_initializer"));
      bias_ =
          add_weight("bias", {kGates * filters_}, variable_dtype,
                     config_.boolean("unit_forget_bias") ? with_forget_bias(bias, filters_) : bias);
    }
    return output;
  }

  ValueId call_last(CallContext&, ValueId) override { return kNone; }  // call() is its own

 private:
  static constexpr int64_t kGates = 4;

  // The convolution of all steps, (batch, steps, sizes..., 4 filters), with its bias. Where inputs
  // are dropped, each gate has a mask of its own for all steps alike, as in Keras.
  ValueId input_product(CallContext& context, ValueId x) const {
    Builder& b = context.builder;
    const ValueId kernel = context.weight(kernel_);
    const auto columns = static_cast<int64_t>(b.shape(kernel).size()) - 1;
    const double rate = dropout_rate(context, config_, "dropout");
    ValueList parts;
    for (int64_t gate = 0; rate > 0 && gate < kGates; ++gate) {
      Shape once = b.shape(x);
      once[1] = 1;
      const ValueId seen = b.dropout(x, rate, context.step, seed(context), once);
      parts.push_back(
          convolved(b, seen, b.slice(kernel, columns, gate * filters_, (gate + 1) * filters_)));
    }
    const auto last = static_cast<int64_t>(b.shape(x).size()) - 1;
    const ValueId product = parts.empty() ? convolved(b, x, kernel) : b.concat(parts, last);
    return bias_ == kNone ? product : b.add(product, context.weight(bias_));
  }

  // All steps as one larger batch.
  ValueId convolved(Builder& b, ValueId x, ValueId kernel) const {
    const Shape shape = b.shape(x);
    Shape images = shape;
    images.erase(images.begin());
    images[0] *= shape[0];
    const ValueId y = b.conv(b.reshape(x, images), kernel, window_at(images));
    Shape out = b.shape(y);
    out[0] = shape[1];
    out.insert(out.begin(), shape[0]);
    return b.reshape(y, out);
  }

  // As of Cell (recurrent_cells.cc), of the shape of one step of `product`.
  ValueId state_drop(CallContext& context, Shape product) const {
    const double rate = dropout_rate(context, config_, "recurrent_dropout");
    if (rate == 0) {
      return kNone;
    }
    product.erase(product.begin() + 1);
    Builder& b = context.builder;
    return b.dropout(b.constant(1, context.compute_dtype, product), rate, context.step,
                     seed(context));
  }

  int64_t filters_ = 0;
  Shape state_;  // of a batch
  int kernel_ = kNone, recurrent_ = kNone, bias_ = kNone;
};

}  // namespace

std::vector<LayerEntry> conv_lstm_cells() {
  return {{"ConvLSTM1DCell", make_as<ConvLstmCell>, /*is_part=*/true},
          {"ConvLSTM2DCell", make_as<ConvLstmCell>, /*is_part=*/true},
          {"ConvLSTM3DCell", make_as<ConvLstmCell>, /*is_part=*/true}};
}

}  // namespace meshtrain
