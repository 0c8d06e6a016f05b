// Structural invariants of a Graph; those of its shardings are in verify_sharded.cc.
#include "ir/verify.h"

#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/signatures.h"

namespace meshtrain {
namespace {

// Throws InternalError about one node.
template <class... Args>
[[noreturn]] void fail(const Graph& graph, NodeId id, fmt::format_string<Args...> format,
                       Args&&... args) {
  const Node& node = graph.nodes[id];
  throw InternalError(fmt::format("node {} ({}, {}): {}", id, node.path,
                                  node.op != nullptr ? node.op->name : "no op",
                                  fmt::format(format, std::forward<Args>(args)...)));
}

bool is_value(const Graph& graph, ValueId value) {
  return value >= 0 && value < static_cast<ValueId>(graph.values.size());
}

std::string type_text(const Shape& shape, DType dtype) {
  return fmt::format("{}{}", dtype_name(dtype), shape_string(shape));
}

void verify_links(const Graph& graph, NodeId id, ValueId& next_value) {
  const Node& node = graph.nodes[id];
  for (ValueId input : node.inputs) {
    if (!is_value(graph, input)) {
      fail(graph, id, "operand %{} does not exist", input);
    }
    if (graph.values[input].producer >= id) {
      fail(graph, id, "operand %{} is defined only by node {}", input,
           graph.values[input].producer);
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (output != next_value || !is_value(graph, output)) {
      fail(graph, id, "result {} is %{}, not %{}", i, output, next_value);
    }
    ++next_value;
    const Value& value = graph.values[output];
    if (value.producer != id || value.result_index != static_cast<int>(i)) {
      fail(graph, id, "%{} says it is result {} of node {}", output, value.result_index,
           value.producer);
    }
    if (value.cotangent_of != kNone && !is_value(graph, value.cotangent_of)) {
      fail(graph, id, "%{} is the cotangent of %{}, which does not exist", output,
           value.cotangent_of);
    }
    if (value.cotangent_of != kNone && graph.shape(value.cotangent_of) != value.shape) {
      fail(graph, id, "%{} {} is the cotangent of %{} {}", output, shape_string(value.shape),
           value.cotangent_of, shape_string(graph.shape(value.cotangent_of)));
    }
    if (value.sharding && value.sharding->dims.size() != value.shape.size()) {
      fail(graph, id, "%{} has a sharding of rank {} for {}", output, value.sharding->dims.size(),
           shape_string(value.shape));
    }
  }
}

void verify_types(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  std::vector<ValueType> operands;
  for (ValueId input : node.inputs) {
    operands.push_back({graph.shape(input), graph.dtype(input)});
  }
  const std::vector<ValueType> results = node.op->infer(node, operands);
  if (results.size() != node.outputs.size()) {
    fail(graph, id, "{} results, {} expected", node.outputs.size(), results.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Value& value = graph.values[node.outputs[i]];
    if (value.shape != results[i].shape || value.dtype != results[i].dtype) {
      fail(graph, id, "%{} is {}, the op gives {}", node.outputs[i],
           type_text(value.shape, value.dtype), type_text(results[i].shape, results[i].dtype));
    }
  }
}

// Verifies the types of a node whose tensors exist. Equal nodes are verified once. Sources and
// layout changes are verified always, since hardly two are equal: they have no signature (null).
Signature* verify_types_once(const Graph& graph, NodeId id, Signatures& signatures) {
  const Node& node = graph.nodes[id];
  if (node.inputs.empty() || node.op->collective) {
    verify_types(graph, id);
    return nullptr;
  }
  const auto [signature, is_new] = signatures.find(graph, node);
  if (is_new) {
    verify_types(graph, id);
  }
  return signature;
}

// No two nodes have one path.
class Paths {
 public:
  explicit Paths(const Graph& graph) : graph_(graph), index_(graph.nodes.size()) {}

  bool add(NodeId id) {  // false: it is another node's
    const std::string& path = graph_.nodes[id].path;
    const uint64_t hash = hash_text(path);
    const bool is_new = index_.find(hash, [&](NodeId other) {
      return graph_.nodes[other].path == path;
    }) == HashIndex::kAbsent;
    index_.add(hash, id);
    return is_new;
  }

 private:
  const Graph& graph_;
  HashIndex index_;
};

void verify_parameter(const Graph& graph, NodeId id, std::vector<bool>& read) {
  const Node& node = graph.nodes[id];
  const int64_t index = node.attr_int("variable");
  if (index < 0 || index >= static_cast<int64_t>(graph.variables.size())) {
    fail(graph, id, "there is no variable {}", index);
  }
  const Variable& variable = graph.variables[index];
  const Value& value = graph.values[node.outputs[0]];
  if (value.shape != variable.shape || value.dtype != variable.dtype) {
    fail(graph, id, "reads {} as {}, it is {}", variable.path, type_text(value.shape, value.dtype),
         type_text(variable.shape, variable.dtype));
  }
  if (read[index]) {
    fail(graph, id, "variable {} has two parameter nodes", variable.path);
  }
  read[index] = true;
}

void verify_ends(const Graph& graph) {
  for (size_t i = 0; i < graph.variables.size(); ++i) {
    const int follows = graph.variables[i].follows;
    MESHTRAIN_CHECK(follows >= kNone && follows < static_cast<int>(graph.variables.size()) &&
                        follows != static_cast<int>(i),
                    "variable {} follows {}", graph.variables[i].path, follows);
  }
  std::set<std::string> names;
  for (const Output& output : graph.outputs) {
    MESHTRAIN_CHECK(is_value(graph, output.value), "output {} is %{}, which does not exist",
                    output.name, output.value);
    MESHTRAIN_CHECK(names.insert(output.name).second, "two outputs are called {}", output.name);
  }
  std::vector<bool> updated(graph.variables.size(), false);
  for (const Update& update : graph.updates) {
    MESHTRAIN_CHECK(
        update.variable >= 0 && update.variable < static_cast<int>(graph.variables.size()),
        "an update of variable {}, which does not exist", update.variable);
    const Variable& variable = graph.variables[update.variable];
    MESHTRAIN_CHECK(is_value(graph, update.value), "the update of {} is %{}, which does not exist",
                    variable.path, update.value);
    MESHTRAIN_CHECK(
        graph.shape(update.value) == variable.shape && graph.dtype(update.value) == variable.dtype,
        "the update of {} is {}, it is {}", variable.path,
        type_text(graph.shape(update.value), graph.dtype(update.value)),
        type_text(variable.shape, variable.dtype));
    MESHTRAIN_CHECK(!updated[update.variable], "two updates of {}", variable.path);
    updated[update.variable] = true;
  }
}

}  // namespace

std::vector<Signature*> verify_structure(const Graph& graph, Signatures& signatures) {
  Paths paths(graph);
  std::vector<Signature*> found(graph.nodes.size(), nullptr);
  std::vector<bool> read(graph.variables.size(), false);
  ValueId next_value = 0;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    const Node& node = graph.nodes[id];
    if (node.op == nullptr) {
      fail(graph, id, "has no op");
    }
    if (node.path.empty() || !paths.add(id)) {
      fail(graph, id, "its path is empty or another node's");
    }
    verify_links(graph, id, next_value);
    found[id] = verify_types_once(graph, id, signatures);
    if (node.op->kind == OpKind::kParameter) {
      verify_parameter(graph, id, read);
    }
  }
  MESHTRAIN_CHECK(next_value == static_cast<ValueId>(graph.values.size()),
                  "{} values, {} of them defined by a node", graph.values.size(), next_value);
  verify_ends(graph);
  return found;
}

void verify(const Graph& graph) {
  Signatures signatures;
  verify_structure(graph, signatures);
}

}  // namespace meshtrain
