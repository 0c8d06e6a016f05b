// A plain interpreter of graphs: the meaning of every op, as simple as can be, for tests to compare
// with. Computes in double and rounds each result to its dtype; slow.
//
//   const Interpretation run = interpret(graph, {{"x", &x}}, {&kernel});
//   CHECK(run.values[loss].at(0) == ...);
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

struct Interpretation {
  std::vector<HostTensor> values;  // by ValueId
};

// Runs the global graph on one device; shardings are ignored and collectives are the identity.
// `inputs` by name, `variables` by index. Throws InternalError when one is missing or of another
// shape or dtype than the graph says.
Interpretation interpret(const Graph& graph, const std::map<std::string, const HostTensor*>& inputs,
                         std::span<const HostTensor* const> variables);

// Where a tensor's shard lies in the global tensor.
struct ShardOf {
  Shape global_shape;
  std::vector<int64_t> start;
  Shape shape;  // of the shard

  static ShardOf whole(const Shape& shape);
};

// Runs one node on shards: `operands` have the shapes in `operand_shards`, the results those in
// `result_shards`. Not for parameter and input, which compute nothing.
std::vector<HostTensor> interpret_node(const Node& node,
                                       std::span<const HostTensor* const> operands,
                                       std::span<const ShardOf> operand_shards,
                                       std::span<const ShardOf> result_shards,
                                       std::span<const DType> result_dtypes);

}  // namespace meshtrain
