// SimpleRNN, LSTM, GRU, RNN and ConvLSTM: a cell (recurrent_cells.cc, conv_lstm.cc) over all steps
// of a sequence. Source: Keras 3 layers/rnn.
#include "nn/recurrent.h"

#include <algorithm>

#include "config/cells.h"
#include "nn/arguments.h"
#include "nn/masks.h"
#include "nn/parts.h"

namespace meshtrain {
namespace {

constexpr std::string_view kConvLstm = "ConvLSTM";

class Recurrent : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_sequence(inputs, diagnostics) || !has_steps(inputs, diagnostics) ||
        !takes_cell(diagnostics)) {
      return failed_shape();
    }
    const ConfigObject object = cell_object();
    cell_.name = cell_name(object);
    Shape out = build_part(cell_, object, inputs.first(1), {}, diagnostics);
    if (is_failed(out) || !takes_states(inputs, diagnostics) || !keeps_states(diagnostics)) {
      return failed_shape();
    }
    if (!config_.boolean("return_sequences")) {
      out.erase(out.begin() + 1);
    }
    return out;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = to_compute(context, inputs[0]);
    ValueId mask = context.masks.empty() || !layer_uses_mask(use) ? kNone : context.masks[0];
    check_mask(b, mask);
    if (config_.boolean("go_backwards")) {
      x = b.reverse(x, 1);
      mask = mask == kNone ? kNone : b.reverse(mask, 1);
    }
    std::vector<ValueId> operands = first_states(context, inputs), masks, states;
    operands.insert(operands.begin(), x);
    masks.assign(operands.size(), kNone);
    masks[0] = mask;
    ValueId output = call_part(context, cell_, operands, masks, &states);
    const auto last = [&](ValueId sequence) {
      const int64_t steps = b.shape(sequence)[1];
      return b.squeeze(b.slice(sequence, 1, steps - 1, steps), 1);
    };
    for (size_t i = 0; i < kept_.size(); ++i) {
      context.update(kept_[i], b.cast(last(states[i]), variable_dtype));
    }
    if (mask != kNone && config_.boolean("zero_output_for_mask")) {
      output = b.mul(output, mask_beside(b, mask, output));
    }
    for (size_t i = 0; i < further_shapes().size(); ++i) {
      context.also(last(states[i]));
    }
    return config_.boolean("return_sequences") ? output : last(output);
  }

  std::vector<Shape> further_shapes() const override {
    return config_.boolean("return_state") ? state_shapes() : std::vector<Shape>();
  }

 protected:
  // The cell: this layer's own arguments, as those of its cell's class.
  virtual ConfigObject cell_object() const {
    ConfigObject out = config_;
    out.class_name += "Cell";
    out.args["name"].data = std::monostate{};
    return out;
  }
  virtual std::string cell_name(const ConfigObject& cell) const { return inner_name(cell); }
  virtual bool takes_cell(Diagnostics&) const { return true; }
  // Reports what is no sequence; its sizes beside batch and steps are the cell's to check.
  virtual bool takes_sequence(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    if (inputs.empty() || inputs[0].size() != 3 || inputs[0][2] == kUnknownDim) {
      shape_error(diagnostics, inputs, "it takes (batch, steps, features), with known features")
          .help(!inputs.empty() && inputs[0].size() == 2
                    ? "a recurrent layer before it needs `return_sequences: true`; else give the "
                      "Input the shape [steps, features], or put an Embedding before it"
                    : "give the Input the shape [steps, features], or put an Embedding before it");
      return false;
    }
    return true;
  }

 private:
  bool has_steps(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    if (inputs[0][1] == 0) {
      shape_error(diagnostics, inputs, "it takes at least one step");
      return false;
    }
    return true;
  }

  // Makes the variables of a stateful layer; reports a batch of unknown size.
  bool keeps_states(Diagnostics& diagnostics) {
    if (!config_.boolean("stateful")) {
      return true;
    }
    const int64_t batch = integer_or(config_, kStateBatch, 0);
    if (batch == 0) {
      argument_error(diagnostics, "stateful", "needs a batch of fixed size")
          .help("write `batch_size` in each Input, the same as that of `fit`");
      return false;
    }
    kept_.clear();
    for (Shape shape : state_shapes()) {
      shape[0] = batch;
      const std::string name =
          kept_.empty() ? "rnn_state" : fmt::format("rnn_state_{}", kept_.size());
      kept_.push_back(
          Layer::add_weight(name, shape, variable_dtype, filled_with(0), /*trainable=*/false));
    }
    return true;
  }

  std::vector<Shape> state_shapes() const { return cell_.layer->further_shapes(); }

  // Reports states of another number or other shapes.
  bool takes_states(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    const std::vector<Shape> states = state_shapes();
    const bool fits =
        inputs.size() == 1 ||
        (inputs.size() == 1 + states.size() &&
         std::equal(states.begin(), states.end(), inputs.begin() + 1,
                    [](const Shape& state, const Shape& given) {
                      return given.size() == state.size() &&
                             std::equal(state.begin() + 1, state.end(), given.begin() + 1);
                    }));
    if (fits) {
      return true;
    }
    std::vector<std::string> shapes;
    for (const Shape& state : states) {
      std::vector<std::string> sizes = {"batch"};
      for (size_t i = 1; i < state.size(); ++i) {
        sizes.push_back(fmt::format("{}", state[i]));
      }
      shapes.push_back(fmt::format("({})", fmt::join(sizes, ", ")));
    }
    shape_error(diagnostics, inputs,
                fmt::format("besides the sequence it takes {}: {}, or none",
                            states.size() == 1 ? "an initial state" : "initial states",
                            fmt::join(shapes, " and ")))
        .help(states.size() == 1 ? "write `inputs: [sequence, state]`"
              : states.size() == 2
                  ? "write `inputs: [sequence, h, c]`, or a state of each cell"
                  : "write `inputs: [sequence, ...]` with the states of each cell");
    return false;
  }

  std::vector<ValueId> first_states(CallContext& context, std::span<const ValueId> inputs) const {
    Builder& b = context.builder;
    const int64_t batch = b.shape(inputs[0])[0];
    check_batch(batch);
    std::vector<ValueId> out;
    for (Shape shape : state_shapes()) {
      const size_t i = out.size();
      shape[0] = batch;
      out.push_back(inputs.size() > 1 ? to_compute(context, inputs[1 + i])
                    : kept_.empty()   ? b.constant(0, context.compute_dtype, shape)
                                      : to_compute(context, context.weight(kept_[i])));
    }
    return out;
  }

  // Throws ConfigError E120 for a mask that is not one of steps, as Masking makes of images.
  void check_mask(const Builder& b, ValueId mask) const {
    if (mask == kNone || b.shape(mask).size() == 2) {
      return;
    }
    throw ConfigError("E120", loc,
                      fmt::format("layer `{}` ({}) gets a mask of {}: it takes one of (batch, "
                                  "steps)",
                                  name, class_name, shape_string(b.shape(mask))))
        .help("mask steps before they become images: put Masking before a TimeDistributed Reshape");
  }

  // Throws ConfigError E120 where a stateful layer gets a batch of another size.
  void check_batch(int64_t batch) const {
    if (kept_.empty() || weights[static_cast<size_t>(kept_[0])].shape[0] == batch) {
      return;
    }
    throw ConfigError(
        "E120", config_.loc_of("stateful"),
        fmt::format("layer `{}` ({}) is stateful with batches of {}, and gets a "
                    "batch of {}",
                    name, class_name, weights[static_cast<size_t>(kept_[0])].shape[0], batch))
        .help(
            "all batches need the `batch_size` of the Inputs; `remainder: drop` leaves out a "
            "last batch that is smaller");
  }

  Part cell_;
  std::vector<int> kept_;  // weights: the states of a stateful layer
};

