// Recurrent cells over all steps of a sequence.
//
//   op             operands                                  results
//   scan_rnn       x, R, h0 [, c0] [, b] [, mask] [, drop]   h [, c] [, gates]
//   scan_rnn_grad  those of scan_rnn, but gates in place     dx, dh0 [, dc0] [, extra]
//                  of x; h [, c], dh [, dc]
//
// x (B, T, S..., G U) is the product of the inputs with the kernel, with its bias; R (K..., U, G
// U); h0 and c0 (B, S..., U); b (G U), of gru_reset_after only; mask (B, T) bool; drop (B, S..., G
// U): what the states are multiplied with before the product of each gate; h and c (B, T, S..., U).
// S are the sizes of images, none or up to three, and K a window's: then h R is a convolution that
// keeps the sizes (padding "same", (k - 1) / 2 cells before). With q = h R:
//   simple           h' = f(x + q)
//   lstm             i, f, g, o = x + q; c' = s(f) c + s(i) f(g); h' = s(o) f(c')
//   gru_reset_after  z = s(x_z + q_z + b_z), r = s(x_r + q_r + b_r),
//                    g = f(x_g + r (q_g + b_g)); h' = z h + (1 - z) g
//   gru              the same without b, and g = f(x_g + (r h) R_g)
// Where the mask is false, h and c stay what they were. Source: Keras 3 layers/rnn.
//
// Attributes: cell; activation (f) and recurrent_activation (s), of rnn_activations(), whose slopes
// are known from their values; has_mask, has_drop and keeps_gates (0 or 1). The last asks for the
// gates, without which there is no gradient: (B, T, S..., 4 U) i, f, g, o; z, r, g, q_g + b_g of
// gru_reset_after; (B, T, 3 U) z, r, g of gru; 0 where the mask is false. The cell simple has h.
// x is free before the backward pass, and that has no product to do again. The gradient of R is a
// product of all steps, outside of the scan. `extra` is what that needs beside dx: of
// gru_reset_after the cotangent of q + b, of gru the states r h, dropped.
//
// The batch passes. Every unit of a step needs all units of the step before, of its neighbours too:
// images, units and steps must be whole, so a kernel that is split by units is gathered once,
// before the scan.
#include "ir/ops/rnn.h"

#include <algorithm>
#include <numeric>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {

RnnOperands::RnnOperands(const Node& node) {
  const std::string& cell = node.attr_string("cell");
  is_lstm = cell == "lstm";
  is_reset_after = cell == "gru_reset_after";
  is_gru = is_reset_after || cell == "gru";
  MESHTRAIN_OP_CHECK(node, is_lstm || is_gru || cell == "simple", "cell {}", cell);
  gates = is_lstm ? 4 : is_gru ? 3 : 1;
  if (is_lstm)
    c0 = size++;
  if (is_reset_after)
    bias = size++;
  if (node.attr_int("has_mask") != 0)
    mask = size++;
  if (node.attr_int("has_drop") != 0)
    drop = size++;
  int next = size;
  h = next++;
  if (is_lstm)
    c = next++;
  dh = next++;
  if (is_lstm)
    dc = next++;
  const bool keeps = node.attr_int("keeps_gates") != 0;
  MESHTRAIN_OP_CHECK(node, !keeps || gates > 1, "cell {} has no gates", cell);
  kept = !keeps ? -1 : is_lstm ? 2 : 1;
  gate_columns = is_reset_after ? 4 : gates;
  results = 2;
  if (is_lstm)
    dc0 = results++;
  if (is_gru)
    extra = results++;
}

std::span<const std::string_view> rnn_activations() {
  static constexpr std::string_view kNames[] = {
      "tanh",     "sigmoid", "relu", "linear",     "hard_sigmoid", "relu6",    "softplus",
      "softsign", "elu",     "selu", "leaky_relu", "exponential",  "hard_tanh"};
  return kNames;
}

