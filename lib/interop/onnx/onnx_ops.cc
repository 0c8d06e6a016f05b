#include "interop/onnx/onnx_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "engine/step_graph.h"
#include "ir/op.h"
#include "ir/ops/einsum.h"

namespace meshtrain {
namespace {

// Ops that are one of ONNX with the same operands.
const std::map<std::string_view, const char*> kSame = {
    {"neg", "Neg"},       {"exp", "Exp"},           {"log", "Log"},
    {"tanh", "Tanh"},     {"sigmoid", "Sigmoid"},   {"softplus", "Softplus"},
    {"sqrt", "Sqrt"},     {"abs", "Abs"},           {"sign", "Sign"},
    {"erf", "Erf"},       {"sin", "Sin"},           {"cos", "Cos"},
    {"floor", "Floor"},   {"round", "Round"},       {"reciprocal", "Reciprocal"},
    {"relu", "Relu"},     {"logical_not", "Not"},   {"add", "Add"},
    {"sub", "Sub"},       {"mul", "Mul"},           {"div", "Div"},
    {"max", "Max"},       {"min", "Min"},           {"pow", "Pow"},
    {"eq", "Equal"},      {"lt", "Less"},           {"le", "LessOrEqual"},
    {"gt", "Greater"},    {"ge", "GreaterOrEqual"}, {"logical_and", "And"},
    {"logical_or", "Or"}, {"select", "Where"},      {"stop_gradient", "Identity"},
};

bool has_batch(const std::vector<int64_t>& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; });
}

}  // namespace

OnnxOps::OnnxOps(const Model& model, std::array<Graph, 2> graphs, std::array<int64_t, 2> batches,
                 const std::vector<NamedTensor>& weights, onnx::GraphProto& out)
    : model_(model),
      graphs_(std::move(graphs)),
      batches_(batches),
      weights_(weights),
      out_(out),
      g_(out, ""),
      names_(graphs_[0].values.size()) {
  // By the model: a graph lacks inputs of which only the shape counts.
  for (size_t i = 0; i < model_.inputs().size(); ++i) {
    const Model::Call& call = model_.calls()[static_cast<size_t>(model_.inputs()[i])];
    const auto node =
        std::find_if(graphs_[0].nodes.begin(), graphs_[0].nodes.end(), [&](const Node& each) {
          return each.op->name == "input" && each.attr_string("name") == input_name(i);
        });
    std::vector<int64_t> shape(call.output_shape.begin(), call.output_shape.end());
    DType type = call.dtype;
    if (node != graphs_[0].nodes.end()) {
      const ValueId value = node->outputs[0];
      names_[value] = call.name;
      type = dtype(value);
      shape = sizes(value);
    }
    OnnxGraph::declare(*out_.add_input(), call.name, type, shape);
  }
  g_.set_scope("batch");
  batch_ = g_.slice(g_.add("Shape", {out_.input(0).name()}), 0, 0, 1);
}

std::vector<int64_t> OnnxOps::sizes(ValueId value) const {
  const Shape &a = graphs_[0].shape(value), &b = graphs_[1].shape(value);
  MESHTRAIN_CHECK(a.size() == b.size(), "{} and {}", shape_string(a), shape_string(b));
  std::vector<int64_t> out(a.begin(), a.end());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      const int64_t times = a[i] / batches_[0];
      MESHTRAIN_CHECK(a[i] == times * batches_[0] && b[i] == times * batches_[1], "{} and {}",
                      shape_string(a), shape_string(b));
      out[i] = -times;
    }
  }
  return out;
}

OnnxTensor OnnxOps::shape_tensor(const std::vector<int64_t>& sizes) {
  if (!has_batch(sizes)) {
    return g_.integers(sizes);
  }
  std::vector<OnnxTensor> parts;
  for (const int64_t size : sizes) {
    parts.push_back(size >= 0    ? g_.integers({size})
                    : size == -1 ? batch_
                                 : g_.add("Mul", {batch_, g_.integers({-size})}));
  }
  return parts.size() == 1 ? parts[0] : g_.add("Concat", parts, {{"axis", int64_t{0}}});
}

std::vector<int64_t> OnnxOps::reshape_sizes(ValueId value) const {
  std::vector<int64_t> out = sizes(value);
  for (int64_t& size : out) {
    size = std::max<int64_t>(size, -1);
  }
  MESHTRAIN_CHECK(std::count(out.begin(), out.end(), -1) <= 1, "{}",
                  shape_string(graphs_[0].shape(value)));
  return out;
}

