#include "ir/name_list.h"
#include "ir/signatures.h"
#include "passes/bucket.h"
#include "passes/memory.h"
#include "plan/report.h"

namespace meshtrain {
namespace {

int64_t local_bytes(const Variable& variable, const Sharding& sharding, const DeviceMesh& mesh) {
  return num_elements(local_shape(variable.shape, sharding, mesh)) *
         static_cast<int64_t>(dtype_size(variable.dtype));
}

bool is_collective(std::string_view op) {
  return op == "all_reduce" || op == "all_gather" || op == "reduce_scatter" || op == "all_to_all" ||
         op == "permute";
}

// Bytes one device sends to move `bytes` of operands among `n` devices.
int64_t sent(std::string_view kind, int64_t bytes, int64_t n) {
  if (kind == "all_reduce") {
    return 2 * (n - 1) * bytes / n;
  }
  if (kind == "all_gather") {
    return (n - 1) * bytes;
  }
  if (kind == "permute") {
    return bytes;
  }
  return (n - 1) * bytes / n;
}

}  // namespace

std::vector<PlannedCollective> planned_collectives(const Graph& graph, const DeviceMesh& mesh) {
  std::vector<PlannedCollective> out;
  for (const Node& node : graph.nodes) {
    if (!is_collective(node.op->name)) {
      continue;
    }
    PlannedCollective c;
    c.phase = node.phase;
    c.kind = node.op->name;
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
      c.bytes_sent += sent(c.kind, bytes, c.group_size);
    }
    c.of = names_in(node.attr_string("of"));
    for (std::string& cause : names_in(node.attr_string("cause"))) {
      c.causes.push_back({{}, std::move(cause), {}});
    }
    out.push_back(std::move(c));
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

// Of the nodes of `graph` over the shapes of `shapes.values`.
double sum_of_flops(const Graph& graph, const Graph& shapes, bool only_products = false) {
  Signatures signatures;
  std::vector<double> known;  // of each signature
  double total = 0;
  for (const Node& node : graph.nodes) {
    if (is_collective(node.op->name) || node.inputs.empty() ||
        (only_products && !is_product(node.op->name))) {
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
  return sum_of_flops(graph, graph, true);
}

double planned_flops_per_device(const Graph& graph, const DeviceMesh& mesh) {
  Graph local;  // values of local shapes
  local.values.reserve(graph.values.size());
  for (const Value& value : graph.values) {
    Value& piece = local.values.emplace_back();
    piece.shape = local_shape(value.shape, *value.sharding, mesh);
    piece.dtype = value.dtype;
  }
  return sum_of_flops(graph, local);
}

}  // namespace meshtrain
