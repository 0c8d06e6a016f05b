// Sums per channel, in float64: of each part apart where there are several, then of all.
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr std::string_view kText = R"(
struct A { double u, product; };
const A none = {0.0, 0.0};
auto join = [](A a, A b) -> A { return {a.u + b.u, a.product + b.product}; };
auto other = [](A a, unsigned lanes) -> A {
  return {__shfl_xor_sync(0xffffffffu, a.u, lanes),
          __shfl_xor_sync(0xffffffffu, a.product, lanes)};
};
const T* u = (const T*)arg[0];
const T* v = (const T*)arg[1];
double* out = (double*)arg[2];
auto term = [=](U k, U r) -> A {
  const double x = (double)mt::load(u + r * channels + k);
  return {x, same ? x * x : x * (double)mt::load(v + r * channels + k)};
};
auto result = [=](U k, unsigned part, A a) {
  out[(U)part * 2 * channels + k] = a.u;
  out[((U)part * 2 + 1) * channels + k] = a.product;
};
)";

}  // namespace

void GpuLowering::make(const ChannelSumsSpec& spec) {
  const auto& [dtype, rows, channels, jobs] = spec;
  const int64_t bytes = rows * channels * static_cast<int64_t>(dtype_size(dtype));
  ReductionBody body;
  body.kind = "channel_sums";
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
      body.text =
          index_types(reduction_reach(channels, rows + 4 * kThreads) * channels + channels) +
          type_line("T", type_name(dtype)) + constant_line("U", "channels", channels) +
          constant_line("bool", "same", is_same) + std::string(kText);
      Launch launch;
      launch.body = reduction_body(body, plan);
      launch.blocks = plan.blocks();
      launch.args = {reinterpret_cast<uint64_t>(part.u), reinterpret_cast<uint64_t>(part.v),
                     reinterpret_cast<uint64_t>(to)};
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
