// The oracle of sharding rules: runs an op shard by shard on a mesh, puts the shards together as
// the rule says, and compares with the op on whole tensors. It proves the table, op by op.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// For each factor of the rule the axes that split it.
using FactorAxes = std::vector<AxisList>;

// Every way to put the axes of the mesh on factors of the rule that the rule allows: axes divide
// the factor, none on a gathered factor, a minor factor of a dimension only behind full ones.
std::vector<FactorAxes> assignments(const ShardingRule& rule, const DeviceMesh& mesh);

// Checks the form of a rule: ranks, and that the factors of each dimension make up its size.
// Returns the first problem.
std::optional<std::string> rule_form_problem(const Graph& graph, const Node& node,
                                             const ShardingRule& rule);

// Runs `node` under one assignment. Returns the first difference to `expected` in words.
std::optional<std::string> rule_problem(const Graph& graph, const Node& node,
                                        const ShardingRule& rule, const FactorAxes& axes,
                                        const DeviceMesh& mesh,
                                        const std::vector<HostTensor>& operands,
                                        const std::vector<HostTensor>& expected);

// The part of `tensor` that starts at `start` and has the shape `shape`.
HostTensor shard_of(const HostTensor& tensor, const std::vector<int64_t>& start,
                    const Shape& shape);

}  // namespace meshtrain
