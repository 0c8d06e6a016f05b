// Sharding propagation: from the annotations (batch axes of inputs, compute layouts of variables,
// pins) to a sharding of every value.
//
// Two stages (Shardy's factor propagation):
//   A  batch axes of inputs and of pins first, until nothing changes
//   B  then everything: compute layouts of variables and whole pins; what stage A decided may be
//      extended, never removed
// In each stage elementwise ops are first, forward broadcasts last. Variables are closed: nothing
// propagates into them. A cotangent has the sharding of its value.
//
// Each decision stores its origin. Value::sharding_origin has one name for each axis of the dims,
// in their order (ir/name_list.h; printed "batch, d1/kernel" for [data, model]). When nothing is
// split, it is the name of the seed. A name is
//   batch              the batch's split
//   d1/kernel          the compute layout of that weight
//   stored d1/kernel   what its other layouts have beside that: ZeRO's axes, or the batch axes of
//                      its layout rule
//   d2/output          a pin; where it says what the batch's split says, that is the origin
//
// Cost: a few sweeps over the nodes; linear in their number.
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"

namespace meshtrain {

struct PropagateOptions {
  AxisList batch_axes;  // split dimension 0 of inputs with attr batch=1; empty: nothing is split
  std::map<std::string, Sharding> pins;  // by the `key` of "pin" nodes: "d2/output"
};

inline constexpr const char* kBatchOrigin = "batch";
std::string stored_origin(const std::string& path);  // "stored d1/kernel"

// Sets Value::sharding (without partial sums) and sharding_origin of every value.
void propagate(Graph& graph, const DeviceMesh& mesh, const PropagateOptions& options);

}  // namespace meshtrain
