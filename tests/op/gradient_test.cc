// Gradients of every op against central differences in float64, and what happens at kinks.
#include <doctest/doctest.h>

#include <cmath>

#include "base/error.h"
#include "ir/op.h"
#include "op/op_case.h"
#include "support/interpreter.h"

namespace meshtrain {
namespace {

constexpr double kStepSize = 1e-5;

// loss = sum of weights * results, over the floating-point results of the case.
struct LossGraph {
  Graph graph;
  ValueId loss = kNone;
  std::vector<ValueId> operands;
  std::vector<ValueId> gradients;  // beside operands; kNone for integers
  std::vector<HostTensor> weights;
};

std::optional<LossGraph> loss_graph(const OpCase& op_case) {
  LossGraph out;
  out.graph = case_graph(op_case);
  out.operands = case_node(out.graph).inputs;
  std::vector<ValueId> results = case_node(out.graph).outputs;
  results.resize(results.size() - op_case.constant_results);
  Builder b(out.graph);
  for (ValueId result : results) {
    if (!is_floating(b.dtype(result))) {
      continue;
    }
    const std::string name = "w" + std::to_string(out.weights.size());
    out.weights.push_back(values_of({b.shape(result)}, 100 + out.weights.size()));
    const ValueId weight = b.input(name, b.shape(result), b.dtype(result), false);
    const ValueId term = b.reduce_sum_all(b.mul(result, weight));
    out.loss = out.loss == kNone ? term : b.add(out.loss, term);
  }
  if (out.loss == kNone) {
    return std::nullopt;
  }
  out.gradients = gradients(b, out.loss, out.operands);
  verify(out.graph);
  return out;
}

Interpretation run(const LossGraph& graph, const std::vector<HostTensor>& operands) {
  std::map<std::string, const HostTensor*> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    inputs["x" + std::to_string(i)] = &operands[i];
  }
  for (size_t i = 0; i < graph.weights.size(); ++i) {
    inputs["w" + std::to_string(i)] = &graph.weights[i];
  }
  return interpret(graph.graph, inputs, {});
}

double central_difference(const LossGraph& graph, std::vector<HostTensor>& operands, size_t operand,
                          int64_t element) {
  HostTensor& x = operands[operand];
  const double at = x.at(element);
  x.set(element, at + kStepSize);
  const double above = run(graph, operands).values[graph.loss].at(0);
  x.set(element, at - kStepSize);
  const double below = run(graph, operands).values[graph.loss].at(0);
  x.set(element, at);
  return (above - below) / (2 * kStepSize);
}

void check_gradients(const OpCase& op_case) {
  const std::optional<LossGraph> graph = loss_graph(op_case);
  if (!graph) {
    return;
  }
  std::vector<HostTensor> operands = operand_values(op_case);
  const Interpretation at = run(*graph, operands);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!is_floating(operands[i].dtype()) || op_case.operands[i].is_constant) {
      CHECK_MESSAGE(graph->gradients[i] == kNone, op_case.name);
      continue;
    }
    for (int64_t j = 0; j < operands[i].size(); ++j) {
      const double expected = central_difference(*graph, operands, i, j);
      const ValueId g = graph->gradients[i];
      const double found = g == kNone ? 0.0 : at.values[g].at(j);
      const double tolerance = 1e-8 * std::max(1.0, std::abs(expected)) + 1e-9;
      CHECK_MESSAGE(std::abs(found - expected) <= tolerance, op_case.name, ": operand ", i,
                    " element ", j, ": ", found, ", by differences ", expected);
    }
  }
}

TEST_CASE("Gradients of every op agree with central differences") {
  for (const OpCase& op_case : all_cases()) {
    if (op_case.has_gradient) {
      check_gradients(op_case);
    }
  }
}

// --- kinks
// -------------------------------------------------------------------------------------------

// d sum(op(operands)) / d operands.
std::vector<std::vector<double>> gradients_at(const std::string& op, const Attrs& attrs,
                                              const std::vector<std::vector<double>>& operands) {
  Graph graph;
  Builder b(graph);
  std::vector<ValueId> ids;
  std::vector<HostTensor> tensors;
  std::map<std::string, const HostTensor*> inputs;
  for (const std::vector<double>& values : operands) {
    const Shape shape = {static_cast<int64_t>(values.size())};
    tensors.push_back(tensor_of<double>(DType::kFloat64, shape, values));
    ids.push_back(b.input("x" + std::to_string(ids.size()), shape, DType::kFloat64, false));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    inputs["x" + std::to_string(i)] = &tensors[i];
  }
  const ValueId loss = b.reduce_sum_all(b.apply(op, ids, attrs));
  const std::vector<ValueId> wrt = gradients(b, loss, ids);
  const Interpretation run = interpret(graph, inputs, {});
  std::vector<std::vector<double>> out;
  for (ValueId g : wrt) {
    const auto span = run.values[g].span<double>();
    out.emplace_back(span.begin(), span.end());
  }
  return out;
}

