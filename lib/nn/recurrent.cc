// SimpleRNN, LSTM and GRU: the product of all inputs, then one op over the steps (ir/ops/rnn.cc).
// Source: Keras 3 layers/rnn.
#include <algorithm>

#include "config/flow.h"
#include "ir/ops/rnn.h"
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
    const ValueId drop = state_drop(context, inputs[0]);
    ValueId x = to_compute(context, inputs[0]);
    ValueId mask = context.masks.empty() ? kNone : context.masks[0];
    if (config_.boolean("go_backwards")) {
      x = b.reverse(x, 1);
      mask = mask == kNone ? kNone : b.reverse(mask, 1);
    }
    const ValueId bias = bias_ == kNone ? kNone : context.weight(bias_);
    ValueId product = input_product(context, x, drop != kNone);
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
    if (drop != kNone) {
      operands.push_back(drop);
    }
    const ValueList states =
        b.add_node("scan_rnn", std::move(operands),
                   {{"cell", op_cell()},
                    {"activation", activation("activation")},
                    {"recurrent_activation", activation("recurrent_activation")},
                    {"has_mask", int64_t{mask != kNone}},
                    {"has_drop", int64_t{drop != kNone}}});  // of all steps: h, and c of LSTM
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
    if (config_.boolean("stateful")) {
      argument_error(diagnostics, "stateful", "must be false: states begin anew with each batch")
          .help("leave it out; the states of one layer can be inputs of another");
      return false;
    }
    return true;
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

  // The op's name of an activation; empty where it has none, or has it with other arguments.
  std::string activation(const char* argument) const {
    const ConfigValue& value = value_or_null(config_, argument);
    const NamedValue given = named_value(value);
    if (given.key.empty()) {
      return "linear";
    }
    const bool has_defaults = given.object == nullptr || name_key(yaml_flow(value)) == given.key;
    const auto known =
        std::ranges::find(rnn_activations(), given.key, [](auto name) { return name_key(name); });
    return has_defaults && known != rnn_activations().end() ? std::string(*known) : "";
  }
  bool takes_activations(Diagnostics& diagnostics) const {
    bool ok = true;
    for (const char* argument : {"activation", "recurrent_activation"}) {
      if (activation(argument).empty()) {
        argument_error(diagnostics, argument, "is none of those that recurrent layers have")
            .help(fmt::format("write one of these, without arguments: {}",
                              fmt::join(rnn_activations(), ", ")));
        ok = false;
      }
    }
    return ok;
  }

  // x K. One mask drops features at all steps of a sequence; where states are dropped each gate has
  // a mask of its own, as in Keras.
  ValueId input_product(CallContext& context, ValueId x, bool each_gate) const {
    Builder& b = context.builder;
    const ValueId kernel = context.weight(kernel_);
    const double rate = context.training ? config_.number("dropout") : 0;
    const Shape shape = b.shape(x);
    const auto product = [&](ValueId part) {
      const ValueId dropped =
          rate == 0 ? x : b.dropout(x, rate, context.step, seed(context), {shape[0], 1, shape[2]});
      return b.einsum("btf,fg->btg", {dropped, part});
    };
    if (!each_gate || rate == 0) {
      return product(kernel);
    }
    ValueList parts;
    for (int64_t gate = 0; gate < gates(); ++gate) {
      parts.push_back(product(b.slice(kernel, 1, gate * units_, (gate + 1) * units_)));
    }
    return parts.size() == 1 ? parts[0] : b.concat(parts, 2);
  }

  // What `recurrent_dropout` multiplies the states of each gate with, at all steps alike: (batch,
  // gates units); kNone without it.
  ValueId state_drop(CallContext& context, ValueId x) const {
    const double rate = config_.number("recurrent_dropout");
    if (!context.training || rate == 0) {
      return kNone;
    }
    Builder& b = context.builder;
    const ValueId ones = b.constant(1, context.compute_dtype, {b.shape(x)[0], gates() * units_});
    return b.dropout(ones, rate, context.step, seed(context));
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
