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

// In as few dimensions as possible; equal loops have equal sizes and strides.
StridedLoop loop_of(Shape sizes, std::vector<int64_t> strides) {
  StridedLoop loop{std::move(sizes), {std::move(strides)}};
  coalesce(loop);
  return loop;
}

bool is_constant(const StridedLoop& loop) {
  return std::all_of(loop.strides[0].begin(), loop.strides[0].end(),
                     [](int64_t stride) { return stride == 0; });
}

bool same_loop(const StridedLoop& a, const StridedLoop& b) {
  return a.sizes == b.sizes && a.strides == b.strides;
}

// Builds the plan call by call; false where one does not belong to such a kernel.
class RowPlanner {
 public:
  explicit RowPlanner(const std::vector<const std::byte*>& read_later) : read_later_(read_later) {}

  bool begin(const std::vector<RowCall>& calls) {
    const auto first = std::find_if(calls.begin(), calls.end(), [](const RowCall& call) {
      return call.kind == RowCall::Kind::kReduce;
    });
    if (first == calls.end() || calls.size() < 2)
      return false;
    shape_ = first->shape;
    gone_ = first->reduced;
    const std::vector<int64_t> strides = row_major_strides(shape_);
    plan.result_rows = along(strides, false);
    plan.result_columns = along(strides, true);
    plan.rows = num_elements(plan.result_rows.sizes);
    plan.columns = num_elements(plan.result_columns.sizes);
    one_a_row_ = loop_of({plan.rows}, {1});
    return plan.rows > 0 && plan.columns > 1 && !gone_.empty() && gone_.back() && shape_.back() > 1;
  }

  bool add(const RowCall& call) {
    RowPlan::Member member{&call};
    const bool fills_whole = call.shape == shape_;
    const bool fills_rows = num_elements(call.shape) == plan.rows;
    switch (call.kind) {
      case RowCall::Kind::kReduce:
        if (!fills_whole || call.reduced != gone_)
          return false;
        break;
      case RowCall::Kind::kOneHot:
        if (call.lookup.num_ids != plan.rows || call.lookup.rows != plan.columns ||
            std::count(gone_.begin(), gone_.end(), true) != 1)
          return false;
        break;
      default:
        if (!fills_whole && !fills_rows)
          return false;
    }
    member.is_whole = fills_whole || call.kind == RowCall::Kind::kOneHot;
    const bool reads_whole = member.is_whole && call.kind != RowCall::Kind::kOneHot;
    for (const View& view : call.operands) {
      const Shape& shape = call.kind == RowCall::Kind::kOneHot ? view.shape : call.shape;
      const std::optional<RowPlan::Operand> operand = operand_of(view, shape, reads_whole);
      if (!operand)
        return false;
      member.operands.push_back(*operand);
    }
    const bool gives_whole = member.is_whole && call.kind != RowCall::Kind::kReduce;
    for (const TapeResult& result : call.results) {
      if (!is_contiguous(result.view))
        return false;
      value_at_[result.view.data] = static_cast<int>(plan.values.size());
      member.results.push_back(static_cast<int>(plan.values.size()));
      plan.values.push_back({result.view, gives_whole});
    }
    plan.work = std::max(plan.work, work_of(call));
    plan.members.push_back(std::move(member));
    return true;
  }

  // Decides which values are stored. Returns false when a store would overwrite an array that is
  // read with other strides.
  bool finish() {
    for (const std::byte* data : read_later_) {
      if (const auto found = value_at_.find(data); found != value_at_.end())
        plan.values[static_cast<size_t>(found->second)].is_stored = true;
    }
    std::vector<Access> stored;
    for (RowPlan::Value& value : plan.values) {
      const Access own = whole_access(value.view, true);
      for (const RowPlan::Array& array : plan.arrays) {
        if (!overlaps(own, whole_access(array.view, false)))
          continue;
        if (!value.is_stored || array.view.data != value.view.data || !value.is_whole ||
            !array.has_result_strides || array.view.item_size() != value.view.item_size())
          return false;
        value.is_last = true;
      }
      if (!value.is_stored)
        continue;
      for (const Access& other : stored) {
        if (overlaps(own, other))
          return false;
      }
      stored.push_back(own);
    }
    return !stored.empty() && stored.size() + plan.arrays.size() <= kMostArgs && choose_lanes();
  }

