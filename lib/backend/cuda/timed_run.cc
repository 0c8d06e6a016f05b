#include "backend/cuda/timed_run.h"

#include <memory>

namespace meshtrain::cuda {
namespace {

std::string kind_of(const gpu::Call& call) {
  if (std::holds_alternative<gpu::KernelCall>(call.what))
    return "";
  if (std::holds_alternative<gpu::Matmul>(call.what))
    return "matmul";
  if (std::holds_alternative<gpu::Conv>(call.what))
    return "conv";
  if (std::holds_alternative<gpu::Attention>(call.what))
    return "attention";
  if (std::holds_alternative<AllReduceSpec>(call.what))
    return "all_reduce";
  if (std::holds_alternative<AllGatherSpec>(call.what))
    return "all_gather";
  return std::holds_alternative<ReduceScatterSpec>(call.what) ? "reduce_scatter" : "exchange";
}

using Marks = std::vector<std::unique_ptr<EventHandle>>;

void mark(const Core& core, Marks& marks) {
  marks.push_back(std::make_unique<EventHandle>(core, CU_EVENT_DEFAULT));
  core.check(driver().cuEventRecord(marks.back()->get(), core.work), "cuEventRecord");
}

}  // namespace

std::vector<gpu::CallTime> run_timed(Core& core, const Prepared& prepared,
                                     std::span<const gpu::Window> windows, int first, int steps) {
  core.make_current();
  core.follow_copies();
  core.traffic.add(prepared.traffic(), steps);
  Marks marks;
  mark(core, marks);
  for (int step = first; step < first + steps; ++step) {
    const Shift shift(windows, step);
    for (size_t call = 0; call < prepared.num_calls(); ++call) {
      prepared.enqueue(call, shift, core.work);
      mark(core, marks);
    }
  }
  core.wait_for(core.work);
  std::vector<gpu::CallTime> times;
  double now = 0;
  for (size_t i = 0; i + 1 < marks.size(); ++i) {
    float milliseconds = 0;
    core.check(driver().cuEventElapsedTime(&milliseconds, marks[i]->get(), marks[i + 1]->get()),
               "cuEventElapsedTime");
    const gpu::Call& call = prepared.call(i % prepared.num_calls());
    const double end = now + static_cast<double>(milliseconds) / 1e3;
    times.push_back({call.path, kind_of(call), now, end});
    now = end;
  }
  return times;
}

}  // namespace meshtrain::cuda
