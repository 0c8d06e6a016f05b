#include "op/op_case.h"

#include <algorithm>
#include <numeric>

#include "support/interpreter.h"
#include "support/splitmix.h"

namespace meshtrain {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  for (const auto& family : {elementwise_cases, shape_cases, reduce_cases, training_cases,
                             window_cases, warp_cases, attention_cases, rnn_cases, head_cases}) {
    for (OpCase& op_case : family()) {
      cases.push_back(std::move(op_case));
    }
  }
  return cases;
}

OpCase in_dtype(OpCase op_case, DType dtype) {
  for (OperandSpec& spec : op_case.operands) {
    spec.dtype = spec.dtype == DType::kFloat64 ? dtype : spec.dtype;
  }
  const auto attr = op_case.attrs.find("dtype");
  if (attr != op_case.attrs.end() && attr->second == AttrValue(std::string("float64"))) {
    op_case.attrs["dtype"] = std::string(dtype_name(dtype));
  }
  return op_case;
}

HostTensor values_of(const OperandSpec& spec, uint64_t seed) {
  HostTensor out(spec.dtype, spec.shape);
  const int64_t size = out.size();
  if (!is_floating(spec.dtype)) {
    const auto count = static_cast<uint64_t>(spec.high - spec.low) + 1;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t drawn = test::splitmix_below(seed, static_cast<uint64_t>(i), count);
      out.set(i, spec.dtype == DType::kBool ? static_cast<double>(drawn % 2)
                                            : spec.low + static_cast<double>(drawn));
    }
    return out;
  }
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return test::splitmix_bits(seed, static_cast<uint64_t>(a)) <
           test::splitmix_bits(seed, static_cast<uint64_t>(b));
  });
  const double gap = (spec.high - spec.low) / static_cast<double>(size);
  // Tensors of one size get different values too: a tie is a kink of max.
  const double shift = 0.3 + 0.1 * static_cast<double>(seed % 5);
  for (int64_t i = 0; i < size; ++i) {
    out.set(i, spec.low + gap * (static_cast<double>(order[i]) + shift));
  }
  return out;
}

std::vector<HostTensor> operand_values(const OpCase& op_case) {
  std::vector<HostTensor> values;
  for (size_t i = 0; i < op_case.operands.size(); ++i) {
    values.push_back(values_of(op_case.operands[i], i));
  }
  return values;
}

Graph case_graph(const OpCase& op_case) {
  Graph graph;
  Builder b(graph);
  std::vector<ValueId> operands;
  for (size_t i = 0; i < op_case.operands.size(); ++i) {
    const OperandSpec& spec = op_case.operands[i];
    operands.push_back(b.input("x" + std::to_string(i), spec.shape, spec.dtype, false));
  }
  b.add_node(op_case.op, operands, op_case.attrs);
  return graph;
}

std::vector<HostTensor> interpret_case(const Graph& graph,
                                       const std::vector<HostTensor>& operands) {
  const Node& node = case_node(graph);
  std::vector<const HostTensor*> pointers;
  std::vector<ShardOf> operand_shards, result_shards;
  std::vector<DType> dtypes;
  for (const HostTensor& operand : operands) {
    pointers.push_back(&operand);
    operand_shards.push_back(ShardOf::whole(operand.shape()));
  }
  for (ValueId output : node.outputs) {
    result_shards.push_back(ShardOf::whole(graph.shape(output)));
    dtypes.push_back(graph.dtype(output));
  }
  return interpret_node(node, pointers, operand_shards, result_shards, dtypes);
}

}  // namespace meshtrain
