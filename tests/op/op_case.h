// The list of op cases: one small application of an op each. The rule oracle, the linearity and
// gradient checks and the comparisons of backends with the interpreter all run over it.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

struct OperandSpec {
  Shape shape;
  DType dtype = DType::kFloat64;
  // Floats are spread evenly over [low, high], all different, in a shuffled order; integers are
  // drawn from low..high, ends included.
  double low = -2.13;
  double high = 2.29;
  bool is_constant = false;  // a float that the op has no gradient of
};

struct OpCase {
  std::string name;  // a sentence's subject: "einsum bi,io->bo"
  std::string op;
  std::vector<OperandSpec> operands;
  Attrs attrs;
  bool has_gradient = true;     // false: finite differences say nothing about this op
  size_t constant_results = 0;  // at the end: the op has no gradient of them
};

// Of every op; families in cases_*.cc.
std::vector<OpCase> all_cases();
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> reduce_cases();
std::vector<OpCase> training_cases();
std::vector<OpCase> window_cases();
std::vector<OpCase> warp_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> rnn_cases();
std::vector<OpCase> head_cases();

// The case with `dtype` in place of float64, in operands and attributes.
OpCase in_dtype(OpCase op_case, DType dtype);

// The same values on every machine.
std::vector<HostTensor> operand_values(const OpCase& op_case);
HostTensor values_of(const OperandSpec& spec, uint64_t seed);

// A graph with an input "x0", "x1", ... per operand and the op as its last node.
Graph case_graph(const OpCase& op_case);
inline const Node& case_node(const Graph& graph) {
  return graph.nodes.back();
}

// The results of the op on `operands`, by the interpreter.
std::vector<HostTensor> interpret_case(const Graph& graph, const std::vector<HostTensor>& operands);

}  // namespace meshtrain