namespace {

using Types = std::vector<ValueType>;
using Ids = std::vector<ValueId>;
using Operands = std::span<const ValueType>;

void check_activation(const Node& node, std::string_view attr) {
  const std::string& name = node.attr_string(attr);
  MESHTRAIN_OP_CHECK(node, std::ranges::find(rnn_activations(), name) != rnn_activations().end(),
                     "{} {}", attr, name);
}

// `first`, the sizes of images in the state h0, then `last`.
Shape with_space(Shape first, const Shape& h0, int64_t last) {
  first.insert(first.end(), h0.begin() + 1, h0.end() - 1);
  first.push_back(last);
  return first;
}

// Checks what both ops have; the sizes are those of h0, of operand 0, which has `first` columns of
// each unit, and of the window of R. Returns the type of h.
ValueType sequence_type(const Node& node, Operands operands, const RnnOperands& at, int64_t first) {
  check_activation(node, "activation");
  check_activation(node, "recurrent_activation");
  const ValueType &x = operands[0], &kernel = operands[1], &h0 = operands[2];
  const size_t rank = h0.shape.size();
  MESHTRAIN_OP_CHECK(node,
                     is_floating(x.dtype) && rank >= 2 && rank <= 5 && x.shape.size() == rank + 1 &&
                         kernel.shape.size() == rank,
                     "x is {} {}, R {}, h0 {}", dtype_name(x.dtype), shape_string(x.shape),
                     shape_string(kernel.shape), shape_string(h0.shape));
  const int64_t batch = x.shape[0], steps = x.shape[1], units = h0.shape.back();
  const int64_t columns = at.gates * units;
  const auto check = [&](int i, const Shape& shape, DType dtype) {
    MESHTRAIN_OP_CHECK(node, i < 0 || operands[static_cast<size_t>(i)] == (ValueType{shape, dtype}),
                       "operand {} is not {} {}", i, dtype_name(dtype), shape_string(shape));
  };
  Shape window(kernel.shape.begin(), kernel.shape.end() - 2);
  window.insert(window.end(), {units, columns});
  check(at.x, with_space({batch, steps}, h0.shape, first * units), x.dtype);
  check(at.kernel, window, x.dtype);
  check(at.h0, with_space({batch}, h0.shape, units), x.dtype);
  check(at.c0, h0.shape, x.dtype);
  check(at.bias, {columns}, x.dtype);
  check(at.mask, {batch, steps}, DType::kBool);
  check(at.drop, with_space({batch}, h0.shape, columns), x.dtype);
  return {with_space({batch, steps}, h0.shape, units), x.dtype};
}

Types scan_types(const Node& node, Operands operands) {
  const RnnOperands at(node);
  check_num_operands(node, operands, static_cast<size_t>(at.size));
  Types out(at.is_lstm ? 2 : 1, sequence_type(node, operands, at, at.gates));
  if (at.kept >= 0) {
    out.push_back(out[0]);
    out.back().shape.back() *= at.gate_columns;
  }
  return out;
}

Types grad_types(const Node& node, Operands operands) {
  const RnnOperands at(node);
  check_num_operands(node, operands, static_cast<size_t>(at.size + (at.is_lstm ? 4 : 2)));
  const ValueType h = sequence_type(node, operands, at, at.gate_columns);
  ValueType x = h;
  x.shape.back() *= at.gates;
  for (size_t i = static_cast<size_t>(at.size); i < operands.size(); ++i)
    MESHTRAIN_OP_CHECK(node, operands[i] == h, "operand {}", i);
  Types out(static_cast<size_t>(at.results), operands[2]);
  out[0] = x;
  if (at.extra >= 0)
    out.back() = at.is_reset_after ? x : h;
  return out;
}

ShardingRule scan_rule(const Node& node, std::span<const Shape> operands,
                       std::span<const Shape> results) {
  const RnnOperands at(node);
  RuleBuilder rule;
  const int batch = rule.pass(operands[0][0]);
  const auto factors = [&](const Shape& shape, bool has_batch) {
    TensorFactors out;
    for (size_t i = 0; i < shape.size(); ++i)
      out.push_back({has_batch && i == 0 ? batch : rule.gather(shape[i])});
    return out;
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool is_weight = static_cast<int>(i) == at.kernel || static_cast<int>(i) == at.bias;
    rule.operand(factors(operands[i], !is_weight));
  }
  for (const Shape& shape : results)
    rule.result(factors(shape, true));
  return rule.take();
}

double scan_flops(const Node&, std::span<const Shape> operands, std::span<const Shape>) {
  double rows = 1;  // steps and pixels of the batch
  for (size_t i = 0; i + 1 < operands[0].size(); ++i)
    rows *= static_cast<double>(operands[0][i]);
  return 2 * rows * static_cast<double>(num_elements(operands[1]));
}

// The window of the recurrent convolution.
Window same_window(const Shape& kernel) {
  const size_t rank = kernel.size() - 2;
  Window out{std::vector<int64_t>(rank, 1), std::vector<int64_t>(rank, 1), {}, {}};
  for (size_t d = 0; d < rank; ++d) {
    out.pads_before.push_back((kernel[d] - 1) / 2);
    out.pads_after.push_back(kernel[d] / 2);
  }
  return out;
}

// The transpose in R of the product of `states` with R, for `cotangent`, those of some columns.
ValueId transposed_product(Builder& b, ValueId states, ValueId cotangent, const Shape& kernel) {
  if (kernel.size() == 2)
    return b.einsum("btu,btg->ug", {states, cotangent});
  Shape shape = kernel;
  shape.back() = b.shape(cotangent).back();
  const auto images = [&](ValueId value) {  // of all steps
    Shape joined = b.shape(value);
    joined.erase(joined.begin());
    joined[0] *= b.shape(value)[0];
    return b.reshape(value, joined);
  };
  return b.conv_wgrad(images(states), images(cotangent), same_window(kernel), shape);
}

// The gradient of R: of each step's state with the cotangent of its product, as one product.
ValueId kernel_gradient(Builder& b, const Node& forward, const RnnOperands& at,
                        const ValueList& grads) {
  const ValueId h = forward.outputs[0], dx = grads[0];
  const Shape shape = b.shape(h), kernel = b.shape(forward.inputs[1]);
  const int64_t steps = shape[1], units = shape.back();
  ValueId before = b.expand_dims(forward.inputs[2], 1);
  if (steps > 1)
    before = b.concat({before, b.slice(h, 1, 0, steps - 1)}, 1);
  const auto product = [&](ValueId states, ValueId cotangent) {
    return transposed_product(b, states, cotangent, kernel);
  };
  const auto gates_of = [&](ValueId value, int64_t first, int64_t last) {
    const auto axis = static_cast<int64_t>(b.shape(value).size()) - 1;
    return b.slice(value, axis, first * units, last * units);
  };
  const int64_t columns = static_cast<int64_t>(kernel.size()) - 1;
  // Of the first gates. Where states are dropped, those of each gate are others.
  const auto products = [&](ValueId cotangent, int64_t gates) {
    if (at.drop < 0)
      return product(before, gates_of(cotangent, 0, gates));
    const ValueId drop = forward.inputs[static_cast<size_t>(at.drop)];
    ValueList parts;
    for (int64_t gate = 0; gate < gates; ++gate) {
      const ValueId seen = b.mul(before, b.expand_dims(gates_of(drop, gate, gate + 1), 1));
      parts.push_back(product(seen, gates_of(cotangent, gate, gate + 1)));
    }
    return parts.size() == 1 ? parts[0] : b.concat(parts, columns);
  };
  if (!at.is_gru)
    return products(dx, at.gates);
  const ValueId extra = grads[static_cast<size_t>(at.extra)];
  if (at.is_reset_after)
    return products(extra, at.gates);
  return b.concat({products(dx, 2), product(extra, gates_of(dx, 2, 3))}, columns);
}

Ids scan_vjp(Builder& b, const Node& node, std::span<const ValueId> g) {
  const Node forward = node;  // the graph grows
  const RnnOperands at(forward);
  MESHTRAIN_OP_CHECK(node, at.kept >= 0 || at.gates == 1, "a gradient without gates");
  MESHTRAIN_OP_CHECK(node, at.kept < 0 || g[static_cast<size_t>(at.kept)] == kNone,
                     "a gradient of gates");
  const std::span<const ValueId> states = std::span(forward.outputs).first(at.is_lstm ? 2 : 1);
  ValueList inputs = forward.inputs;
  inputs[0] = forward.outputs[at.kept >= 0 ? static_cast<size_t>(at.kept) : 0];
  inputs.insert(inputs.end(), states.begin(), states.end());
  for (size_t i = 0; i < states.size(); ++i)
    inputs.push_back(g[i] != kNone ? g[i] : b.constant(0, b.dtype(states[i]), b.shape(states[i])));
  const ValueList grads = b.add_node("scan_rnn_grad", std::move(inputs), forward.attrs);
  Ids out(forward.inputs.size(), kNone);
  out[0] = grads[0];
  out[1] = kernel_gradient(b, forward, at, grads);
  out[2] = grads[1];
  if (at.c0 >= 0)
    out[static_cast<size_t>(at.c0)] = grads[static_cast<size_t>(at.dc0)];
  if (at.bias >= 0) {
    const ValueId extra = grads[static_cast<size_t>(at.extra)];
    std::vector<int64_t> rows(b.shape(extra).size() - 1);
    std::iota(rows.begin(), rows.end(), 0);
    out[static_cast<size_t>(at.bias)] = b.reduce_sum(extra, rows);
  }
  return out;
}

}  // namespace

std::vector<OpDef> rnn_ops() {
  OpDef scan;
  scan.name = "scan_rnn";
  scan.infer = scan_types;
  scan.rule = scan_rule;
  scan.vjp = scan_vjp;
  scan.flops = scan_flops;
  scan.is_product = true;
  scan.spare_result = "keeps_gates";
  OpDef grad = scan;
  grad.name = "scan_rnn_grad";
  grad.infer = grad_types;
  grad.vjp = nullptr;
  grad.spare_result = {};
  return {std::move(scan), std::move(grad)};
}

}  // namespace meshtrain
