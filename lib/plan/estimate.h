// Estimates the time of a training step on any hardware. Kernels are estimated by their
// floating-point operations and bytes, collectives by the cost model. On the time line, collectives
// overlap kernels as far as data flow allows.
//
// Blind for: small products (all reach the same part of the peak), what collectives take from the
// kernels beside them, congestion, clocks under power limits, input from the host.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"
#include "plan/cost_model.h"

namespace meshtrain {

struct PlannedCollective;

// The estimate of one collective of a step, in seconds.
struct EstimatedCall {
  double seconds = 0;
  double exposed = 0;  // of that, kernels wait for it
  std::string algorithm;
  GroupShape group;
};

// The placement of a mesh axis on hosts.
struct AxisPlace {
  std::string name;
  GroupShape group;
};

struct Estimate {
  Hardware hardware;
  int64_t devices = 1, hosts = 1;
  bool fits = true;  // into the memory of a device
  std::vector<AxisPlace> axes;
  std::vector<EstimatedCall> calls;  // beside PlanSummary::collectives

  // The time of a step on one device, in seconds: step = compute + memory + launch + exposed +
  // jitter.
  double compute = 0;   // kernels that are bound by their products
  double memory = 0;    // kernels that are bound by their bytes
  double launch = 0;    // begin and end of kernels
  int64_t kernels = 0;  // on a GPU what it starts: calls of libraries, and kernels of several steps
  double communication = 0;  // of all collectives
  double exposed = 0;        // of that, kernels wait for it
  double jitter = 0;         // waiting for the slowest device
  double step = 0;

  double flops = 0;  // of all products of a step, all devices together
  double samples_per_second = 0;
  MatmulType products = MatmulType::kFloat32;  // how most of them are computed
  double mfu = 0;                              // of the data sheet's peak for them
  std::string bound;                           // "compute", "memory", "launch latency", "network"
  // A step of the same batch there, where that fits and may be faster.
  std::optional<double> one_device;
  std::vector<std::string> notes;
};

// What a step of a program computes and moves: bytes read and written, and the operations of those
// whose op counts them. `all_shards`: of all shards of this process, else of one device.
struct StepWork {
  double flops = 0, bytes = 0;
};
StepWork step_work(const Program& program, const ProgramStep& step, bool all_shards);

struct EstimateInput {
  const Program& program;
  const DeviceMesh& mesh;
  const std::vector<PlannedCollective>& collectives;
  int64_t batch = 1;
  int64_t memory = 0;      // bytes that a device needs
  double flops = 0;        // of the products of a step, all devices together
  double model_flops = 0;  // of those that the model needs
  bool allow_tf32 = true;  // for float32 products, where the hardware is not virtual
  bool fixed_reductions = true;
  double launch_share = 1;  // kernels that are started for each step of the program
  std::string advice = {};  // what to do where the memory is too small
};

// The program is that of one process which has the whole mesh. On hardware that is not virtual each
// device is taken to have a process of its own, as a run gives it.
Estimate estimate_step(const EstimateInput& input, const Hardware& hardware);

// Records how long one device takes for the same batch; a note where that is less.
void compare_with_one_device(Estimate& estimate, double one_device_step);

}  // namespace meshtrain
