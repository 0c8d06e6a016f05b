#include "backend/gpu/row_fusion.h"

#include <algorithm>
#include <map>

#include "backend/gpu/merge_launches.h"
#include "backend/gpu/reduction.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kMostHeld = 24;            // columns of a lane in registers
constexpr int64_t kMostRegisters = 96;       // of a thread for whole values
constexpr int64_t kMostInstructions = 1024;  // of a thread's columns in all
// Columns of a thread where rows are too few to fill a GPU, and where they are enough: each of its
// four sums of float32 then has 1024 terms.
constexpr int64_t kMostOfFew = 64, kMostOfMany = 4096;
constexpr size_t kMostArgs = 64;

int64_t num_instructions(const RowPlan& plan) {
  int64_t out = 1;
  for (const RowPlan::Member& member : plan.members)
    out += member.is_whole ? static_cast<int64_t>(member.call->tape.size()) + 1 : 0;
  return out;
}

// Registers that a column's whole values take when most of them are needed.
int64_t most_words(const RowPlan& plan) {
  struct Span {
    size_t first, last;
    int64_t words;
  };
  std::map<const void*, Span> spans;
  for (size_t m = 0; m < plan.members.size(); ++m) {
    const RowPlan::Member& member = plan.members[m];
    const auto touch = [&](const void* what, DType dtype, size_t at) {
      const int64_t words = dtype_size(dtype) == 8 ? 2 : 1;
      spans.try_emplace(what, Span{at, at, words}).first->second.last = at;
    };
    for (const RowPlan::Operand& operand : member.operands) {
      if (plan.is_whole(operand))
        touch(&plan.view_of(operand), plan.view_of(operand).dtype, m);
    }
    for (const int v : member.results) {
      const RowPlan::Value& value = plan.values[static_cast<size_t>(v)];
      if (value.is_whole)
        touch(&value.view, value.view.dtype, m);
      if (value.is_whole && value.is_last)
        touch(&value.view, value.view.dtype, plan.members.size());
    }
  }
  int64_t most = 0;
  for (size_t m = 0; m < plan.members.size(); ++m) {
    int64_t words = 0;
    for (const auto& [what, span] : spans)
      words += span.first <= m && m <= span.last ? span.words : 0;
    most = std::max(most, words);
  }
  return most;
}

// As many lanes as reduce() would take; more of them where a lane then holds its columns in
// registers, but for what is so small that one block may compute it (merge_launches.h).
bool choose_lanes(RowPlan& plan) {
  const ReductionPlan alone = plan_reduction(plan.rows, plan.columns, true, true);
  const int64_t most = alone.groups < kManyBlocks ? kMostOfFew : kMostOfMany;
  if (alone.parts > 1 && ceil_div(plan.columns, kThreads) > most)
    return false;
  int64_t lanes = alone.lanes;
  const int64_t words = most_words(plan), instructions = num_instructions(plan);
  const auto holds = [&] {
    const int64_t held = ceil_div(plan.columns, lanes);
    return held <= kMostHeld && held * words <= kMostRegisters &&
           held * instructions <= kMostInstructions;
  };
  const bool is_tiny = plan.rows * plan.columns <= kTinyWork;
  while (!is_tiny && lanes < kThreads && !holds())
    lanes *= 2;
  plan.lanes = static_cast<unsigned>(lanes);
  plan.held = holds() ? static_cast<int>(ceil_div(plan.columns, lanes)) : 0;
  return true;
}

}  // namespace

std::optional<RowPlan> plan_rows(const std::vector<RowCall>& calls,
                                 const std::vector<const std::byte*>& read_later) {
  std::optional<FusedRows> rows = join_rows(calls, read_later);
  if (!rows)
    return std::nullopt;
  RowPlan plan{std::move(*rows)};
  const auto stored = static_cast<size_t>(
      std::count_if(plan.values.begin(), plan.values.end(),
                    [](const RowPlan::Value& value) { return value.is_stored; }));
  if (stored + plan.arrays.size() > kMostArgs || !choose_lanes(plan))
    return std::nullopt;
  return plan;
}

std::vector<Access> row_accesses(const RowPlan& plan) {
  std::vector<Access> out;
  for (const RowPlan::Array& array : plan.arrays)
    out.push_back(whole_access(array.view, false));
  for (const RowPlan::Value& value : plan.values) {
    if (value.is_stored)
      out.push_back(whole_access(value.view, true));
  }
  return out;
}

}  // namespace meshtrain::gpu
