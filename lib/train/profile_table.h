// A profile of training steps as a table by layer and kind, as a Chrome trace and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/step_profile.h"
#include "ir/program.h"
#include "plan/plan_summary.h"

namespace meshtrain {

struct ProfileRow {
  std::string path;             // of a program's step: "d1/matmul"
  std::string kind;             // the op: "einsum", "fused", "all_reduce"
  double calls = 0;             // a step
  double seconds = 0;           // a step, of its time
  double flops = 0, bytes = 0;  // a step, of all shards of this process; 0: not known
};

struct ProfileTable {
  int64_t steps = 0;
  double step_seconds = 0;       // mean of the steps
  double waiting = 0;            // of it: threads wait for each other
  std::vector<ProfileRow> rows;  // longest first
};

// A step's time is shared out among kernels by the time of its threads, so that rows and waiting
// add up to it. `programs`: those that the steps ran.
ProfileTable profile_table(const StepProfile& profile, const std::vector<const Program*>& programs);

// Bytes at the peak, beside those of the plan; 0: not known.
struct ProfileMemory {
  int64_t host = 0;         // resident memory of the process at its peak
  int64_t device = 0;       // in use on the GPU, by everybody
  int64_t plan_device = 0;  // of the plan, for each device
  int64_t devices = 1;      // of this process
};

// The longest rows and the memory, for a terminal.
std::string profile_text(const ProfileTable& table, const PlanSummary& plan,
                         const ProfileMemory& memory);
std::string profile_json(const ProfileTable& table, const PlanSummary& plan,
                         const ProfileMemory& memory);
// For chrome://tracing and Perfetto: `rank` is the process, threads are workers or the GPU.
std::string chrome_trace(const StepProfile& profile, const std::vector<const Program*>& programs,
                         int rank);

}  // namespace meshtrain