using Lists = std::vector<std::vector<double>>;

TEST_CASE("Equal operands of max and min share the gradient half and half") {
  CHECK(gradients_at("max", {}, {{1, 2, 3}, {1, 1, 4}}) == Lists{{0.5, 1, 0}, {0.5, 0, 1}});
  CHECK(gradients_at("min", {}, {{1, 2, 3}, {1, 1, 4}}) == Lists{{0.5, 0, 1}, {0.5, 1, 0}});
}

TEST_CASE("The gradient of relu is zero at zero, that of abs one") {
  CHECK(gradients_at("relu", {}, {{-1, 0, 2}}) == Lists{{0, 0, 1}});
  CHECK(gradients_at("abs", {}, {{-1, 0, 2}}) == Lists{{-1, 1, 1}});
}

TEST_CASE("The gradient of clamp is one inside and a half at the ends") {
  CHECK(gradients_at("clamp", {{"low", -1.0}, {"high", 1.0}}, {{-2, -1, 0, 1, 2}}) ==
        Lists{{0, 0.5, 1, 0.5, 0}});
}

TEST_CASE("Equal extrema of a reduction share its gradient") {
  const Attrs all = {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}};
  CHECK(gradients_at("reduce_max", all, {{3, 1, 3, 3, 2, 3}}) ==
        Lists{{0.25, 0, 0.25, 0.25, 0, 0.25}});
  CHECK(gradients_at("reduce_min", all, {{3, 1, 1, 2}}) == Lists{{0, 0.5, 0.5, 0}});
}

TEST_CASE("Zero to a power has no gradient by the exponent") {
  CHECK(gradients_at("pow", {}, {{0, 2}, {2, 2}}) == Lists{{0, 4}, {0, 4 * std::log(2.0)}});
  CHECK(gradients_at("pow", {}, {{0, 2}, {0, 1}}) == Lists{{0, 1}, {0, 2 * std::log(2.0)}});
}

// --- whole graphs
// ------------------------------------------------------------------------------------

TEST_CASE("Cotangents of several uses are added") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {3}, DType::kFloat64, false);
  const ValueId loss = b.reduce_sum_all(b.add(b.square(x), b.mul(x, x)));
  const ValueId wrt[] = {x};
  const std::vector<ValueId> g = gradients(b, loss, wrt);
  const HostTensor at = tensor_of<double>(DType::kFloat64, {3}, {1, 2, 3});
  const Interpretation run = interpret(graph, {{"x", &at}}, {});
  CHECK(run.values[g[0]].at(2) == 12);
  CHECK(graph.values[g[0]].cotangent_of == x);
}

TEST_CASE("A value that the loss does not depend on has no gradient") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {3}, DType::kFloat64, false);
  const ValueId y = b.input("y", {3}, DType::kFloat64, false);
  const ValueId ids = b.cast(b.unary("floor", y), DType::kInt32);
  const ValueId loss = b.reduce_sum_all(b.gather_rows(x, ids));
  const ValueId wrt[] = {x, y};
  const std::vector<ValueId> g = gradients(b, loss, wrt);
  CHECK(g[0] != kNone);
  CHECK(g[1] == kNone);
}

TEST_CASE("Gradients that nobody asked for leave no nodes behind") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {4, 6}, DType::kFloat32, true);
  const ValueId w = b.input("w", {6, 2}, DType::kFloat32, false);
  const ValueId loss = b.reduce_sum_all(b.einsum("bi,io->bo", {x, w}));
  const ValueId wrt[] = {w};
  gradients(b, loss, wrt);
  int backward_einsums = 0;
  for (const Node& node : graph.nodes) {
    backward_einsums += node.phase == Phase::kBackward && node.op->name == "einsum" ? 1 : 0;
  }
  CHECK(backward_einsums == 1);
  verify(graph);
}

TEST_CASE("The gradient of dropout uses the mask of the forward pass") {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input("x", {4, 64}, DType::kFloat64, true);
  const ValueId step = b.input("step", {}, DType::kInt64, false);
  const ValueId y = b.dropout(x, 0.5, step, 3);
  const ValueId wrt[] = {x};
  const std::vector<ValueId> g = gradients(b, b.reduce_sum_all(y), wrt);
  const HostTensor ones = values_of({{4, 64}, DType::kFloat64, 1, 1}, 0);
  const HostTensor at = values_of({{}, DType::kInt64, 5, 5}, 0);
  const Interpretation run = interpret(graph, {{"x", &ones}, {"step", &at}}, {});
  int kept = 0;
  for (int64_t i = 0; i < 256; ++i) {
    CHECK(run.values[y].at(i) == run.values[g[0]].at(i));
    kept += run.values[y].at(i) == 2 ? 1 : 0;
  }
  CHECK(kept > 90);
  CHECK(kept < 166);
}

}  // namespace
}  // namespace meshtrain
