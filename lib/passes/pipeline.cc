#include "passes/pipeline.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include "passes/bucket.h"
#include "passes/lower.h"
#include "passes/partition.h"
#include "passes/schedule.h"
#include "passes/simplify.h"

namespace meshtrain {
namespace {

struct Pass {
  const char* name;
  Graph (*run)(const Graph&, const DeviceMesh&, const CompileOptions&);
  bool sharded;  // its result has final shardings
};

constexpr Pass kPipeline[] = {
    {"simplify",
     [](const Graph& graph, const DeviceMesh&, const CompileOptions&) { return simplify(graph); },
     false},
    {"schedule",
     [](const Graph& graph, const DeviceMesh&, const CompileOptions& options) {
       return options.early_gradients ? reduce_gradients_early(graph) : graph;
     },
     false},
    {"propagate",
     [](const Graph& graph, const DeviceMesh& mesh, const CompileOptions& options) {
       Graph out = graph;
       propagate(out, mesh, options.propagate);
       return out;
     },
     false},
    {"partition",
     [](const Graph& graph, const DeviceMesh& mesh, const CompileOptions&) {
       return partition(graph, mesh);
     },
     true},
    {"bucket",
     [](const Graph& graph, const DeviceMesh& mesh, const CompileOptions& options) {
       return options.bucket ? bucket_collectives(graph, mesh) : graph;
     },
     true},
};

void dump(const Graph& graph, const DeviceMesh& mesh, const CompileOptions& options, int number,
          const char* pass, double milliseconds) {
  std::filesystem::create_directories(options.dump_dir);
  const std::string path = fmt::format("{}/{}{}{:02}_{}.ir", options.dump_dir, options.dump_name,
                                       options.dump_name.empty() ? "" : "_", number, pass);
  std::ofstream file(path);
  file << fmt::format("# {} {:.3f} ms\n", pass, milliseconds) << print(graph, mesh);
  if (!file) {
    throw RuntimeFailure(ExitCode::kWriteFailed, fmt::format("cannot write {}", path));
  }
}

}  // namespace

Compiled compile(const Graph& graph, const DeviceMesh& mesh, const CompileOptions& options) {
  Graph current = graph;
  int number = 0;
  for (const Pass& pass : kPipeline) {
    const auto start = std::chrono::steady_clock::now();
    current = pass.run(current, mesh, options);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    if (pass.sharded) {
      verify_sharded(current, mesh);
    } else {
      verify(current);
    }
    if (!options.dump_dir.empty()) {
      dump(current, mesh, options, ++number, pass.name, taken.count());
    }
  }
  Program program = lower_program(current, mesh);
  return {std::move(current), std::move(program)};
}

}  // namespace meshtrain
