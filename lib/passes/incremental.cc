#include "passes/incremental.h"

#include <algorithm>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/rnn.h"
#include "ir/ops/window.h"
#include "passes/step_dims.h"

namespace meshtrain {
namespace {

class IncrementalBuilder {
 public:
  IncrementalBuilder(const Graph& whole, std::span<const SequenceInput> inputs, int64_t steps,
                     bool reorders_rows, const Sharding& layout)
      : whole_(whole),
        inputs_(inputs),
        steps_(steps),
        layout_(layout),
        b_(graph_),
        map_(whole.values.size(), kNone),
        time_(whole.values.size(), kNone) {
    graph_.variables = whole.variables;
    position_ = b_.input(kPositionInput, {}, DType::kInt32, /*batch=*/false);
    if (reorders_rows)
      rows_ = b_.input(kRowsInput, {input_shape()[0]}, DType::kInt32, /*batch=*/false);
  }

  void add_all() {
    for (const Node& node : whole_.nodes) {
      b_.set_scope_path(node.path.substr(0, std::max<size_t>(node.path.rfind('/') + 1, 1) - 1));
      add(node);
    }
    for (const Output& output : whole_.outputs) {
      if (time_of(output.value) != 1)
        refuse_node(whole_.producer(output.value), "gives no output for each step");
      b_.output(output.name, mapped(output.value));
    }
  }

  Graph take() { return std::move(graph_); }
  bool is_bounded() const { return is_bounded_; }

 private:
  ValueId mapped(ValueId old) const { return map_[static_cast<size_t>(old)]; }
  int time_of(ValueId old) const { return time_[static_cast<size_t>(old)]; }
  void set(ValueId old, ValueId value, int time) {
    map_[static_cast<size_t>(old)] = value;
    time_[static_cast<size_t>(old)] = time;
  }
  int64_t length() const { return input_shape()[1]; }

  // (B, T), of all inputs.
  const Shape& input_shape() const {
    const auto input = std::find_if(whole_.nodes.begin(), whole_.nodes.end(), [](const Node& node) {
      return node.op->kind == OpKind::kInput;
    });
    MESHTRAIN_CHECK(input != whole_.nodes.end(), "no input");
    return whole_.shape(input->outputs[0]);
  }

  void add_input(const Node& node) {
    const Shape& shape = whole_.shape(node.outputs[0]);
    MESHTRAIN_CHECK(next_input_ < inputs_.size(), "input {} is unknown", next_input_);
    if (shape != input_shape() || shape.size() != 2 || shape[1] < 2)
      throw StepObstacle{"an input is no sequence of ids"};
    switch (inputs_[next_input_++]) {
      case SequenceInput::kIds:
        return add_with_steps(node, {}, {1});
      case SequenceInput::kPositions:
        return set(node.outputs[0], b_.iota(shape, 1, DType::kInt32), kNone);
      case SequenceInput::kSegments:
        return set(node.outputs[0], b_.constant(1, DType::kInt32, shape), kNone);
    }
  }

  void add(const Node& node) {
    const auto has_time = [&](ValueId input) { return time_of(input) != kNone; };
    if (node.op->kind == OpKind::kInput)
      return add_input(node);
    if (node.op->kind == OpKind::kPin)  // its layout may split steps, of which a run has few
      return set(node.outputs[0], mapped(node.inputs[0]), time_of(node.inputs[0]));
    if (std::none_of(node.inputs.begin(), node.inputs.end(), has_time))
      return add_with_steps(node, mapped_inputs(node), {kNone});
    if (node.op->name == "attention" && time_of(node.inputs[1]) != kNone)
      return add_attention(node);
    if (node.op->name == "scan_rnn" && time_of(node.inputs[0]) != kNone)
      return add_scan(node);
    if (node.op->name == "conv")
      return add_conv(node);
    add_by_rule(node);
  }

  ValueList mapped_inputs(const Node& node) const {
    ValueList inputs;
    for (const ValueId input : node.inputs)
      inputs.push_back(mapped(input));
    return inputs;
  }

