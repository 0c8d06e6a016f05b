// SimpleRNNCell, LSTMCell and GRUCell over all steps: the product of all inputs, then one op
// (ir/ops/rnn.cc); StackedRNNCells, one cell after the other. Source: Keras 3 layers/rnn.
//
// A cell is a part of a recurrent layer. Its inputs are the sequence and its first states; beside
// the output of all steps it gives all its states of all steps. further_shapes() are those of a
// state.
#include <algorithm>
#include <set>

#include "config/cells.h"
#include "config/flow.h"
#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/parts.h"
#include "nn/recurrent.h"

namespace meshtrain {

Initializer with_forget_bias(Initializer initializer, int64_t units) {
  return [=](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    HostTensor out = initializer(shape, dtype, seed, path);
    for (int64_t i = units; i < 2 * units; ++i)
      out.set(i, 1);
    return out;
  };
}

std::string scan_activation(const ConfigObject& config, const char* argument) {
  const ConfigValue& value = value_or_null(config, argument);
  const NamedValue given = named_value(value);
  if (given.key.empty()) {
    return "linear";
  }
  const bool has_defaults = given.object == nullptr || name_key(yaml_flow(value)) == given.key;
  const auto known =
      std::ranges::find(rnn_activations(), given.key, [](auto name) { return name_key(name); });
  return has_defaults && known != rnn_activations().end() ? std::string(*known) : "";
}

double dropout_rate(const CallContext& context, const ConfigObject& config, const char* argument) {
  const double rate = context.training ? config.number(argument) : 0;
  return rate < 1 ? rate : 0;  // Keras drops nothing at a rate of 1
}

ValueList add_scan(Builder& b, const ConfigObject& config, const std::string& cell,
                   ValueList operands, ValueId mask, ValueId drop) {
  for (const ValueId value : {mask, drop}) {
    if (value != kNone) {
      operands.push_back(value);
    }
  }
  ValueList states =
      b.add_node("scan_rnn", std::move(operands),
                 {{"cell", cell},
                  {"activation", scan_activation(config, "activation")},
                  {"recurrent_activation", scan_activation(config, "recurrent_activation")},
                  {"has_mask", int64_t{mask != kNone}},
                  {"has_drop", int64_t{drop != kNone}},
                  {"keeps_gates", int64_t{cell != "simple"}}});
  states.resize(cell == "lstm" ? 2 : 1);  // behind them, the gates for the gradient
  return states;
}

namespace {

class Cell : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    units_ = config_.integer("units");
    if (!takes_scan_activations(config_, [&](auto... of) -> Diagnostic& {
          return argument_error(diagnostics, of...);
        })) {
      return failed_shape();
    }
    const Shape& x = inputs[0];
    const int64_t columns = gates() * units_;
    const auto initializer = [&](const char* argument) {
      return make_initializer(config_.arg(argument));
    };
    kernel_ =
        add_weight("kernel", {x[2], columns}, variable_dtype, initializer("kernel_initializer"));
    recurrent_ = add_weight("recurrent_kernel", {units_, columns}, variable_dtype,
                            initializer("recurrent_initializer"));
    if (config_.boolean("use_bias")) {
      Initializer bias = initializer("bias_initializer");
      if (boolean_or(config_, "unit_forget_bias", false)) {
        bias = with_forget_bias(bias, units_);
      }
      bias_ = add_weight("bias", has_two_biases() ? Shape{2, columns} : Shape{columns},
                         variable_dtype, bias);
    }
    return {x[0], x[1], units_};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = inputs[0], drop = state_drop(context, x);
    const ValueId mask = context.masks.empty() ? kNone : context.masks[0];
    const ValueId bias = bias_ == kNone ? kNone : context.weight(bias_);
    ValueId product = input_product(context, x, drop != kNone);
    if (bias != kNone) {
      product = b.add(product, has_two_biases() ? bias_row(b, bias, 0) : bias);
    }
    ValueList operands = {product, context.weight(recurrent_)};
    operands.insert(operands.end(), inputs.begin() + 1, inputs.end());
    if (has_two_biases()) {
      operands.push_back(bias == kNone ? b.constant(0, b.dtype(x), {gates() * units_})
                                       : bias_row(b, bias, 1));
    }
    const ValueList states = add_scan(b, config_, op_cell(), std::move(operands), mask, drop);
    for (const ValueId state : states) {
      context.also(state);
    }
    return states[0];
  }

  std::vector<Shape> further_shapes() const override {
    return std::vector<Shape>(num_states(), Shape{kUnknownDim, units_});
  }