std::string OnnxOps::add(const Node& node, NodeId id) {
  g_.set_scope(node.path);
  std::string problem;
  const std::string_view op = node.op->name;
  if (op == "input") {
    return "";  // known from the beginning
  }
  if (op == "scan_rnn") {
    scan(node);
  } else if (op == "top_k") {
    const std::vector<OnnxTensor> found = g_.add_several(
        "TopK", {in(node, 0), g_.integers({node.attr_int("k")})}, 2, {{"axis", int64_t{-1}}});
    names_[node.outputs[0]] = found[0];
    names_[node.outputs[1]] = g_.cast(found[1], DType::kInt32);
  } else if (op == "attention") {
    const std::vector<int> uses = graphs_[0].use_counts();
    if (uses[node.outputs[1]] > 0) {
      return "the sum of attention's exponentials";
    }
    names_[node.outputs[0]] = attention(node, problem);
  } else {
    names_[node.outputs[0]] = one_result(node, id, problem);
  }
  return problem;
}

OnnxTensor OnnxOps::one_result(const Node& node, NodeId id, std::string& problem) {
  const std::string_view op = node.op->name;
  if (op == "var_use" || op == "pin") {
    return in(node, 0);
  }
  if (op == "parameter" || op == "constant" || op == "iota") {
    return source(node, id, problem);
  }
  if (op == "broadcast" || op == "transpose" || op == "reshape" || op == "slice" || op == "pad" ||
      op == "concat" || op == "reverse") {
    return moved(node, id, problem);
  }
  if (op.starts_with("reduce_") || op == "argmax" || op == "cumsum") {
    return reduced(node, problem);
  }
  if (op == "einsum") {
    return einsum(node);
  }
  if (op == "conv" || op == "conv_dgrad" || op == "max_pool" || op == "avg_pool") {
    return window(node, problem);
  }
  if (op == "rotary") {
    return rotary(node);
  }
  if (op == "gather_rows")
    return gathered(node);
  if (op == "one_hot") {
    HostTensor classes(DType::kInt32, Shape{node.attr_int("num_classes")});
    std::iota(classes.data<int32_t>(), classes.data<int32_t>() + classes.size(), 0);
    const OnnxTensor ids = g_.add("Unsqueeze", {in(node, 0), g_.integers({-1})});
    return g_.cast(g_.add("Equal", {ids, g_.initializer(classes, "classes")}),
                   dtype(node.outputs[0]));
  }
  if (op == "channel_affine") {
    return g_.add("Add", {g_.add("Mul", {in(node, 0), in(node, 1)}), in(node, 2)});
  }
  return elementwise(node, problem);
}

OnnxTensor OnnxOps::gelu(const OnnxTensor& x, bool is_tanh, DType type) {
  const auto product = [&](const OnnxTensor& a, double b) {
    return g_.add("Mul", {a, g_.scalar(b, type)});
  };
  OnnxTensor function;
  if (is_tanh) {
    const OnnxTensor cube = g_.add("Mul", {g_.add("Mul", {x, x}), x});
    const OnnxTensor sum = g_.add("Add", {x, product(cube, 0.044715)});
    function = g_.add("Tanh", {product(sum, std::sqrt(2 / M_PI))});
  } else {
    function = g_.add("Erf", {product(x, M_SQRT1_2)});
  }
  return g_.add("Mul", {product(x, 0.5), g_.add("Add", {function, g_.scalar(1, type)})});
}

OnnxTensor OnnxOps::elementwise(const Node& node, std::string& problem) {
  const std::string_view op = node.op->name;
  std::vector<OnnxTensor> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(in(node, i));
  }
  if (const auto same = kSame.find(op); same != kSame.end()) {
    return g_.add(same->second, inputs);
  }
  const DType type = dtype(node.inputs[0]);
  if (op == "cast") {
    return g_.cast(inputs[0], dtype(node.outputs[0]));
  }
  if (op == "square") {
    return g_.add("Mul", {inputs[0], inputs[0]});
  }
  if (op == "rsqrt") {
    return g_.add("Reciprocal", {g_.add("Sqrt", inputs)});
  }
  if (op == "log1p") {
    return g_.add("Log", {g_.add("Add", {inputs[0], g_.scalar(1, type)})});
  }
  if (op == "expm1") {
    return g_.add("Sub", {g_.add("Exp", inputs), g_.scalar(1, type)});
  }
  if (op == "silu") {
    return g_.add("Mul", {inputs[0], g_.add("Sigmoid", inputs)});
  }
  if (op == "gelu" || op == "gelu_tanh") {
    return gelu(inputs[0], op == "gelu_tanh", type);
  }
  if (op == "ne") {
    return g_.add("Not", {g_.add("Equal", inputs)});
  }
  if (op == "is_finite") {
    return g_.add("Not", {g_.add("Or", {g_.add("IsNaN", inputs), g_.add("IsInf", inputs)})});
  }
  if (op == "clamp") {
    return g_.add("Clip", {inputs[0], g_.scalar(node.attr_double("low"), type),
                           g_.scalar(node.attr_double("high"), type)});
  }
  problem = fmt::format("the operation `{}`", op);
  return "";
}