  RowPlan plan;

 private:
  // Elements that the call reads and writes.
  int64_t work_of(const RowCall& call) const {
    const int64_t elements = num_elements(call.shape);
    if (call.kind == RowCall::Kind::kReduce)
      return elements + plan.rows;
    const size_t arrays = call.operands.size() + call.results.size();
    return elements * static_cast<int64_t>(arrays);
  }

  // The dimensions of rows, or those along them.
  StridedLoop along(const std::vector<int64_t>& strides, bool gone) const {
    Shape sizes;
    std::vector<int64_t> steps;
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (gone_[d] == gone) {
        sizes.push_back(shape_[d]);
        steps.push_back(strides[d]);
      }
    }
    return loop_of(std::move(sizes), std::move(steps));
  }

  std::optional<RowPlan::Operand> operand_of(const View& view, const Shape& shape, bool whole) {
    RowPlan::Array array{view};
    if (whole) {
      array.rows = along(view.strides, false);
      array.columns = along(view.strides, true);
    } else {
      array.rows = loop_of(shape, view.strides);
      array.columns = loop_of({1}, {0});
    }
    array.has_result_strides = whole && same_loop(array.rows, plan.result_rows) &&
                               same_loop(array.columns, plan.result_columns);
    array.is_whole = whole && !is_constant(array.columns);
    if (const auto found = value_at_.find(view.data); found != value_at_.end()) {
      RowPlan::Value& value = plan.values[static_cast<size_t>(found->second)];
      const bool fits = value.is_whole ? array.has_result_strides
                                       : !array.is_whole && same_loop(array.rows, one_a_row_);
      if (!fits || value.view.dtype != view.dtype)
        return std::nullopt;
      value.is_used = true;
      return RowPlan::Operand{true, found->second};
    }
    for (size_t i = 0; i < plan.arrays.size(); ++i) {
      const RowPlan::Array& other = plan.arrays[i];
      if (other.view.data == view.data && other.view.dtype == view.dtype &&
          same_loop(other.rows, array.rows) && same_loop(other.columns, array.columns))
        return RowPlan::Operand{false, static_cast<int>(i)};
    }
    plan.arrays.push_back(std::move(array));
    return RowPlan::Operand{false, static_cast<int>(plan.arrays.size()) - 1};
  }

  // As many lanes as reduce() would take; more of them where a lane then holds its columns in
  // registers, but for what is so small that one block may compute it (merge_launches.h).
  bool choose_lanes() {
    const ReductionPlan alone = plan_reduction(plan.rows, plan.columns, true, true);
    const int64_t most = alone.groups < kManyBlocks ? kMostOfFew : kMostOfMany;
    if (alone.parts > 1 && ceil_div(plan.columns, kThreads) > most)
      return false;
    int64_t lanes = alone.lanes;
    const int64_t words = most_words(), instructions = num_instructions();
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

  int64_t num_instructions() const {
    int64_t out = 1;
    for (const RowPlan::Member& member : plan.members)
      out += member.is_whole ? static_cast<int64_t>(member.call->tape.size()) + 1 : 0;
    return out;
  }

  // Registers that a column's whole values take when most of them are needed.
  int64_t most_words() const {
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

  const std::vector<const std::byte*>& read_later_;
  Shape shape_;  // of whole arrays
  std::vector<bool> gone_;
  StridedLoop one_a_row_;
  std::map<const std::byte*, int> value_at_;  // the last that was written there
};

}  // namespace

std::optional<RowPlan> plan_rows(const std::vector<RowCall>& calls,
                                 const std::vector<const std::byte*>& read_later) {
  RowPlanner planner(read_later);
  if (!planner.begin(calls))
    return std::nullopt;
  for (const RowCall& call : calls) {
    if (!planner.add(call))
      return std::nullopt;
  }
  if (!planner.finish())
    return std::nullopt;
  return std::move(planner.plan);
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
