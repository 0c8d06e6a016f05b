#include "passes/pipeline.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/verify.h"
#include "passes/argmax.h"
#include "passes/bucket.h"
#include "passes/head_loss.h"
#include "passes/lower.h"
#include "passes/partition.h"
#include "passes/recompute.h"
#include "passes/schedule.h"
#include "passes/simplify.h"

namespace meshtrain {
namespace {

struct Pass {
  const char* name;
  Graph (*run)(Graph, const DeviceMesh&, const CompileOptions&);
  void (*verify)(const Graph&, const DeviceMesh&);  // what holds for its result
  bool (*runs)(const CompileOptions&) = nullptr;    // null: always
};

void verify_global(const Graph& graph, const DeviceMesh&) {
  verify(graph);
}

constexpr Pass kPipeline[] = {
    {"simplify",
     [](Graph graph, const DeviceMesh&, const CompileOptions&) {
       return simplify(std::move(graph));
     },
     verify_global},
    {"head_loss",
     [](Graph graph, const DeviceMesh& mesh, const CompileOptions&) {
       return place_head_losses(std::move(graph), mesh);
     },
     verify_global},
    {"schedule",
     [](Graph graph, const DeviceMesh&, const CompileOptions&) {
       return reduce_gradients_early(std::move(graph));
     },
     verify_global, [](const CompileOptions& options) { return options.early_gradients; }},
    {"propagate",
     [](Graph graph, const DeviceMesh& mesh, const CompileOptions& options) {
       propagate(graph, mesh, options.propagate);
       return graph;
     },
     verify_shardings},
    {"argmax",
     [](Graph graph, const DeviceMesh&, const CompileOptions&) {
       return split_argmax(std::move(graph));
     },
     verify_shardings},
    {"regather",
     [](Graph graph, const DeviceMesh& mesh, const CompileOptions& options) {
       return gather_weights_again(std::move(graph), mesh, options.regather_above);
     },
     verify_shardings,
     [](const CompileOptions& options) { return options.regather_above < INT64_MAX; }},
    {"partition",
     [](Graph graph, const DeviceMesh& mesh, const CompileOptions&) {
       return partition(std::move(graph), mesh);
     },
     verify_sharded},
    {"recompute",
     [](Graph graph, const DeviceMesh& mesh, const CompileOptions&) {
       return recompute_arithmetic(std::move(graph), mesh);
     },
     verify_sharded},
    {"bucket",
     [](Graph graph, const DeviceMesh& mesh, const CompileOptions&) {
       return bucket_collectives(std::move(graph), mesh);
     },
     verify_sharded, [](const CompileOptions& options) { return options.bucket; }},
};

// Processor time: what other programs do meanwhile does not count.
class Stopwatch {
 public:
  double milliseconds() const {
    return static_cast<double>(std::clock() - start_) * 1000 / CLOCKS_PER_SEC;
  }

 private:
  std::clock_t start_ = std::clock();
};

void dump(const Graph& graph, const DeviceMesh& mesh, const CompileOptions& options, int number,
          const char* pass, double milliseconds) {
  std::error_code failed;  // then the file cannot be written, and says so
  std::filesystem::create_directories(options.dump_dir, failed);
  const std::string path = fmt::format("{}/{}{}{:02}_{}.ir", options.dump_dir, options.dump_name,
                                       options.dump_name.empty() ? "" : "_", number, pass);
  std::ofstream file(path);
  file << fmt::format("# {} {:.3f} ms\n", pass, milliseconds) << print(graph, mesh);
  if (!file) {
    throw RuntimeFailure(
        ExitCode::kWriteFailed,
        fmt::format("cannot write {}{}", path, failed ? ": " + failed.message() : ""));
  }
}

}  // namespace

Compiled compile(Graph graph, const DeviceMesh& mesh, const CompileOptions& options) {
  Compiled out;
  double verifying = 0;
  int number = 0;
  const auto runs = [&](const Pass& pass) { return pass.runs == nullptr || pass.runs(options); };
  const Pass* const last =
      &*std::find_if(std::rbegin(kPipeline), std::rend(kPipeline), runs);  // some always run
  for (const Pass& pass : kPipeline) {
    const Stopwatch watch;
    if (runs(pass)) {
      graph = pass.run(std::move(graph), mesh, options);
    }
    out.times.push_back({pass.name, watch.milliseconds()});
    if (&pass == last || (options.verify_each && runs(pass))) {
      pass.verify(graph, mesh);
    }
    verifying += watch.milliseconds() - out.times.back().milliseconds;
    ++number;
    if (!options.dump_dir.empty()) {
      dump(graph, mesh, options, number, pass.name, out.times.back().milliseconds);
    }
  }
  const Stopwatch watch;
  out.program = lower_program(graph, MeshPart(mesh, options.processes, options.rank));
  out.program.fixed_reductions = options.fixed_reductions;
  out.times.push_back({"lower", watch.milliseconds()});
  out.times.push_back({"verify", verifying});
  out.graph = std::move(graph);
  return out;
}

}  // namespace meshtrain