 protected:
  virtual std::string op_cell() const = 0;  // of the op
  virtual int64_t gates() const = 0;
  virtual size_t num_states() const { return 1; }
  virtual bool has_two_biases() const { return false; }

 private:
  // x K. One mask drops features at all steps of a sequence; where states are dropped each gate has
  // a mask of its own, as in Keras.
  ValueId input_product(CallContext& context, ValueId x, bool each_gate) const {
    Builder& b = context.builder;
    const ValueId kernel = context.weight(kernel_);
    const double rate = dropout_rate(context, config_, "dropout");
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
    const double rate = dropout_rate(context, config_, "recurrent_dropout");
    if (rate == 0) {
      return kNone;
    }
    Builder& b = context.builder;
    const ValueId ones = b.constant(1, context.compute_dtype, {b.shape(x)[0], gates() * units_});
    return b.dropout(ones, rate, context.step, seed(context));
  }

  ValueId bias_row(Builder& b, ValueId bias, int64_t row) const {
    return b.squeeze(b.slice(bias, 0, row, row + 1), 0);
  }

  int64_t units_ = 0;
  int kernel_ = kNone, recurrent_ = kNone, bias_ = kNone;
};

class SimpleCell final : public Cell {
 public:
  using Cell::Cell;

 protected:
  std::string op_cell() const override { return "simple"; }
  int64_t gates() const override { return 1; }
};

class LstmCell final : public Cell {
 public:
  using Cell::Cell;

 protected:
  std::string op_cell() const override { return "lstm"; }
  int64_t gates() const override { return 4; }
  size_t num_states() const override { return 2; }
};

class GruCell final : public Cell {
 public:
  using Cell::Cell;

 protected:
  std::string op_cell() const override { return has_two_biases() ? "gru_reset_after" : "gru"; }
  int64_t gates() const override { return 3; }
  bool has_two_biases() const override { return config_.boolean("reset_after"); }
};

// All steps of the first cell, then all of the second: no cell sees a later one.
class StackedCells final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const std::vector<NamedCell> cells = cells_of_stack(config_);
    if (!takes_cells(cells, diagnostics)) {
      return failed_shape();
    }
    parts_.resize(cells.size());
    Shape x = inputs[0];
    for (size_t i = 0; i < cells.size() && !is_failed(x); ++i) {
      parts_[i].name = cells[i].name;
      x = build_part(parts_[i], *cells[i].object, {&x, 1}, {}, diagnostics);
    }
    return x;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    ValueId x = inputs[0];
    size_t next = 1;
    for (const Part& part : parts_) {
      const size_t end = next + part.layer->further_shapes().size();
      std::vector<ValueId> operands = {x};
      operands.insert(operands.end(), inputs.begin() + static_cast<std::ptrdiff_t>(next),
                      inputs.begin() + static_cast<std::ptrdiff_t>(end));
      next = end;
      std::vector<ValueId> states;
      x = call_part(context, part, operands, context.masks.subspan(0, operands.size()), &states);
      for (const ValueId state : states) {
        context.also(state);
      }
    }
    return x;
  }

  std::vector<Shape> further_shapes() const override {
    std::vector<Shape> out;
    for (const Part& part : parts_) {
      const std::vector<Shape> states = part.layer->further_shapes();
      out.insert(out.end(), states.begin(), states.end());
    }
    return out;
  }

 private:
  bool takes_cells(const std::vector<NamedCell>& cells, Diagnostics& diagnostics) const {
    if (cells.empty()) {
      argument_error(diagnostics, "cells", "is empty").help("name one cell at least");
      return false;
    }
    std::set<std::string> names;
    bool ok = true;
    for (const NamedCell& cell : cells) {
      const std::string& given = cell.object->class_name;
      if (!is_cell_class(given) || given == "StackedRNNCells") {
        argument_error(diagnostics, "cells", fmt::format("holds {}, which is no cell", given))
            .help("write SimpleRNNCell, LSTMCell or GRUCell");
        ok = false;
      } else if (!names.insert(cell.name).second) {
        argument_error(diagnostics, "cells", fmt::format("has two cells named `{}`", cell.name))
            .help("give each a `name` of its own");
        ok = false;
      } else {
        ok = takes_layer("cells", *cell.object, diagnostics) && ok;
      }
    }
    return ok;
  }

  std::vector<Part> parts_;
};

}  // namespace

std::vector<LayerEntry> recurrent_cells() {
  return {{"SimpleRNNCell", make_as<SimpleCell>},
          {"LSTMCell", make_as<LstmCell>},
          {"GRUCell", make_as<GruCell>},
          {"StackedRNNCells", make_as<StackedCells>}};
}

}  // namespace meshtrain