  // `times`: the dimension of steps of each result, or one for all.
  void add_with_steps(const Node& node, ValueList inputs, const std::vector<int>& times) {
    Attrs attrs = node.attrs;
    if (times[0] != kNone && attrs.contains("shape")) {
      std::vector<int64_t> shape = node.attr_ints("shape");
      shape[static_cast<size_t>(times[0])] = steps_;
      attrs["shape"] = std::move(shape);
    }
    const ValueList results = b_.add_node(node.op->name, std::move(inputs), std::move(attrs));
    for (size_t i = 0; i < results.size(); ++i) {
      const int time = times.size() == 1 ? times[0] : times[i];
      Shape expected = whole_.shape(node.outputs[i]);
      if (time != kNone)
        expected[static_cast<size_t>(time)] = steps_;
      if (b_.shape(results[i]) != expected)
        refuse_node(node, kJoinsSteps);
      set(node.outputs[i], results[i], time);
    }
  }

  void add_by_rule(const Node& node) {
    const ShardingRule rule = sharding_rule(whole_, node);
    std::vector<int> times_of_inputs;
    for (const ValueId input : node.inputs)
      times_of_inputs.push_back(time_of(input));
    const int factor = step_factor(node, rule, times_of_inputs);
    ValueList inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      const int dim = step_dim(node, rule.operands[i], factor);
      if (dim != time_of(input) && time_of(input) != kNone)
        refuse_node(node, kJoinsSteps);
      inputs.push_back(time_of(input) == kNone && dim != kNone ? rows_at(mapped(input), dim)
                                                               : mapped(input));
    }
    std::vector<int> times;
    for (const TensorFactors& result : rule.results) {
      times.push_back(step_dim(node, result, factor));
      if (times.back() == kNone)
        refuse_node(node, kJoinsSteps);
    }
    add_with_steps(node, std::move(inputs), times);
  }

  // --- positions -------------------------------------------------------------------------------

  ValueId positions() {  // (C,)
    is_bounded_ = true;
    return b_.add(b_.iota({steps_}, 0, DType::kInt32), position_);
  }

  // What belongs to these steps of a table that is the same in every run.
  ValueId rows_at(ValueId table, int dim) {
    std::vector<int64_t> order(b_.shape(table).size()), back(order.size());
    for (size_t d = 0; d < order.size(); ++d)
      order[d] = static_cast<int64_t>(d);
    std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
    for (size_t d = 0; d < order.size(); ++d)
      back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
    const bool is_bool = b_.dtype(table) == DType::kBool;
    if (is_bool)
      table = b_.cast(table, DType::kInt32);
    if (dim != 0)
      table = b_.transpose(table, order);
    ValueId rows = b_.gather_rows(table, positions());
    if (dim != 0)
      rows = b_.transpose(rows, back);
    return is_bool ? is_true(rows) : rows;
  }

  ValueId is_true(ValueId number) {
    return b_.binary("ne", number, b_.constant(0, b_.dtype(number)));
  }

  // --- caches ----------------------------------------------------------------------------------

  int add_cache(const Node& node, std::string_view name, const Shape& shape, DType dtype) {
    Variable variable;
    variable.path = fmt::format("cache/{}/{}", node.path, name);
    variable.shape = shape;
    variable.dtype = dtype;
    variable.role = VariableRole::kMetric;  // no optimizer updates it
    variable.trainable = false;
    Sharding& sharding = variable.layout.storage;
    sharding.dims.resize(shape.size());
    if (!layout_.dims.empty())
      sharding.dims[0] = layout_.dims[0];
    variable.layout.compute = variable.layout.grad = variable.layout.state = sharding;
    return b_.add_variable(std::move(variable));
  }

  ValueId read_cache(int variable) {
    const ValueId value = b_.variable_use(b_.parameter(variable));
    return rows_ == kNone ? value : b_.gather_rows(value, rows_);
  }