// A number; one that the number of samples divides, such as a mean's factor, follows the batch.
OnnxTensor OnnxOps::number(const Node& node, NodeId id, std::string& problem) {
  const double a = node.attr_double("value");
  const double b = graphs_[1].nodes[static_cast<size_t>(id)].attr_double("value");
  const DType type = dtype(node.outputs[0]);
  if (a == b || (a != a && b != b)) {
    return g_.scalar(a, type);
  }
  const double total = a * static_cast<double>(batches_[0]);
  if (std::abs(total - b * static_cast<double>(batches_[1])) > 1e-6 * std::abs(total)) {
    problem = "a number that depends on the batch";
    return "";
  }
  const OnnxTensor count = g_.reshape(g_.cast(batch_, type), {});
  return g_.add("Div", {g_.scalar(total, type), count});
}

OnnxTensor OnnxOps::source(const Node& node, NodeId id, std::string& problem) {
  const std::string_view op = node.op->name;
  const ValueId value = node.outputs[0];
  if (op == "parameter") {
    const std::string& path =
        graphs_[0].variables[static_cast<size_t>(node.attr_int("variable"))].path;
    const auto found = std::find_if(weights_.begin(), weights_.end(),
                                    [&](const NamedTensor& weight) { return weight.name == path; });
    MESHTRAIN_CHECK(found != weights_.end(), "{}", path);
    return g_.initializer(found->tensor, path);
  }
  const std::vector<int64_t> shape = sizes(value);
  if (op == "constant") {
    const OnnxTensor one = number(node, id, problem);
    return shape.empty() ? one : g_.add("Expand", {one, shape_tensor(shape)});
  }
  const auto axis = static_cast<size_t>(node.attr_int("axis"));
  std::vector<int64_t> ones(shape.size(), 1);
  ones[axis] = std::max<int64_t>(shape[axis], -1);
  if (shape[axis] < 0) {
    const OnnxTensor end = g_.reshape(shape_tensor({shape[axis]}), {});
    const OnnxTensor numbers =
        g_.add("Range", {g_.scalar(0, DType::kInt64), end, g_.scalar(1, DType::kInt64)});
    return g_.add("Expand",
                  {g_.reshape(g_.cast(numbers, dtype(value)), ones), shape_tensor(shape)});
  }
  HostTensor indices(dtype(value), Shape(ones.begin(), ones.end()));
  for (int64_t i = 0; i < indices.size(); ++i) {
    indices.set(i, static_cast<double>(i));
  }
  const OnnxTensor row = g_.initializer(indices, "iota");
  return ones == shape ? row : g_.add("Expand", {row, shape_tensor(shape)});
}

// Ids outside of the rows take the nearest one.
OnnxTensor OnnxOps::gathered(const Node& node) {
  const int64_t rows = sizes(node.inputs[0])[0];
  const OnnxTensor last =
      rows < 0 ? g_.add("Sub", {g_.cast(g_.reshape(shape_tensor({rows}), {}), DType::kInt32),
                                g_.scalar(1, DType::kInt32)})
               : g_.scalar(static_cast<double>(rows - 1), DType::kInt32);
  const OnnxTensor ids = g_.add("Clip", {in(node, 1), g_.scalar(0, DType::kInt32), last});
  return g_.add("Gather", {in(node, 0), ids}, {{"axis", int64_t{0}}});
}

