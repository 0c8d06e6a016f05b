#include "backend/gpu/reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "backend/gpu/merge_launches.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

// Threads beyond which more of them do not make a kernel faster: 132 multiprocessors hold 2048.
constexpr int64_t kManyThreads = 1 << 18;
constexpr int64_t kFewTerms = 16;    // of a thread: not worth a second kernel
constexpr int64_t kMostTerms = 512;  // of a thread, in four sums of float32

int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

constexpr std::string_view kTerms = R"(
constexpr unsigned rows = kThreads / lanes;
const unsigned t = threadIdx.x, part = block / groups;
const unsigned lane = terms_adjacent ? t % lanes : t / rows;
const U output = (U)(block % groups) * rows + (terms_adjacent ? t / lanes : t % rows);
A all = none;
if (output < outputs) {
  const U last = ((U)part + 1) * part_terms, end = last < terms ? last : terms;
  U r = (U)part * part_terms + lane;
  A b = none, c = none, d = none;
  for (; r + 3 * lanes < end; r += 4 * lanes) {
    all = join(all, term(output, r));
    b = join(b, term(output, r + lanes));
    c = join(c, term(output, r + 2 * lanes));
    d = join(d, term(output, r + 3 * lanes));
  }
  for (; r < end; r += lanes) all = join(all, term(output, r));
  all = join(join(all, b), join(c, d));
}
)";

}  // namespace

ReductionPlan plan_reduction(int64_t outputs, int64_t terms, bool terms_adjacent, bool may_split) {
  const bool is_tiny = outputs * terms <= kTinyWork;
  int64_t lanes = std::min<int64_t>(power_above(ceil_div(terms, 4)), kThreads);
  if (!terms_adjacent)
    lanes = std::min(lanes, kThreads / std::min(power_above(outputs), kWarp));
  // A warp still reads a row of neighbours as one when others have enough to do, and no thread
  // takes so many that the row must be cut.
  const int64_t fewest =
      is_tiny || !terms_adjacent
          ? 1
          : std::min(lanes, std::max(kWarp, power_above(ceil_div(terms, kMostTerms))));
  const int64_t enough = is_tiny ? kTinyBlocks * kThreads : kManyThreads;
  while (lanes > fewest && outputs * lanes > enough)
    lanes /= 2;
  ReductionPlan plan;
  plan.lanes = static_cast<unsigned>(lanes);
  plan.groups = ceil_div(outputs, kThreads / lanes);
  const int64_t each = ceil_div(terms, lanes);
  if (may_split && !is_tiny) {
    plan.parts = ceil_div(each, kMostTerms);
    if (plan.groups < kManyBlocks)
      plan.parts =
          std::max(plan.parts, std::min(ceil_div(kManyBlocks, plan.groups), each / kFewTerms));
  }
  plan.part_terms = std::max<int64_t>(ceil_div(each, plan.parts), 1) * lanes;
  plan.parts = std::max<int64_t>(ceil_div(terms, plan.part_terms), 1);
  return plan;
}

int64_t reduction_reach(int64_t outputs, int64_t terms) {
  return std::max(outputs + kThreads, terms + 4 * kThreads);
}

double neutral(Reduction reduction) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return reduction == Reduction::kSum ? 0 : reduction == Reduction::kMax ? -kInfinity : kInfinity;
}

std::string combine_lines(Reduction reduction, DType dtype) {
  // A bool is a number of eight bits here, as on the processor.
  const DType number = dtype == DType::kBool ? DType::kUInt8 : dtype;
  const std::string_view function = reduction == Reduction::kSum   ? "mt::add"
                                    : reduction == Reduction::kMax ? "mt::max"
                                                                   : "mt::min";
  return fmt::format("const A none = {};\nauto join = [](A a, A b) -> A {{ return {}(a, b); }};\n",
                     literal(neutral(reduction), number), function);
}

KernelBodyPtr reduction_body(const ReductionBody& body, const ReductionPlan& plan) {
  std::string text = body.text;
  text += constant_line("unsigned", "lanes", plan.lanes);
  text += constant_line("unsigned", "groups", plan.groups);
  text += constant_line("U", "outputs", body.outputs);
  text += constant_line("U", "terms", body.terms);
  text += constant_line("U", "part_terms", plan.part_terms);
  text += constant_line("bool", "terms_adjacent", body.terms_adjacent);
  text += kTerms;
  // Lanes of one result differ in the bits of the thread's number from `low` up to `high`: those of
  // a warp are joined by shuffles, those of several warps by the first.
  const unsigned low = body.terms_adjacent ? 1 : kThreads / plan.lanes;
  const unsigned high = low * plan.lanes;
  const unsigned warp = kWarp;
  if (std::min(high, warp) > low) {
    text += fmt::format("for (unsigned n = {}; n >= {}; n /= 2) all = join(all, other(all, n));\n",
                        std::min(high, warp) / 2, low);
  }
  unsigned shared_bytes = 0;
  const unsigned step = std::max(low, warp);
  if (high > step) {
    text += fmt::format(R"(A* values = (A*)shared;
values[t] = all;
__syncthreads();
if (lane == 0)
  for (unsigned n = {0}; n < {1}; n += {0}) all = join(all, values[t + n]);
)",
                        step, high);
    shared_bytes = static_cast<unsigned>(body.value_bytes) * kThreads;
  }
  text += "if (lane == 0 && output < outputs) result(output, part, all);\n";
  return make_body(body.kind, std::move(text), shared_bytes, plan.lanes > 1);
}

}  // namespace meshtrain::gpu
