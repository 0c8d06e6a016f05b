// Bidirectional and TimeDistributed: layers around another layer. Source: Keras 3 layers/rnn.
#include <algorithm>

#include "config/cells.h"
#include "nn/arguments.h"
#include "nn/masks.h"
#include "nn/parts.h"

namespace meshtrain {
namespace {

// Two recurrent layers, one of them from the last step to the first.
class Bidirectional final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const ConfigObject& layer = config_.arg("layer").object();
    if (!takes_layer("layer", diagnostics) || !is_recurrent("layer", diagnostics)) {
      return failed_shape();
    }
    const ConfigObject backward = backward_object(layer);
    if ((config_.has("backward_layer") && !takes_layer("backward_layer", diagnostics)) ||
        !is_pair(layer, backward, diagnostics)) {
      return failed_shape();
    }
    const std::string own = inner_name(layer);
    forward_.name = "forward_" + without(own, "forward_");
    backward_.name = config_.has("backward_layer") ? inner_name(backward)
                                                   : "backward_" + without(own, "backward_");
    if (forward_.name == backward_.name) {
      argument_error(diagnostics, "backward_layer", "has the name of the other layer")
          .help("give it a `name` of its own");
      return failed_shape();
    }
    if (!split_states(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape y = build_part(forward_, direction(layer), inputs_of(inputs, 0), {}, diagnostics);
    if (is_failed(y)) {
      return failed_shape();
    }
    const Shape z =
        build_part(backward_, direction(backward), inputs_of(inputs, 1), {}, diagnostics);
    if (is_failed(z)) {
      return failed_shape();
    }
    backward_shape_ = z;
    return is_merged() ? merged_shape(inputs, y, z, diagnostics) : y;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId mask = context.masks.empty() || !layer_uses_mask(use) ? kNone : context.masks[0];
    std::vector<ValueId> states;
    const auto run = [&](const Part& part, size_t half) {
      const std::vector<ValueId> operands = inputs_of(inputs, half);
      std::vector<ValueId> masks(operands.size(), kNone);
      masks[0] = mask;
      return call_part(context, part, operands, masks, &states);
    };
    ValueId y = run(forward_, 0), z = run(backward_, 1);
    y = b.cast(y, dtype);
    z = b.cast(z, dtype);
    if (returns_sequences()) {
      z = b.reverse(z, 1);  // its steps were in its own order
    }
    if (!is_merged()) {
      context.also(z);
    }
    for (const ValueId state : states) {
      context.also(state);
    }
    return is_merged() ? merged(b, y, z) : y;
  }

  std::vector<Shape> further_shapes() const override {
    std::vector<Shape> out;
    if (!is_merged()) {
      out.push_back(backward_shape_);
    }
    for (const Part* part : {&forward_, &backward_}) {
      const std::vector<Shape> states = part->layer->further_shapes();
      out.insert(out.end(), states.begin(), states.end());
    }
    return out;
  }

 private:
  bool is_merged() const { return config_.has("merge_mode"); }

  static std::string without(const std::string& name, std::string_view prefix) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  }
  bool returns_sequences() const {
    return config_.arg("layer").object().boolean("return_sequences");
  }

  // As Keras has it: sequences are zero where a mask leaves steps out, whatever the layer says.
  static ConfigObject direction(ConfigObject layer) {
    layer.args["zero_output_for_mask"].data = layer.boolean("return_sequences");
    return layer;
  }

  ConfigObject backward_object(const ConfigObject& layer) const {
    if (config_.has("backward_layer")) {
      return config_.arg("backward_layer").object();
    }
    ConfigObject out = layer;
    out.args["go_backwards"].data = true;
    return out;
  }

  bool is_recurrent(const char* argument, Diagnostics& diagnostics) const {
    const std::string& given = config_.arg(argument).object().class_name;
    if (is_recurrent_class(given) && given != "Bidirectional") {
      return true;
    }
    argument_error(diagnostics, argument, fmt::format("is {}, which has no steps", given))
        .help("write a SimpleRNN, an LSTM, a GRU, an RNN or a ConvLSTM");
    return false;
  }
  bool is_pair(const ConfigObject& forward, const ConfigObject& backward,
               Diagnostics& diagnostics) const {
    const bool is_given = config_.has("backward_layer");
    if (is_given && !is_recurrent("backward_layer", diagnostics)) {
      return false;
    }
    if (forward.boolean("go_backwards") == backward.boolean("go_backwards")) {
      argument_error(diagnostics, is_given ? "backward_layer" : "layer",
                     is_given ? "goes the same way as the other layer" : "goes backwards itself")
          .help(is_given
                    ? "write `go_backwards: true` in one of them"
                    : "leave `go_backwards` out, or write a `backward_layer` that goes forward");
      return false;
    }
    for (const char* flag : {"stateful", "return_sequences", "return_state"}) {
      if (forward.boolean(flag) != backward.boolean(flag)) {
        argument_error(diagnostics, "backward_layer",
                       fmt::format("has another `{}` than the other layer", flag))
            .help("write the same in both");
        return false;
      }
    }
    return true;
  }