OnnxTensor OnnxOps::moved(const Node& node, NodeId id, std::string& problem) {
  const std::string_view op = node.op->name;
  const ValueId value = node.outputs[0];
  if (op == "broadcast") {
    return g_.add("Expand", {in(node, 0), shape_tensor(sizes(value))});
  }
  if (op == "reshape") {
    return g_.reshape(in(node, 0), reshape_sizes(value));
  }
  if (op == "transpose") {
    return g_.transpose(in(node, 0), node.attr_ints("permutation"));
  }
  const int64_t axis = node.attr_int("axis");
  const int64_t size = sizes(node.inputs[0])[static_cast<size_t>(axis)];
  if (op == "concat") {
    std::vector<OnnxTensor> parts;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      parts.push_back(in(node, i));
    }
    return g_.add("Concat", parts, {{"axis", axis}});
  }
  if (op == "reverse") {
    return g_.slice(in(node, 0), axis, -1, std::numeric_limits<int64_t>::min(), -1);
  }
  const Node& other = graphs_[1].nodes[static_cast<size_t>(id)];
  if (size < 0 && op == "slice") {
    // Only what all batches have alike: elements from the first one to the last.
    const bool is_whole = node.attr_int("begin") == 0 && other.attr_int("begin") == 0 &&
                          node.attr_int("end") == graphs_[0].shape(node.inputs[0])[axis] &&
                          other.attr_int("end") == graphs_[1].shape(node.inputs[0])[axis];
    if (!is_whole) {
      problem = "a part of the batch";
      return "";
    }
    return g_.slice(in(node, 0), axis, 0, std::numeric_limits<int64_t>::max(),
                    node.attr_int("stride"));
  }
  if (op == "slice") {
    return g_.slice(in(node, 0), axis, node.attr_int("begin"), node.attr_int("end"),
                    node.attr_int("stride"));
  }
  const size_t rank = graphs_[0].shape(value).size();
  std::vector<int64_t> pads(2 * rank, 0);
  pads[static_cast<size_t>(axis)] = node.attr_int("before");
  pads[rank + static_cast<size_t>(axis)] = node.attr_int("after");
  return g_.add(
      "Pad", {in(node, 0), g_.integers(pads), g_.scalar(node.attr_double("value"), dtype(value))});
}

OnnxTensor OnnxOps::reduced(const Node& node, std::string& problem) {
  const std::string_view op = node.op->name;
  if (op == "argmax") {
    return g_.cast(g_.add("ArgMax", {in(node, 0)},
                          {{"axis", node.attr_int("axis")}, {"keepdims", int64_t{0}}}),
                   DType::kInt32);
  }
  if (op == "cumsum") {
    HostTensor axis(DType::kInt64, Shape{});
    axis.data<int64_t>()[0] = node.attr_int("axis");
    return g_.add("CumSum", {in(node, 0), g_.initializer(axis, "axis")});
  }
  const std::vector<int64_t>& axes = node.attr_ints("axes");
  const int64_t keep = node.attr_int("keepdims");
  if (op == "reduce_sum") {
    return g_.add("ReduceSum", {in(node, 0), g_.integers(axes)},
                  {{"keepdims", keep}, {"noop_with_empty_axes", int64_t{1}}});
  }
  if (axes.empty()) {
    return in(node, 0);
  }
  if (op == "reduce_max" || op == "reduce_min") {
    return g_.add(op == "reduce_max" ? "ReduceMax" : "ReduceMin", {in(node, 0)},
                  {{"axes", axes}, {"keepdims", keep}});
  }
  problem = fmt::format("the operation `{}`", op);
  return "";
}

OnnxTensor OnnxOps::einsum(const Node& node) {
  const EinsumEquation equation = parse_einsum(node.attr_string("equation"));
  // x (..., k) times y (k, j) is a matrix product of any rank.
  if (equation.operands.size() == 2) {
    const std::string &x = equation.operands[0], &y = equation.operands[1];
    const bool is_product = y.size() == 2 && !x.empty() && x.back() == y[0] &&
                            equation.result == x.substr(0, x.size() - 1) + y[1];
    if (is_product) {
      return g_.add("MatMul", {in(node, 0), in(node, 1)});
    }
    const bool has_scalar = x.empty() || y.empty();
    if (has_scalar && equation.result == (x.empty() ? y : x)) {
      return g_.add("Mul", {in(node, 0), in(node, 1)});
    }
  }
  // Some runtimes take lower case letters only.
  std::map<char, char> letters;
  std::string text = equation.to_string();
  for (char& c : text) {
    if (c != ',' && c != '-' && c != '>') {
      c = letters.emplace(c, static_cast<char>('a' + letters.size())).first->second;
    }
  }
  std::vector<OnnxTensor> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(in(node, i));
  }
  return g_.add("Einsum", inputs, {{"equation", text}});
}

void OnnxOps::add_outputs() {
  const auto& outputs = graphs_[0].outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    // A node of its own: the name is the model's, also where a value is given twice.
    onnx::NodeProto& node = *out_.add_node();
    node.set_op_type("Identity");
    node.set_name(fmt::format("output/{}", i));
    node.add_input(names_[outputs[i].value]);
    std::string name = model_.output_names()[i];
    for (const auto& input : out_.input()) {
      name += input.name() == name ? "_output" : "";
    }
    node.add_output(name);
    OnnxGraph::declare(*out_.add_output(), name, dtype(outputs[i].value), sizes(outputs[i].value));
  }
}

}  // namespace meshtrain
