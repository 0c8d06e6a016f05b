// The visible list of passes from a global graph to a Program.
//
//   simplify -> head_loss -> schedule -> propagate -> argmax -> regather -> partition -> bucket
//   -> lower (fuse, memory plan)
//
// The verifier checks the final graph and, with verify_each, the graph after each pass. Writes
// "01_simplify.ir", ... with the time of the pass to dump_dir. Compiled has the times of all
// passes.
#pragma once

#include <string>

#include "ir/program.h"
#include "passes/propagate.h"

namespace meshtrain {

struct CompileOptions {
  PropagateOptions propagate;
  bool verify_each = true;  // names the pass that broke what the last verifier sees
  bool bucket = true;
  bool early_gradients = false;        // reduce each gradient as soon as it exists
  int64_t regather_above = INT64_MAX;  // bytes of gathered weights; see gather_weights_again
  int processes = 1, rank = 0;         // that the mesh is split over, and the one to lower for
  bool fixed_reductions = false;       // Program::fixed_reductions
  std::string dump_dir;                // empty: nothing is written
  std::string dump_name;               // prefix of the files: "train"
};

struct PassTime {
  std::string name;         // "simplify", "verify" (all of them), "lower"
  double milliseconds = 0;  // of the processor
};

struct Compiled {
  Graph graph;  // partitioned, bucketed
  Program program;
  std::vector<PassTime> times;  // in the order of the passes
};

// `graph` has gradients and updates and its variables have layouts (assign_layouts).
Compiled compile(Graph graph, const DeviceMesh& mesh, const CompileOptions& options);

}  // namespace meshtrain