  // The states of the first layer, then those of the second.
  bool split_states(std::span<const Shape> inputs, Diagnostics& diagnostics) {
    if (inputs.size() % 2 == 1) {
      num_states_ = inputs.size() / 2;
      return true;
    }
    shape_error(diagnostics, inputs, "besides the sequence it takes the states of both directions")
        .help(
            "write `inputs: [sequence, forward_h, forward_c, backward_h, backward_c]` of an LSTM");
    return false;
  }
  template <class T>
  std::vector<T> inputs_of(std::span<const T> inputs, size_t half) const {
    std::vector<T> out = {inputs[0]};
    const auto begin = inputs.begin() + static_cast<std::ptrdiff_t>(1 + half * num_states_);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(num_states_));
    return out;
  }

  Shape merged_shape(std::span<const Shape> inputs, const Shape& y, const Shape& z,
                     Diagnostics& diagnostics) const {
    if (config_.string("merge_mode") == "concat") {
      Shape out = y;
      out.back() += z.back();
      return out;
    }
    if (y != z) {
      shape_error(diagnostics, inputs,
                  fmt::format("its directions give {} and {}", shape_string(y), shape_string(z)))
          .help("write `merge_mode: concat`, or the same `units` in both");
      return failed_shape();
    }
    return y;
  }
  ValueId merged(Builder& b, ValueId y, ValueId z) const {
    const std::string& mode = config_.string("merge_mode");
    if (mode == "concat") {
      return b.concat({y, z}, static_cast<int64_t>(b.shape(y).size()) - 1);
    }
    if (mode == "mul") {
      return b.mul(y, z);
    }
    const ValueId sum = b.add(y, z);
    return mode == "ave" ? b.mul(sum, 0.5) : sum;
  }

  Part forward_, backward_;
  Shape backward_shape_;
  size_t num_states_ = 0;  // of a direction
};

// A layer for each step alone. All steps are one larger batch: the inner layer sees (batch x steps,
// ...), so BatchNormalization takes its means over the steps, too.
class TimeDistributed final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !takes_layer("layer", diagnostics) ||
        !is_layer(diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[0];
    if (x.size() < 3 || x[1] == kUnknownDim) {
      shape_error(diagnostics, inputs, "it takes (batch, steps, ...), with known steps")
          .help("give the Input a shape of two or more sizes, the first that of steps");
      return failed_shape();
    }
    part_.name = inner_name(config_.arg("layer").object());
    Shape step = without_steps(x);
    Shape out = build_part(part_, config_.arg("layer").object(), {&step, 1}, {}, diagnostics);
    if (!is_failed(out)) {
      out.insert(out.begin() + 1, x[1]);
    }
    return out;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const Shape x = b.shape(inputs[0]);
    Shape joined = without_steps(x);
    joined[0] = x[0] * x[1];
    const ValueId y = call_part(context, part_, b.reshape(inputs[0], joined));
    Shape out = b.shape(y);
    out[0] = x[0];
    out.insert(out.begin() + 1, x[1]);
    return b.reshape(y, out);
  }

  DType output_dtype(std::span<const DType> inputs) const override {
    return part_.layer == nullptr ? dtype : part_.layer->output_dtype(inputs);
  }
  bool casts_inputs() const override { return false; }  // the inner layer does

 private:
  static Shape without_steps(const Shape& shape) {
    Shape out = shape;
    out.erase(out.begin() + 1);
    return out;
  }
  bool is_layer(Diagnostics& diagnostics) const {
    const std::string& given = config_.arg("layer").object().class_name;
    if (is_stateful(config_.arg("layer").object())) {
      argument_error(diagnostics, "layer", "is stateful, but each step begins anew")
          .help("leave `stateful` out");
      return false;
    }
    if (given == "Normalization") {
      argument_error(diagnostics, "layer", "is Normalization, which takes all steps as they are")
          .help("write it without TimeDistributed");
      return false;
    }
    return is_whole_layer("layer", diagnostics);
  }

  Part part_;
};

}  // namespace

std::vector<LayerEntry> wrapper_layers() {
  return {{"Bidirectional", make_as<Bidirectional>}, {"TimeDistributed", make_as<TimeDistributed>}};
}

}  // namespace meshtrain