  // x (B, C, ...) of these steps behind those before: (B, T, ...). Steps to come are what was
  // there.
  ValueId with_earlier(const Node& node, std::string_view name, ValueId x) {
    const bool is_bool = b_.dtype(x) == DType::kBool;
    if (is_bool)
      x = b_.cast(x, DType::kInt32);
    Shape shape = b_.shape(x);
    shape[1] = length();
    const int variable = add_cache(node, name, shape, b_.dtype(x));
    const ValueId before = read_cache(variable);
    const ValueId step = b_.sub(b_.iota({length()}, 0, DType::kInt32), position_);
    ValueId is_new = b_.binary("ge", step, b_.constant(0, DType::kInt32));
    const ValueId is_past =
        b_.binary("lt", step, b_.constant(static_cast<double>(steps_), DType::kInt32));
    is_new = b_.binary("logical_and", is_new, is_past);
    Shape along(shape.size(), 1);
    along[1] = length();
    ValueId now = x;  // repeated over all steps where it is one
    if (steps_ > 1) {
      std::vector<int64_t> order(shape.size());
      for (size_t d = 0; d < order.size(); ++d)
        order[d] = static_cast<int64_t>(d);
      std::swap(order[0], order[1]);
      now = b_.transpose(b_.gather_rows(b_.transpose(x, order), step), order);
    }
    const ValueId all = b_.select(b_.reshape(is_new, along), now, before);
    b_.update(variable, all);
    is_bounded_ = true;
    return is_bool ? is_true(all) : all;
  }

  // The state of the last step of the run before, `initial` before the first step.
  ValueId earlier_state(int variable, ValueId initial) {
    const ValueId is_first = b_.binary("eq", position_, b_.constant(0, DType::kInt32));
    return b_.select(is_first, initial, read_cache(variable));
  }

  void add_attention(const Node& node) {
    const AttentionOperands at(node.attr_string("operands"), kAttentionInputs);
    const auto has = [&](AttentionOperand operand) { return at[operand] >= 0; };
    if (node.attr_int("causal") == 0)
      refuse_node(node, "reads later steps: it is not causal");
    for (size_t i = 0; i < kAttentionInputs; ++i) {
      if (time_of(node.inputs[i]) != 1 || whole_.shape(node.inputs[i])[1] != length())
        refuse_node(node, kJoinsSteps);
    }
    ValueList inputs = {mapped(node.inputs[0]), with_earlier(node, "key", mapped(node.inputs[1])),
                        with_earlier(node, "value", mapped(node.inputs[2]))};
    std::string names;
    const auto add = [&](AttentionOperand operand, ValueId value) {
      inputs.push_back(value);
      names += (names.empty() ? "" : " ") + std::string(attention_operand_name(operand));
    };
    const auto old = [&](AttentionOperand operand) {
      return node.inputs[static_cast<size_t>(at[operand])];
    };
    if (has(AttentionOperand::kQueryMask))
      add(AttentionOperand::kQueryMask, these_steps(old(AttentionOperand::kQueryMask), 1));
    if (has(AttentionOperand::kKeyMask)) {
      const ValueId mask = these_steps(old(AttentionOperand::kKeyMask), 1);
      add(AttentionOperand::kKeyMask, with_earlier(node, "mask", mask));
    }
    const auto table = [&](AttentionOperand operand) {
      if (time_of(old(operand)) != kNone)
        refuse_node(node, "has segments or positions that depend on the ids");
      return mapped(old(operand));
    };
    if (has(AttentionOperand::kQuerySegments)) {
      add(AttentionOperand::kQuerySegments, rows_at(table(AttentionOperand::kQuerySegments), 1));
      add(AttentionOperand::kKeySegments, table(AttentionOperand::kKeySegments));
    }
    const bool counts = has(AttentionOperand::kQueryPositions);
    const int64_t batch = input_shape()[0];
    add(AttentionOperand::kQueryPositions,
        counts ? rows_at(table(AttentionOperand::kQueryPositions), 1)
               : b_.broadcast_to(positions(), {batch, steps_}));
    add(AttentionOperand::kKeyPositions, counts ? table(AttentionOperand::kKeyPositions)
                                                : b_.iota({batch, length()}, 1, DType::kInt32));
    if (has(AttentionOperand::kMask)) {
      if (time_of(old(AttentionOperand::kMask)) != kNone)
        refuse_node(node, "has a mask of its own");
      add(AttentionOperand::kMask, these_steps(old(AttentionOperand::kMask), 2));
    }
    Attrs attrs = node.attrs;
    attrs["operands"] = names;
    const ValueList results = b_.add_node("attention", std::move(inputs), std::move(attrs));
    set(node.outputs[0], results[0], 1);
    set(node.outputs[1], results[1], 2);
  }

