// How long collectives take where devices are: the constants that the cost model needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "exec/executor.h"
#include "plan/cost_model.h"

namespace meshtrain {

struct CommOptions {
  DeviceMesh mesh;
  std::shared_ptr<gpu::Device> device;  // null: the processor
  std::shared_ptr<WorkerPool> workers;  // of the processor
  Processes processes = {};
  int64_t smallest = int64_t{1} << 10, largest = int64_t{64} << 20;  // bytes
  double seconds = 0.05;                                             // for each size
};

struct CommPoint {
  int64_t bytes = 0;    // of the tensor, as in the cost model
  double seconds = 0;   // the median
  int64_t moved = 0;    // bytes of all shards of operand and result of this process
  double bus_rate = 0;  // bus_factor() times the bytes a second
};

// seconds = start + bytes / rate
struct LineFit {
  double start = 0, rate = 0;  // rate 0: no time grows with the bytes
};

struct CommSeries {
  MoveKind kind = MoveKind::kAllToAll;
  bool is_exchange = false;  // of messages between processes, without devices
  std::string reductions;    // "fixed", "fast"; empty where both are one
  std::string axis;          // of the mesh; empty for exchanges
  GroupShape group;          // devices, and hosts that they are on
  bool between_processes = false;
  std::vector<CommPoint> points;  // none where no tensor of these sizes splits over the devices
  bool shortened = false;         // larger tensors would take too much memory here
  LineFit fit;                    // of bytes

  std::string_view name() const { return is_exchange ? "exchange" : move_name(kind); }
};

// Least squares of relative errors, so that small sizes count as much as large ones; neither start
// nor rate is negative. `x` and `seconds` are of the same length, at least 1.
LineFit fit_line(const std::vector<double>& x, const std::vector<double>& seconds);

// all_reduce, all_gather, reduce_scatter and all_to_all over each axis of more than one device, as
// the executor does them: sums between processes with fixed reductions and with fast ones. With
// several processes of processors also the exchange between all of them. Calls are one behind
// another, a GPU is waited for after many. Collective.
std::vector<CommSeries> measure_collectives(const CommOptions& options);

// Returns the entry for a hardware file. For several processes: an entry `cluster` with the series
// of each kind for the most devices inside a host and between hosts. For virtual devices on a CPU:
// an entry `cpu`. For virtual devices on one GPU, which `plan` does not estimate: a comment.
std::string hardware_lines(const std::vector<CommSeries>& series, const CommOptions& options);

}  // namespace meshtrain
