// Sums per channel, in float64: of each part apart where there are several, then of all.
#include <fmt/format.h>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
void GpuLowering::make(const ChannelSumsSpec& spec) {
  const auto& [dtype, rows, channels, jobs] = spec;
  const int64_t bytes = rows * channels * static_cast<int64_t>(dtype_size(dtype));
  ReductionBody body;
  body.kind = "channel_sums";
  body.device = "channels";
  body.function = "channel_sums";
  body.outputs = channels;
  body.terms = rows;
  body.terms_adjacent = channels == 1;
  body.value_bytes = 16;
  const ReductionPlan plan = plan_reduction(channels, rows, body.terms_adjacent, true);
  for (const ChannelSumsJob& job : jobs) {
    const int64_t sums = plan.parts * static_cast<int64_t>(job.parts.size());
    const int64_t sum_bytes = 2 * channels * 8;
    std::byte* to = sums == 1 ? job.out : scratch(sums * sum_bytes);
    const View all = contiguous_view(to, DType::kFloat64, {sums, 2 * channels});
    for (const ChannelSumsJob::Part& part : job.parts) {
      const bool is_same = part.u == part.v;
      body.of = fmt::format(
          "{}, {}, {}, {}",
          index_type(reduction_reach(channels, rows + 4 * kThreads) * channels + channels),
          type_name(dtype), channels, is_same);
      Launch launch;
      launch.body = reduction_body(body, plan);
      launch.blocks = plan.blocks();
      launch.args = {address(part.u), address(part.v), address(to)};
      launch.work = rows * channels * (is_same ? 1 : 2);
      add(std::move(launch),
          std::vector<Use>{
              {part.u, bytes, false}, {part.v, bytes, false}, {to, plan.parts * sum_bytes, true}});
      to += plan.parts * sum_bytes;
    }
    if (sums > 1) {
      make(ReduceSpec{Reduction::kSum,
                      all,
                      {true, false},
                      contiguous_view(job.out, DType::kFloat64, {2 * channels})});
    }
  }
}

}  // namespace meshtrain::gpu
