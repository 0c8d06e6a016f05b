// Windows, attention and recurrence as ONNX has them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "interop/onnx/onnx_ops.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/rnn.h"
#include "ir/ops/window.h"

namespace meshtrain {
namespace {

using Sizes = std::vector<int64_t>;

// (N, spatial..., C) to (N, C, spatial...), and back.
Sizes channels_first(size_t rank) {
  Sizes out = {0, static_cast<int64_t>(rank) - 1};
  for (size_t i = 1; i + 1 < rank; ++i) {
    out.push_back(static_cast<int64_t>(i));
  }
  return out;
}
Sizes channels_last(size_t rank) {
  Sizes out = {0};
  for (size_t i = 2; i < rank; ++i) {
    out.push_back(static_cast<int64_t>(i));
  }
  out.push_back(1);
  return out;
}

// A kernel (k..., c, F) to (F, c, k...).
Sizes filters_first(size_t rank) {
  Sizes out = {static_cast<int64_t>(rank) - 1, static_cast<int64_t>(rank) - 2};
  for (size_t i = 0; i + 2 < rank; ++i) {
    out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

Sizes joined(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

OnnxTensor OnnxOps::window(const Node& node, std::string& problem) {
  const std::string_view op = node.op->name;
  const Window window = window_of(node.attrs);
  const size_t rank = graphs_[0].shape(node.inputs[0]).size();
  const OnnxTensor x = g_.transpose(in(node, 0), channels_first(rank));
  OnnxGraph::Attributes attributes = {{"strides", window.strides},
                                      {"pads", joined(window.pads_before, window.pads_after)}};
  const auto last = [&](const OnnxTensor& y) { return g_.transpose(y, channels_last(rank)); };
  if (op == "max_pool" || op == "avg_pool") {
    const bool is_dilated = std::any_of(window.dilations.begin(), window.dilations.end(),
                                        [](int64_t d) { return d != 1; });
    if (is_dilated && op == "avg_pool") {
      problem = "a mean over cells that are apart";
      return "";
    }
    attributes.emplace_back("kernel_shape", node.attr_ints("size"));
    if (is_dilated) {
      attributes.emplace_back("dilations", window.dilations);
    }
    return last(g_.add(op == "max_pool" ? "MaxPool" : "AveragePool", {x}, attributes));
  }
  const OnnxTensor kernel = g_.transpose(in(node, 1), filters_first(rank));
  const Shape& sizes = graphs_[0].shape(node.inputs[1]);
  attributes.emplace_back("kernel_shape", Sizes(sizes.begin(), sizes.end() - 2));
  attributes.emplace_back("dilations", window.dilations);
  const Shape &from = graphs_[0].shape(node.inputs[0]), &to = graphs_[0].shape(node.outputs[0]);
  const int64_t channels = op == "conv" ? from.back() : to.back();
  attributes.emplace_back("group", channels / sizes[rank - 2]);
  if (op == "conv") {
    return last(g_.add("Conv", {x, kernel}, attributes));
  }
  Sizes extra;  // what the windows do not reach
  for (size_t d = 0; d + 2 < rank; ++d) {
    extra.push_back(to[d + 1] -
                    (window.strides[d] * (from[d + 1] - 1) + window_reach(window, d, sizes[d]) -
                     window.pads_before[d] - window.pads_after[d]));
  }
  attributes.emplace_back("output_padding", extra);
  return last(g_.add("ConvTranspose", {x, kernel}, attributes));
}

// Of each query and key whether the key is seen; "" where all are.
OnnxTensor OnnxOps::allowed_pairs(const Node& node, int64_t queries, int64_t keys) {
  const AttentionOperands at(node.attr_string("operands"), kAttentionInputs);
  const bool causal = node.attr_int("causal") != 0;
  const int64_t window = node.attr_int("window");
  OnnxTensor out;
  const auto both = [&](const OnnxTensor& mask) {
    out = out.empty() ? mask : g_.add("And", {out, mask});
  };
  // (B, T) beside (B, S), each as (B, 1, T, S).
  const auto rows = [&](AttentionOperand operand) {
    return g_.reshape(in(node, static_cast<size_t>(at[operand])), {-1, 1, queries, 1});
  };
  const auto columns = [&](AttentionOperand operand) {
    return g_.reshape(in(node, static_cast<size_t>(at[operand])), {-1, 1, 1, keys});
  };
  using Operand = AttentionOperand;
  if (at[Operand::kQueryMask] >= 0) {
    both(rows(Operand::kQueryMask));
  }
  if (at[Operand::kKeyMask] >= 0) {
    both(columns(Operand::kKeyMask));
  }
  if (at[Operand::kMask] >= 0) {
    both(in(node, static_cast<size_t>(at[Operand::kMask])));
  }
  if (at[Operand::kQuerySegments] >= 0) {
    both(g_.add("Equal", {rows(Operand::kQuerySegments), columns(Operand::kKeySegments)}));
  }
  if (at[Operand::kQueryPositions] >= 0) {
    const OnnxTensor i = rows(Operand::kQueryPositions), j = columns(Operand::kKeyPositions);
    if (causal) {
      both(g_.add("GreaterOrEqual", {i, j}));
    }
    if (window > 0) {
      const DType type = dtype(node.inputs[static_cast<size_t>(at[Operand::kQueryPositions])]);
      both(g_.add("Less", {g_.add("Abs", {g_.add("Sub", {i, j})}),
                           g_.scalar(static_cast<double>(window), type)}));
    }
  } else if (causal || window > 0) {
    HostTensor pairs(DType::kBool, Shape{queries, keys});
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        const bool is_near = window == 0 || std::abs(i - j) < window;
        pairs.set(i * keys + j, (!causal || i >= j) && is_near ? 1 : 0);
      }
    }
    both(g_.initializer(pairs, "pairs"));
  }
  return out;
}

OnnxTensor OnnxOps::attention(const Node& node, std::string& problem) {
  if (node.attr_double("rate") > 0) {
    problem = "dropout";
    return "";
  }
  const Shape &q = graphs_[0].shape(node.inputs[0]), &k = graphs_[0].shape(node.inputs[1]),
              &v = graphs_[0].shape(node.inputs[2]);
  const int64_t queries = q[1], heads = q[2], keys = k[1], groups = k[2];
  const DType type = dtype(node.inputs[0]);
  // (B, S, G, D) to (B, H, S, D): each head of keys serves several of queries.
  const auto by_head = [&](size_t input, int64_t size) {
    const OnnxTensor x = g_.transpose(in(node, input), {0, 2, 1, 3});
    if (groups == heads) {
      return x;
    }
    const OnnxTensor each = g_.reshape(x, {-1, groups, 1, keys, size});
    return g_.reshape(g_.add("Expand", {each, g_.integers({1, 1, heads / groups, 1, 1})}),
                      {-1, heads, keys, size});
  };
  const OnnxTensor query = g_.transpose(in(node, 0), {0, 2, 1, 3});
  const OnnxTensor key = g_.transpose(by_head(1, k[3]), {0, 1, 3, 2});
  const OnnxTensor score =
      g_.add("Mul", {g_.add("MatMul", {query, key}), g_.scalar(node.attr_double("scale"), type)});
  const OnnxTensor allowed = allowed_pairs(node, queries, keys);
  OnnxTensor weight;
  if (allowed.empty()) {
    weight = g_.add("Softmax", {score}, {{"axis", int64_t{-1}}});
  } else {  // a row without an allowed key is zeros
    const double lowest = type == DType::kFloat16 ? -65504 : -1e30;
    const OnnxTensor zero = g_.scalar(0, type);
    const OnnxTensor seen = g_.add("Where", {allowed, score, g_.scalar(lowest, type)});
    const OnnxTensor most =
        g_.add("ReduceMax", {seen}, {{"axes", Sizes{-1}}, {"keepdims", int64_t{1}}});
    const OnnxTensor power =
        g_.add("Where", {allowed, g_.add("Exp", {g_.add("Sub", {seen, most})}), zero});
    const OnnxTensor sum =
        g_.add("ReduceSum", {power, g_.integers({-1})}, {{"keepdims", int64_t{1}}});
    const OnnxTensor is_none = g_.add("Equal", {sum, zero});
    weight = g_.add("Div", {power, g_.add("Where", {is_none, g_.scalar(1, type), sum})});
  }
  const OnnxTensor out = g_.add("MatMul", {weight, by_head(2, v[3])});
  return g_.transpose(out, {0, 2, 1, 3});
}

OnnxTensor OnnxOps::rotary(const Node& node) {
  const Shape& x = graphs_[0].shape(node.inputs[0]);
  const int64_t half = x[3] / 2;
  const auto angle = [&](size_t input) {  // (B or 1, T, half) beside (B, T, H, half)
    return g_.reshape(in(node, input), {0, x[1], 1, half});
  };
  const OnnxTensor cosine = angle(1);
  const OnnxTensor sine = node.attr_int("inverse") != 0 ? g_.add("Neg", {angle(2)}) : angle(2);
  const OnnxTensor a = g_.slice(in(node, 0), 3, 0, half), b = g_.slice(in(node, 0), 3, half, x[3]);
  const auto product = [&](const OnnxTensor& p, const OnnxTensor& q) {
    return g_.add("Mul", {p, q});
  };
  return g_.add("Concat",
                {g_.add("Sub", {product(a, cosine), product(b, sine)}),
                 g_.add("Add", {product(b, cosine), product(a, sine)})},
                {{"axis", int64_t{3}}});
}

// The cell as the body of a loop over the steps (formulas: ir/ops/rnn.cc).
namespace {

// An activation of scan_rnn (ir/ops/rnn.h).
OnnxTensor rnn_activation(OnnxGraph& g, const std::string& name, const OnnxTensor& x, DType type) {
  static const std::map<std::string, std::pair<const char*, OnnxGraph::Attributes>> kOps = {
      {"tanh", {"Tanh", {}}},
      {"sigmoid", {"Sigmoid", {}}},
      {"relu", {"Relu", {}}},
      {"hard_sigmoid", {"HardSigmoid", {{"alpha", 1 / 6.0}, {"beta", 0.5}}}},
      {"softplus", {"Softplus", {}}},
      {"softsign", {"Softsign", {}}},
      {"elu", {"Elu", {}}},
      {"selu", {"Selu", {}}},
      {"leaky_relu", {"LeakyRelu", {{"alpha", 0.2}}}},
      {"exponential", {"Exp", {}}}};
  if (name == "linear") {
    return x;
  }
  if (name == "relu6" || name == "hard_tanh") {
    const bool is_relu = name == "relu6";
    return g.add("Clip", {x, g.scalar(is_relu ? 0 : -1, type), g.scalar(is_relu ? 6 : 1, type)});
  }
  const auto& [op, attributes] = kOps.at(name);
  return g.add(op, {x}, attributes);
}

}  // namespace

void OnnxOps::scan(const Node& node) {
  const RnnOperands at(node);
  const Shape &state = graphs_[0].shape(node.inputs[2]), &window = graphs_[0].shape(node.inputs[1]);
  const size_t rank = state.size();
  const int64_t units = state.back(), columns = at.gates * units;
  constexpr int64_t kAnySize = -2;          // the batch, or batch x steps within a TimeDistributed
  const auto at_step = [&](int64_t last) {  // of the batch, and of images
    Sizes out = {kAnySize};
    out.insert(out.end(), state.begin() + 1, state.end() - 1);
    out.push_back(last);
    return out;
  };
  const DType type = dtype(node.inputs[0]);
  onnx::GraphProto body;
  body.set_name(node.path);
  OnnxGraph g(body, node.path + "/step/");
  const auto named = [&](const char* name) { return node.path + "/step/in/" + name; };
  const auto declare = [&](const OnnxTensor& name, DType dtype, const Sizes& shape) {
    OnnxGraph::declare(*body.add_input(), name, dtype, shape);
    return name;
  };
  const OnnxTensor h = declare(named("h"), type, at_step(units));
  const OnnxTensor c = at.is_lstm ? declare(named("c"), type, at_step(units)) : "";
  const OnnxTensor x = declare(named("x"), type, at_step(columns));
  const OnnxTensor valid = at.mask < 0 ? "" : declare(named("mask"), DType::kBool, {kAnySize});

  const auto part = [&](const OnnxTensor& of, int64_t gate) {
    const auto axis = static_cast<int64_t>(rank) - 1;
    return at.gates == 1 ? of : g.slice(of, axis, gate * units, (gate + 1) * units);
  };
  const auto act = [&](const char* attribute, const OnnxTensor& value) {
    return rnn_activation(g, node.attr_string(attribute), value, type);
  };
  const auto f = [&](const OnnxTensor& value) { return act("activation", value); };
  const auto s = [&](const OnnxTensor& value) { return act("recurrent_activation", value); };
  const auto sum = [&](const OnnxTensor& p, const OnnxTensor& q) { return g.add("Add", {p, q}); };
  const auto product = [&](const OnnxTensor& p, const OnnxTensor& q) {
    return g.add("Mul", {p, q});
  };
  const OnnxTensor& kernel = in(node, static_cast<size_t>(at.kernel));
  Sizes pads;  // of a convolution that keeps the sizes
  for (const int64_t extra : {-1, 0}) {
    for (size_t d = 0; d + 2 < rank; ++d) {
      pads.push_back((window[d] + extra) / 2);
    }
  }
  // The state times some columns of the kernel.
  const auto times = [&](const OnnxTensor& factor, int64_t begin, int64_t end) {
    const bool is_whole = end - begin == columns;
    const auto axis = static_cast<int64_t>(rank) - 1;
    const OnnxTensor part = is_whole ? kernel : g.slice(kernel, axis, begin, end);
    if (rank == 2) {
      return g.add("MatMul", {factor, part});
    }
    const OnnxTensor y = g.add(
        "Conv", {g.transpose(factor, channels_first(rank)), g.transpose(part, filters_first(rank))},
        {{"pads", pads}});
    return g.transpose(y, channels_last(rank));
  };
  OnnxTensor new_h, new_c;
  if (!at.is_gru) {
    const OnnxTensor all = sum(x, times(h, 0, columns));
    if (at.is_lstm) {
      new_c = sum(product(s(part(all, 1)), c), product(s(part(all, 0)), f(part(all, 2))));
      new_h = product(s(part(all, 3)), f(new_c));
    } else {
      new_h = f(all);
    }
  } else {
    OnnxTensor q, content;
    if (at.is_reset_after) {
      q = sum(times(h, 0, columns), in(node, static_cast<size_t>(at.bias)));
    } else {
      q = times(h, 0, 2 * units);
    }
    const OnnxTensor z = s(sum(part(x, 0), part(q, 0))), r = s(sum(part(x, 1), part(q, 1)));
    content = at.is_reset_after ? product(r, part(q, 2)) : times(product(r, h), 2 * units, columns);
    const OnnxTensor fresh = f(sum(part(x, 2), content));
    const OnnxTensor rest = g.add("Sub", {g.scalar(1, type), z});
    new_h = sum(product(z, h), product(rest, fresh));
  }
  if (!valid.empty()) {
    Sizes ones(rank, 1);
    ones[0] = -1;
    const OnnxTensor row = g.reshape(valid, ones);
    new_h = g.add("Where", {row, new_h, h});
    new_c = at.is_lstm ? g.add("Where", {row, new_c, c}) : "";
  }
  std::vector<OnnxTensor> results = {new_h};
  if (at.is_lstm) {
    results.push_back(new_c);
  }
  for (int copy = 0; copy < 2; ++copy) {  // the states, then what each step gives
    for (const OnnxTensor& result : results) {
      OnnxGraph::declare(*body.add_output(), g.add("Identity", {result}), type, at_step(units));
    }
  }

  std::vector<OnnxTensor> inputs = {in(node, 2)};
  if (at.is_lstm) {
    inputs.push_back(in(node, static_cast<size_t>(at.c0)));
  }
  inputs.push_back(in(node, 0));
  if (at.mask >= 0) {
    inputs.push_back(in(node, static_cast<size_t>(at.mask)));
  }
  const int64_t scanned = at.mask >= 0 ? 2 : 1;
  const std::vector<OnnxTensor> found =
      g_.add_several("Scan", inputs, 2 * results.size(),
                     {{"num_scan_inputs", scanned},
                      {"scan_input_axes", Sizes(static_cast<size_t>(scanned), 1)},
                      {"scan_output_axes", Sizes(results.size(), 1)}},
                     &body);
  for (size_t i = 0; i < results.size(); ++i) {
    names_[node.outputs[i]] = found[results.size() + i];
  }
}

}  // namespace meshtrain
