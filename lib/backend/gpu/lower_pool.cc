// Pools and their gradients: one thread an element.
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/runs.h"
#include "backend/gpu/text.h"
#include "backend/gpu/window_text.h"

namespace meshtrain::gpu {
namespace {

std::string pool_text(PoolOp op, const PoolShape& shape, const Run& run, int64_t elements) {
  const bool is_grad = op == PoolOp::kMaxGrad || op == PoolOp::kAverageGrad;
  const bool is_max = op == PoolOp::kMax || op == PoolOp::kMaxGrad;
  return call_text(is_grad ? "pool_gradient" : "pool",
                   {struct_text("Pooling", {{"window", window_text(shape)},
                                            {"elements", elements},
                                            {"channels", shape.channels},
                                            {"x_step", run.step[0]},
                                            {"dy_step", run.step[1]},
                                            {"to_step", run.step[2]}}),
                    index_type(window_reach(shape, elements)), std::string(type_name(shape.dtype)),
                    is_max ? "true" : "false"},
                   false);
}

}  // namespace

void GpuLowering::make(const PoolSpec& spec) {
  const auto& [op, shape, jobs] = spec;
  const bool is_grad = op == PoolOp::kMaxGrad || op == PoolOp::kAverageGrad;
  const int64_t result_bytes = is_grad ? shape.input_bytes() : shape.output_bytes();
  if (result_bytes == 0)
    return;
  std::vector<Places> places;
  for (const PoolJob& job : jobs)
    places.push_back({place_of(job.x), place_of(job.dy), place_of(job.to)});
  for (const Run& run : runs_of(places, is_forward)) {
    const int64_t elements =
        run.count * result_bytes / static_cast<int64_t>(dtype_size(shape.dtype));
    Launch launch;
    launch.body = make_body("pool", pool_text(op, shape, run, elements), 0, false, "pool");
    launch.blocks = static_cast<uint64_t>((elements + kThreads - 1) / kThreads);
    std::vector<Access> accesses;
    const std::array<int64_t, 3> bytes = {shape.input_bytes(), shape.output_bytes(), result_bytes};
    for (size_t i = 0; i < bytes.size(); ++i) {
      launch.args.push_back(static_cast<uint64_t>(run.first[i]));
      if (run.first[i] != 0)
        accesses.push_back(access_of(run, i, bytes[i], i == 2));
    }
    // Every window is read once, and by the gradient of a maximum once for each of its cells.
    const int64_t cells = shape.cells[0] * shape.cells[1] * shape.cells[2];
    launch.work = run.count * shape.output_bytes() / static_cast<int64_t>(dtype_size(shape.dtype)) *
                      cells * (op == PoolOp::kMaxGrad ? cells : 1) +
                  elements;
    add(std::move(launch), std::move(accesses));
  }
}

}  // namespace meshtrain::gpu