// The steps are images.
class ConvLstm final : public Recurrent {
 public:
  using Recurrent::Recurrent;

 protected:
  std::string cell_name(const ConfigObject&) const override { return "conv_lstm_cell"; }
  bool takes_sequence(std::span<const Shape> inputs, Diagnostics& diagnostics) const override {
    const size_t rank = static_cast<size_t>(config_.class_name.at(kConvLstm.size()) - '0') + 3;
    if (!inputs.empty() && inputs[0].size() == rank) {
      return true;
    }
    const bool first = string_or(config_, "data_format", "") == "channels_first";
    const std::string_view sizes[] = {"width", "height, width", "depth, height, width"};
    const std::string step = fmt::format("{}{}{}", first ? "channels, " : "", sizes[rank - 4],
                                         first ? "" : ", channels");
    shape_error(diagnostics, inputs, fmt::format("it takes (batch, steps, {})", step))
        .help(fmt::format("give the Input the shape [steps, {}]", step));
    return false;
  }
};

// The cell is an argument.
class Rnn final : public Recurrent {
 public:
  using Recurrent::Recurrent;

 protected:
  ConfigObject cell_object() const override { return config_.arg("cell").object(); }
  bool takes_cell(Diagnostics& diagnostics) const override {
    const ConfigObject& cell = config_.arg("cell").object();
    if (is_cell_class(cell.class_name)) {
      return takes_layer("cell", diagnostics);
    }
    argument_error(diagnostics, "cell", fmt::format("is {}, which is no cell", cell.class_name))
        .help("write SimpleRNNCell, LSTMCell or GRUCell, or a list of them");
    return false;
  }
};

}  // namespace

bool is_rnn_state(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("rnn_state");
}

std::vector<LayerEntry> recurrent_layers() {
  std::vector<LayerEntry> out = recurrent_cells();
  const std::vector<LayerEntry> more = conv_lstm_cells();
  out.insert(out.end(), more.begin(), more.end());
  out.insert(out.end(), {{"SimpleRNN", make_as<Recurrent>},
                         {"LSTM", make_as<Recurrent>},
                         {"GRU", make_as<Recurrent>},
                         {"RNN", make_as<Rnn>},
                         {"ConvLSTM1D", make_as<ConvLstm>},
                         {"ConvLSTM2D", make_as<ConvLstm>},
                         {"ConvLSTM3D", make_as<ConvLstm>}});
  return out;
}

}  // namespace meshtrain
