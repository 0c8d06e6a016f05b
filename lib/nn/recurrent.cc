// SimpleRNN, LSTM and GRU: the product of all inputs, then one op over the steps (ir/ops/rnn.cc).
// Source: Keras 3 layers/rnn.
#include <algorithm>

#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/masks.h"

namespace meshtrain {
namespace {

// LSTM's bias: the part of the forget gate begins as one.
Initializer with_forget_bias(Initializer initializer, int64_t units) {
  return [=](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    HostTensor out = initializer(shape, dtype, seed, path);
    for (int64_t i = units; i < 2 * units; ++i)
      out.set(i, 1);
    return out;
  };
}

class Recurrent : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    units_ = config_.integer("units");
    if (!is_built(diagnostics)) {
      return failed_shape();
    }
    if (!takes_states(inputs, diagnostics) || !takes_activations(diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[0];
    const int64_t columns = gates() * units_;
    const auto initializer = [&](const char* argument) {
      return make_initializer(config_.arg(argument));
    };
    kernel_ = add_weight(cell() + "/kernel", {x[2], columns}, variable_dtype,
                         initializer("kernel_initializer"));
    recurrent_ = add_weight(cell() + "/recurrent_kernel", {units_, columns}, variable_dtype,
                            initializer("recurrent_initializer"));
    if (config_.boolean("use_bias")) {
      Initializer bias = initializer("bias_initializer");
      if (boolean_or(config_, "unit_forget_bias", false)) {
        bias = with_forget_bias(bias, units_);
      }
      bias_ = add_weight(cell() + "/bias", has_two_biases() ? Shape{2, columns} : Shape{columns},
                         variable_dtype, bias);
    }
    return config_.boolean("return_sequences") ? Shape{x[0], x[1], units_} : Shape{x[0], units_};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = dropped(context, to_compute(context, inputs[0]));
    ValueId mask = context.masks.empty() ? kNone : context.masks[0];
    if (config_.boolean("go_backwards")) {
      x = b.reverse(x, 1);
      mask = mask == kNone ? kNone : b.reverse(mask, 1);
    }
    const ValueId bias = bias_ == kNone ? kNone : context.weight(bias_);
    ValueId product = b.einsum("btf,fg->btg", {x, context.weight(kernel_)});
    if (bias != kNone) {
      product = b.add(product, has_two_biases() ? bias_row(b, bias, 0) : bias);
    }
    ValueList operands = {product, context.weight(recurrent_)};
    add_states(context, inputs, b.shape(x)[0], operands);
    if (has_two_biases()) {
      operands.push_back(bias == kNone ? b.constant(0, b.dtype(x), {gates() * units_})
                                       : bias_row(b, bias, 1));
    }
    if (mask != kNone) {
      operands.push_back(mask);
    }
    const ValueList states =
        b.add_node("scan_rnn", std::move(operands),
                   {{"cell", op_cell()},
                    {"activation", activation("activation")},
                    {"recurrent_activation", activation("recurrent_activation")},
                    {"has_mask", int64_t{mask != kNone}}});  // of all steps: h, and c of LSTM
    ValueId output = states[0];
    if (mask != kNone && config_.boolean("zero_output_for_mask")) {
      output = b.mul(output, mask_beside(b, mask, output));
    }
    const auto last = [&](ValueId sequence) {
      const int64_t steps = b.shape(sequence)[1];
      return b.squeeze(b.slice(sequence, 1, steps - 1, steps), 1);
    };
    for (size_t i = 0; i < further_shapes().size(); ++i) {
      context.also(last(states[i]));
    }
    return config_.boolean("return_sequences") ? output : last(output);
  }

  std::vector<Shape> further_shapes() const override {
    return std::vector<Shape>(config_.boolean("return_state") ? num_states() : 0,
                              Shape{kUnknownDim, units_});
  }

 protected:
  virtual std::string cell() const = 0;     // in paths of variables
  virtual std::string op_cell() const = 0;  // of the op
  virtual int64_t gates() const = 0;
  virtual size_t num_states() const { return 1; }
  virtual bool has_two_biases() const { return false; }

 private:
  // Reports arguments of Keras that this layer has not.
  bool is_built(Diagnostics& diagnostics) const {
    bool ok = config_.number("recurrent_dropout") == 0;
    if (!ok) {
      argument_error(diagnostics, "recurrent_dropout", "must be 0: states are not dropped here")
          .help("write `dropout`, which is of the inputs");
    }
    if (config_.boolean("stateful")) {
      argument_error(diagnostics, "stateful", "must be false: states begin anew with each batch")
          .help("leave it out; the states of one layer can be inputs of another");
      ok = false;
    }
    return ok;
  }
  // Reports inputs that are not a sequence, and states of other shapes.
  bool takes_states(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    if (inputs.empty() || inputs[0].size() != 3 || inputs[0][2] == kUnknownDim) {
      shape_error(diagnostics, inputs, "it takes (batch, steps, features), with known features")
          .help("give the Input the shape [steps, features], or put an Embedding before it");
      return false;
    }
    if (inputs[0][1] == 0) {
      shape_error(diagnostics, inputs, "it takes at least one step");
      return false;
    }
    const bool fits = std::all_of(inputs.begin() + 1, inputs.end(), [&](const Shape& state) {
      return state.size() == 2 && state[1] == units_;
    });
    if ((inputs.size() != 1 && inputs.size() != 1 + num_states()) || !fits) {
      shape_error(
          diagnostics, inputs,
          fmt::format("beside the sequence it takes {} of (batch, {}), or none",
                      num_states() == 1 ? "one initial state" : "two initial states", units_))
          .help(num_states() == 1 ? "write `inputs: [sequence, state]`"
                                  : "write `inputs: [sequence, h, c]`");
      return false;
    }
    return true;
  }

  // The op's name of an activation; empty where it has none.
  std::string activation(const char* argument) const {
    const std::string key = named_value(value_or_null(config_, argument)).key;
    for (const char* known : {"tanh", "sigmoid", "relu", "linear"}) {
      if (key == known) {
        return key;
      }
    }
    return key.empty() ? "linear" : "";
  }
  bool takes_activations(Diagnostics& diagnostics) const {
    bool ok = true;
    for (const char* argument : {"activation", "recurrent_activation"}) {
      if (activation(argument).empty()) {
        argument_error(diagnostics, argument, "is none of those that recurrent layers have")
            .help("write tanh, sigmoid, relu or linear");
        ok = false;
      }
    }
    return ok;
  }

  // One mask of the features for all steps of a sequence.
  ValueId dropped(CallContext& context, ValueId x) const {
    const double rate = config_.number("dropout");
    if (!context.training || rate == 0) {
      return x;
    }
    Builder& b = context.builder;
    const Shape& shape = b.shape(x);
    return b.dropout(x, rate, context.step, seed(context), {shape[0], 1, shape[2]});
  }

  void add_states(CallContext& context, std::span<const ValueId> inputs, int64_t batch,
                  ValueList& operands) const {
    Builder& b = context.builder;
    for (size_t i = 0; i < num_states(); ++i) {
      operands.push_back(inputs.size() > 1 ? to_compute(context, inputs[1 + i])
                                           : b.constant(0, b.dtype(operands[0]), {batch, units_}));
    }
  }

  ValueId bias_row(Builder& b, ValueId bias, int64_t row) const {
    return b.squeeze(b.slice(bias, 0, row, row + 1), 0);
  }

  int64_t units_ = 0;
  int kernel_ = kNone, recurrent_ = kNone, bias_ = kNone;
};

class SimpleRnn final : public Recurrent {
 public:
  using Recurrent::Recurrent;

 protected:
  std::string cell() const override { return "simple_rnn_cell"; }
  std::string op_cell() const override { return "simple"; }
  int64_t gates() const override { return 1; }
};

class Lstm final : public Recurrent {
 public:
  using Recurrent::Recurrent;

 protected:
  std::string cell() const override { return "lstm_cell"; }
  std::string op_cell() const override { return "lstm"; }
  int64_t gates() const override { return 4; }
  size_t num_states() const override { return 2; }
};

class Gru final : public Recurrent {
 public:
  using Recurrent::Recurrent;

 protected:
  std::string cell() const override { return "gru_cell"; }
  std::string op_cell() const override { return has_two_biases() ? "gru_reset_after" : "gru"; }
  int64_t gates() const override { return 3; }
  bool has_two_biases() const override { return config_.boolean("reset_after"); }
};

}  // namespace

std::vector<LayerEntry> recurrent_layers() {
  return {{"SimpleRNN", make_as<SimpleRnn>}, {"LSTM", make_as<Lstm>}, {"GRU", make_as<Gru>}};
}

}  // namespace meshtrain
