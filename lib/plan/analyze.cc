#include <algorithm>

#include "ir/name_list.h"
#include "ir/op.h"
#include "ir/ops/linear_cross_entropy.h"
#include "ir/signatures.h"
#include "passes/bucket.h"
#include "passes/memory.h"
#include "plan/plan_summary.h"

namespace meshtrain {
namespace {

int64_t local_bytes(const Variable& variable, const Sharding& sharding, const DeviceMesh& mesh) {
  return num_elements(local_shape(variable.shape, sharding, mesh)) *
         static_cast<int64_t>(dtype_size(variable.dtype));
}

}  // namespace

std::vector<PlannedCollective> planned_collectives(const Graph& graph, const DeviceMesh& mesh) {
  std::vector<PlannedCollective> out;
  for (const Node& node : graph.nodes) {
    if (!communicates(*node.op)) {
      continue;
    }
    PlannedCollective c;
    c.phase = node.phase;
    c.kind = *node.op->move;
    c.group_size = 1;
    for (const int64_t axis : node.attr_ints("axes")) {
      c.axes.push_back(mesh.axis_name(static_cast<int>(axis)));
      c.group_size *= mesh.axis_size(static_cast<int>(axis));
    }
    c.dtype = graph.dtype(node.inputs[0]);
    c.tensors = static_cast<int64_t>(node.inputs.size());
    for (const ValueId input : node.inputs) {
      const int64_t bytes = local_bytes(graph.values[input], mesh);
      c.bytes += bytes;
      c.bytes_sent += bytes_sent(c.kind, bytes, c.group_size);
    }
    c.of = split_names(node.attr_string("of"));
    for (std::string& cause : split_names(node.attr_string("cause"))) {
      c.causes.push_back({{}, std::move(cause), {}});
    }
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<PlannedHead> planned_heads(const Graph& graph, const DeviceMesh& mesh) {
  constexpr int64_t kTokensOfCpu = 256;  // StepContext::loss_tokens
  const OpDef* const ops[] = {&find_op("linear_cross_entropy"),
                              &find_op("linear_cross_entropy_grad"),
                              &find_op("linear_cross_entropy_parts")};
  std::vector<PlannedHead> out;
  for (const Node& node : graph.nodes) {
    if (std::find(std::begin(ops), std::end(ops), node.op) == std::end(ops)) {
      continue;
    }
    const auto local = [&](ValueId v) {
      return local_shape(graph.shape(v), *graph.values[v].sharding, mesh);
    };
    const Shape x = local(node.inputs[0]), table = local(node.inputs[1]);
    PlannedHead head;
    head.op = ops[0]->name;
    head.classes = table[node.attr_int("transposed") != 0 ? 1 : 0];
    head.tokens = head_chunk(num_elements(x) / x.back(), x.back(), head.classes, kTokensOfCpu);
    head.bytes =
        head.tokens * head.classes * static_cast<int64_t>(dtype_size(graph.dtype(node.inputs[0])));
    out.push_back(std::move(head));
  }
  return out;
}

PlannedMemory planned_memory(const Program& program) {
  PlannedMemory memory;
  for (const Variable& variable : program.variables) {
    const int64_t stored = local_bytes(variable, variable.layout.storage, program.part.mesh());
    if (variable.role == VariableRole::kWeight) {
      memory.weights += stored;
      memory.gradients +=
          variable.trainable ? local_bytes(variable, variable.layout.grad, program.part.mesh()) : 0;
    } else {
      memory.optimizer += stored;
    }
  }
  memory.activations = arena_bytes_per_device(program);
  return memory;
}

namespace {

enum class Counted { kAll, kProducts, kModelProducts };

// Returns the FLOPs of the nodes of `graph` over the shapes of `shapes.values`.
double sum_of_flops(const Graph& graph, const Graph& shapes, Counted counted = Counted::kAll) {
  Signatures signatures;
  std::vector<double> known;  // of each signature
  double total = 0;
  for (const Node& node : graph.nodes) {
    if (communicates(*node.op) || node.inputs.empty()) {
      continue;
    }
    if ((counted != Counted::kAll && !node.op->is_product) ||
        (counted == Counted::kModelProducts && node.attrs.contains("remat"))) {
      continue;
    }
    const auto [signature, is_new] = signatures.find(shapes, node);
    if (is_new) {
      known.push_back(flops(shapes, node));
    }
    total += known[static_cast<size_t>(signature->number)];
  }
  return total;
}

}  // namespace

double planned_flops(const Graph& graph) {
  return sum_of_flops(graph, graph);
}

double planned_product_flops(const Graph& graph) {
  return sum_of_flops(graph, graph, Counted::kProducts);
}

double planned_model_flops(const Graph& graph) {
  return sum_of_flops(graph, graph, Counted::kModelProducts);
}

double planned_flops_per_device(const Graph& graph, const DeviceMesh& mesh) {
  Graph local;  // values of local shapes
  local.values.reserve(graph.values.size());
  for (const Value& value : graph.values) {
    Value& shard = local.values.emplace_back();
    shard.shape = local_shape(value.shape, *value.sharding, mesh);
    shard.dtype = value.dtype;
  }
  return sum_of_flops(graph, local);
}

}  // namespace meshtrain
