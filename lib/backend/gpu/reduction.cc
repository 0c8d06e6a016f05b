#include "backend/gpu/reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "backend/gpu/merge_launches.h"
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

std::string_view reduction_name(Reduction reduction) {
  return reduction == Reduction::kSum ? "Sum" : reduction == Reduction::kMax ? "Max" : "Min";
}

KernelBodyPtr reduction_body(const ReductionBody& body, const ReductionPlan& plan) {
  const std::string reducing =
      struct_text("Reducing", {{"lanes", int64_t{plan.lanes}},
                               {"groups", plan.groups},
                               {"outputs", body.outputs},
                               {"terms", body.terms},
                               {"part_terms", plan.part_terms},
                               {"terms_adjacent", body.terms_adjacent ? "true" : "false"}});
  // Lanes of one result are in several warps when their numbers are this far apart.
  const int64_t low = body.terms_adjacent ? 1 : kThreads / plan.lanes;
  const bool exchanges = low * plan.lanes > std::max(low, kWarp);
  return make_body(body.kind, call_text(body.function, {reducing, body.of}, true),
                   exchanges ? static_cast<unsigned>(body.value_bytes) * kThreads : 0,
                   plan.lanes > 1, body.device);
}

}  // namespace meshtrain::gpu
