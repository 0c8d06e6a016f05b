// The plan: SQL's EXPLAIN for a training step. It has the layout of every variable, the memory of
// each device, and every collective with its bytes and the line of the config that causes it. Needs
// no device.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"
#include "passes/pipeline.h"
#include "plan/estimate.h"

namespace meshtrain {

struct PlannedVariable {
  std::string path;
  Shape shape;
  DType dtype = DType::kFloat32;
  VariableLayout layout;
  bool trainable = true;
  std::string rule_key;    // empty: no rule, replicated
  std::string rule_place;  // "mlp.yaml:11:5"
};

struct PlannedOutput {  // an activation that the layout map pins
  std::string key;      // "d2/output"
  Shape shape;
  Sharding sharding;
  std::string rule_key, rule_place;
};

// The cause of a collective. A graph alone has only the name, an origin of passes/propagate.h;
// make_plan() adds the place in the config.
struct PlannedCause {
  std::string kind;   // "rule", "batch", "zero"; empty: not known
  std::string name;   // the rule's key, the batch's axes, the level; or the origin
  std::string place;  // "mlp.yaml:11:5"; empty: a default

  bool operator==(const PlannedCause&) const = default;
};

struct PlannedCollective {
  Phase phase = Phase::kForward;
  MoveKind kind = MoveKind::kAllReduce;
  std::vector<std::string> axes;
  int64_t group_size = 1;  // devices that take part together
  DType dtype = DType::kFloat32;
  int64_t tensors = 1;     // in the bucket
  int64_t bytes = 0;       // of one device's operands
  int64_t bytes_sent = 0;  // by one device, bandwidth-optimal algorithm
  std::vector<std::string>
      of;  // each tensor: a variable (or its gradient), or the op that computes it
  std::vector<PlannedCause> causes;
};

// Per device, in bytes.
struct PlannedMemory {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;  // peak of everything else in a step: the static memory plan
  int64_t total() const { return weights + optimizer + activations; }
};

// A head whose logits are never there as a whole: its product and the loss are one op.
struct PlannedHead {
  std::string op;       // "linear_cross_entropy"
  int64_t classes = 0;  // of one device
  int64_t tokens = 0;   // of one device, whose logits are there at once on a CPU
  int64_t bytes = 0;    // of these logits, beside the arena
};

struct PlanSummary {
  std::string name;
  DeviceMesh mesh;
  std::string devices;  // "8 x cpu (virtual)"
  int64_t batch = 0;
  int64_t batch_shards = 1;
  std::string batch_axes;
  int64_t samples = 0;  // of the training data; 0: not read
  int64_t full_steps = 0;
  int64_t last_batch = 0;  // size of the smaller last batch, 0: none
  bool last_batch_sharded = true;
  int64_t num_params = 0;
  std::vector<PlannedVariable> variables;
  std::vector<PlannedOutput> outputs;
  std::vector<PlannedCollective> collectives;
  std::vector<PlannedHead> heads;
  PlannedMemory memory;
  double flops = 0;             // of a training step, all devices together, nothing counted twice
  double model_flops = 0;       // planned_model_flops()
  double flops_per_device = 0;  // what one device of a real mesh computes
  // The step arena for each way to compute forward values again, where the config has one.
  struct Remat {
    std::string name;  // "dots"
    int64_t step_arena = 0;
  };
  std::vector<Remat> remat;
  std::optional<Estimate> estimate;  // on the requested hardware
  Diagnostics warnings;
};

// Returns the collectives of a partitioned graph, in order.
std::vector<PlannedCollective> planned_collectives(const Graph& graph, const DeviceMesh& mesh);
std::vector<PlannedHead> planned_heads(const Graph& graph, const DeviceMesh& mesh);
// Returns the memory of a device: variables by their layouts, and the planned arena with one shard
// of each buffer.
PlannedMemory planned_memory(const Program& program);
double planned_flops(const Graph& graph);
double planned_product_flops(const Graph& graph);  // products and convolutions alone
// Those that the model needs, which MFU counts: not what `remat` computes again.
double planned_model_flops(const Graph& graph);
double planned_flops_per_device(const Graph& graph, const DeviceMesh& mesh);

std::string plan_text(const PlanSummary& summary);
// Keys as documented in configs/PLANNING.md: mesh, batch, variables, outputs, collectives, heads
// (where there are), memory,
// remat and estimate (where there are), flops, warnings.
std::string plan_json(const PlanSummary& summary);

}  // namespace meshtrain