  // A value whose dimension `dim` has the steps: of the input, or of a table.
  ValueId these_steps(ValueId old, int dim) {
    return time_of(old) == kNone ? rows_at(mapped(old), dim) : mapped(old);
  }

  void add_scan(const Node& node) {
    const RnnOperands at(node);
    ValueList inputs = mapped_inputs(node);
    const auto input = [&](int i) -> ValueId& { return inputs[static_cast<size_t>(i)]; };
    const auto old = [&](int i) { return node.inputs[static_cast<size_t>(i)]; };
    if (time_of(old(at.x)) != 1 || time_of(old(at.h0)) != kNone)
      refuse_node(node, kJoinsSteps);
    if (at.mask >= 0)
      input(at.mask) = these_steps(old(at.mask), 1);
    std::vector<int> caches;
    for (const int i : {at.h0, at.c0}) {
      if (i < 0)
        continue;
      const Shape shape = b_.shape(input(i));
      caches.push_back(add_cache(node, i == at.h0 ? "h" : "c", shape, b_.dtype(input(i))));
      input(i) = earlier_state(caches.back(), input(i));
    }
    add_with_steps(node, std::move(inputs), {1});
    for (size_t i = 0; i < caches.size(); ++i) {
      const ValueId states = mapped(node.outputs[i]);
      b_.update(caches[i], b_.squeeze(b_.slice(states, 1, steps_ - 1, steps_), 1));
    }
  }

  // A convolution over steps that ends each window with its own step: its cache is what the first
  // windows of a run read of the steps before, which are zeros at the start of a sequence.
  void add_conv(const Node& node) {
    Window window = window_of(node.attrs);
    const int64_t earlier = window_reach(window, 0, whole_.shape(node.inputs[1])[0]) - 1;
    if (time_of(node.inputs[0]) != 1 || time_of(node.inputs[1]) != kNone ||
        window.strides[0] != 1 || window.pads_before[0] != earlier || window.pads_after[0] != 0)
      refuse_node(node, kJoinsSteps);
    ValueList inputs = mapped_inputs(node);
    if (earlier > 0) {
      Shape shape = b_.shape(inputs[0]);
      shape[1] = earlier;
      const DType dtype = b_.dtype(inputs[0]);
      const int variable = add_cache(node, "x", shape, dtype);
      const ValueId before = earlier_state(variable, b_.constant(0, dtype, shape));
      inputs[0] = b_.concat({before, inputs[0]}, 1);
      b_.update(variable, b_.slice(inputs[0], 1, steps_, steps_ + earlier));
    }
    window.pads_before[0] = 0;
    Attrs attrs = node.attrs;
    set_window(attrs, window);
    set(node.outputs[0], b_.add_node("conv", std::move(inputs), std::move(attrs))[0], 1);
  }

  const Graph& whole_;
  const std::span<const SequenceInput> inputs_;
  size_t next_input_ = 0;
  const int64_t steps_;
  const Sharding& layout_;
  Graph graph_;
  Builder b_;
  ValueId position_ = kNone, rows_ = kNone;
  std::vector<ValueId> map_;  // from values of the whole graph
  std::vector<int> time_;     // the dimension of steps of each value there; kNone: it has none
  bool is_bounded_ = false;
};

}  // namespace

IncrementalGraph make_incremental(const Graph& whole, std::span<const SequenceInput> inputs,
                                  int64_t steps, bool reorders_rows, const Sharding& batch_layout) {
  IncrementalGraph result;
  try {
    IncrementalBuilder builder(whole, inputs, steps, reorders_rows, batch_layout);
    builder.add_all();
    result.is_bounded = builder.is_bounded();
    result.graph = builder.take();
  } catch (const StepObstacle& obstacle) {
    result.obstacle = obstacle.text;
  }
  return result;
}

}  // namespace meshtrain
