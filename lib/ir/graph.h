// Graph: the model, its gradients and its updates as one global program over whole tensors.
//
// A Graph is a list of Nodes in topological order; each Node applies an op (an OpDef, see op.h) to
// Values and defines new ones. Values have global shapes; after the sharding passes each also has a
// Sharding, and every node then stands for what each device does with its shards.
//
//   Graph graph;
//   Builder b(graph);
//   ValueId x = b.input("x", {64, 784}, DType::kFloat32, /*batch=*/true);
//   ValueId w = b.variable({.path = "d1/kernel", .shape = {784, 200}});
//   ValueId y = b.einsum("bi,io->bo", {x, w});
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/small_vector.h"
#include "ir/attrs.h"
#include "mesh/sharding.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain {

struct OpDef;

using ValueId = int;
using NodeId = int;
constexpr int kNone = -1;

using ValueList = SmallVector<ValueId, 4>;  // operands or results of a node

// The phase of a step that a node belongs to; `plan` groups collectives by phase.
enum class Phase : uint8_t { kForward, kBackward, kUpdate };
std::string_view phase_name(Phase phase);

struct Value {
  Shape shape;
  DType dtype = DType::kFloat32;
  NodeId producer = kNone;
  int result_index = 0;
  std::optional<Sharding> sharding;  // set by propagate; final after partition
  ValueId cotangent_of = kNone;      // autodiff: the forward value whose gradient this is
  std::string sharding_origin;       // why: a name for each axis of the dims (passes/propagate.h)
};

struct Node {
  const OpDef* op = nullptr;
  ValueList inputs;
  ValueList outputs;
  Attrs attrs;
  std::string path;  // stable, unique name scope: "d1/einsum"; random ops hash it
  Phase phase = Phase::kForward;

  int64_t attr_int(std::string_view name) const;
  double attr_double(std::string_view name) const;
  const std::string& attr_string(std::string_view name) const;
  const std::vector<int64_t>& attr_ints(std::string_view name) const;
  bool has_attr(std::string_view name) const { return attrs.contains(name); }
};

enum class VariableRole : uint8_t { kWeight, kSlot, kMetric, kScalar };

// The four layouts of a variable: in storage, in the forward pass, of its gradient, and of its
// optimizer state. ZeRO-1/2/3, FSDP and HSDP are settings of these.
struct VariableLayout {
  Sharding storage, compute, grad, state;
};

struct Variable {
  std::string path;  // "d1/kernel", "adam/d1_kernel_momentum"
  Shape shape;
  Shape unpadded = {};  // where zeros fill up `shape` in memory alone; else empty
  DType dtype = DType::kFloat32;
  VariableRole role = VariableRole::kWeight;
  bool trainable = true;     // weights only
  int follows = kNone;       // slots: index of the weight whose layouts they take
  int factored_dim = kNone;  // slots: the dimension of that weight that they do not have
  VariableLayout layout;     // set by assign_layouts (passes)

  // As files have it, and what reads or writes whole variables.
  const Shape& own_shape() const { return unpadded.empty() ? shape : unpadded; }
};

struct Output {
  std::string name;
  ValueId value = kNone;
};

// `variable` takes the value `value` at the end of the step.
struct Update {
  int variable = kNone;
  ValueId value = kNone;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Variable> variables;
  std::vector<Output> outputs;  // what the host reads after a step
  std::vector<Update> updates;

  const Node& producer(ValueId value) const { return nodes[values[value].producer]; }
  const Shape& shape(ValueId value) const { return values[value].shape; }
  DType dtype(ValueId value) const { return values[value].dtype; }
  // Number of uses of each value by nodes, outputs and updates.
  std::vector<int> use_counts() const;
};

// Throws InternalError naming the node when an invariant is broken: topological order, operand and
// result counts, shapes and dtypes equal to what the op infers, valid shardings, variables in
// range.
void verify(const Graph& graph);
// With shardings: checks also that every value has one, that each node's operands and results agree
// with its rule, and that only linear ops read a partial sum.
void verify_sharded(const Graph& graph, const DeviceMesh& mesh);

// Text form, one node a line (print.cc); parse_graph(print(g, mesh), mesh) is g. `mesh` names the
// axes of shardings, which are left out when it has no axes.
//   %3: f32[64,200] = einsum(%0, %2) {equation="bi,io->bo"} @d1/einsum forward [data, null]
std::string print(const Graph& graph, const DeviceMesh& mesh = {});
// Throws Error with line and reason.
Graph parse_graph(std::string_view text, const DeviceMesh& mesh = {});

}  // namespace meshtrain
