// The visible list of passes from a global graph to a Program.
//
//   simplify -> schedule -> propagate -> partition -> bucket -> lower (fuse, memory plan)
//
// The verifier runs after each; dump_dir receives "01_simplify.ir", ... with the time each took.
#pragma once

#include <string>

#include "ir/program.h"
#include "passes/propagate.h"

namespace meshtrain {

struct CompileOptions {
  PropagateOptions propagate;
  bool bucket = true;
  bool early_gradients = false;  // reduce each gradient as soon as it exists
  std::string dump_dir;          // empty: nothing is written
  std::string dump_name;         // prefix of the files: "train"
};

struct Compiled {
  Graph graph;  // partitioned, bucketed
  Program program;
};

// `graph` has gradients and updates and its variables have layouts (assign_layouts).
Compiled compile(const Graph& graph, const DeviceMesh& mesh, const CompileOptions& options);

}  // namespace meshtrain
