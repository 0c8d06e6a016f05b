// The reshard planner: the cheapest way from one Sharding to another over six moves.
//
//   all_gather      the last axis of a dimension's list disappears from it
//   slice           a free axis is appended to a dimension's list: local, no communication
//   all_to_all      the last axis of one dimension's list moves to the end of another's
//   reduce_scatter  a partial axis is appended to a dimension's list
//   all_reduce      a partial axis is reduced
//   permute         the axes of one dimension are reordered, or replaced by free ones of equal size
//
// The plan is a shortest path (Dijkstra) under cost alpha + beta * bytes moved per device.
#pragma once

#include <string>
#include <vector>

#include "mesh/sharding.h"
#include "tensor/dtype.h"

namespace meshtrain {

enum class MoveKind : uint8_t {
  kAllGather,
  kSlice,
  kAllToAll,
  kReduceScatter,
  kAllReduce,
  kPermute
};
std::string_view move_name(MoveKind kind);  // "all_gather"

struct ReshardMove {
  MoveKind kind;
  AxisList axes;    // axes that communicate, major to minor
  int dim = -1;     // the dimension gathered, sliced, scattered to, or taken from
  int to_dim = -1;  // all_to_all only
  Sharding result;  // after the move
};

struct ReshardCost {
  double alpha = 4096;  // a collective's fixed cost, in bytes-equivalents
  double beta = 1;      // per byte sent by a device
};

// Bytes that each of `n` devices sends to move S local bytes by the bandwidth-optimal algorithm:
// all_reduce 2(n-1)/n S, all_gather (n-1) S, reduce_scatter and all_to_all (n-1)/n S, permute S,
// slice 0.
int64_t bytes_sent(MoveKind kind, int64_t bytes, int64_t n);
// The same of a move from `source`.
int64_t bytes_sent(const ReshardMove& move, const Sharding& source, const Shape& shape, DType dtype,
                   const DeviceMesh& mesh);

// Changes `state` as a collective does whose attributes are these; a permute names the axes that
// the dimension has afterwards. Returns why it cannot be done so, null when it was.
const char* apply_move(Sharding& state, MoveKind kind, const AxisList& axes, int dim, int to_dim,
                       const DeviceMesh& mesh);

// The moves from `source` to `target`; empty when they are equal. The target may keep partial axes
// of the source but never gain one. Consecutive moves of one kind over several axes of the same
// dimension (or several partial axes) are merged into one collective. Deterministic; memoised per
// thread. Throws InternalError when `target` has a partial axis that `source` lacks.
std::vector<ReshardMove> plan_reshard(const Sharding& source, const Sharding& target,
                                      const Shape& shape, DType dtype, const DeviceMesh& mesh,
                                      const ReshardCost& cost = {});

}  // namespace meshtrain
