#include "backend/fused_rows.h"

#include <algorithm>
#include <map>

namespace meshtrain {
namespace {

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
class RowJoiner {
 public:
  explicit RowJoiner(const std::vector<const std::byte*>& read_later) : read_later_(read_later) {}

  bool begin(const std::vector<RowCall>& calls) {
    const auto first = std::find_if(calls.begin(), calls.end(), [](const RowCall& call) {
      return call.kind == RowCall::Kind::kReduce;
    });
    if (first == calls.end() || calls.size() < 2)
      return false;
    shape_ = plan.shape = first->shape;
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
    FusedRows::Member member{&call};
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
      const std::optional<FusedRows::Operand> operand = operand_of(view, shape, reads_whole);
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
    for (FusedRows::Value& value : plan.values) {
      const Access own = whole_access(value.view, true);
      for (const FusedRows::Array& array : plan.arrays) {
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
    return !stored.empty();
  }

  FusedRows plan;

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

  std::optional<FusedRows::Operand> operand_of(const View& view, const Shape& shape, bool whole) {
    FusedRows::Array array{view};
    array.is_spread = whole;
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
      FusedRows::Value& value = plan.values[static_cast<size_t>(found->second)];
      const bool fits = value.is_whole ? array.has_result_strides
                                       : !array.is_whole && same_loop(array.rows, one_a_row_);
      if (!fits || value.view.dtype != view.dtype)
        return std::nullopt;
      value.is_used = true;
      return FusedRows::Operand{true, found->second};
    }
    for (size_t i = 0; i < plan.arrays.size(); ++i) {
      const FusedRows::Array& other = plan.arrays[i];
      if (other.view.data == view.data && other.view.dtype == view.dtype &&
          same_loop(other.rows, array.rows) && same_loop(other.columns, array.columns))
        return FusedRows::Operand{false, static_cast<int>(i)};
    }
    plan.arrays.push_back(std::move(array));
    return FusedRows::Operand{false, static_cast<int>(plan.arrays.size()) - 1};
  }

  const std::vector<const std::byte*>& read_later_;
  Shape shape_;  // of whole arrays
  std::vector<bool> gone_;
  StridedLoop one_a_row_;
  std::map<const std::byte*, int> value_at_;  // the last that was written there
};

}  // namespace

std::optional<FusedRows> join_rows(const std::vector<RowCall>& calls,
                                   const std::vector<const std::byte*>& read_later) {
  RowJoiner joiner(read_later);
  if (!joiner.begin(calls))
    return std::nullopt;
  for (const RowCall& call : calls) {
    if (!joiner.add(call))
      return std::nullopt;
  }
  if (!joiner.finish())
    return std::nullopt;
  return std::move(joiner.plan);
}

void give_memory(std::vector<RowCall>& calls, const std::vector<const std::byte*>& read_later,
                 const std::function<std::byte*(int64_t bytes)>& take) {
  struct Given {
    std::byte* memory;
    int64_t bytes;
    size_t last;  // call that reads it
  };
  constexpr int64_t kLargestItem = 8;  // of equally many elements of one byte
  std::map<const std::byte*, size_t> last;
  for (size_t c = 0; c < calls.size(); ++c) {
    for (const View& operand : calls[c].operands)
      last[operand.data] = c;
  }
  std::vector<Given> given;
  std::map<const std::byte*, std::byte*> memory;
  for (size_t c = 0; c < calls.size(); ++c) {
    RowCall& call = calls[c];
    for (View& operand : call.operands) {
      if (const auto found = memory.find(operand.data); found != memory.end())
        operand.data = found->second;
    }
    for (TapeResult& result : call.results) {
      const auto at = std::find(read_later.begin(), read_later.end(), result.view.data);
      if (at != read_later.end())
        continue;
      const int64_t bytes = result.view.num_bytes();
      auto block = std::find_if(given.begin(), given.end(), [&](const Given& g) {
        return g.last < c && g.bytes >= bytes && g.bytes / kLargestItem <= bytes;
      });
      if (block == given.end())
        block = given.insert(block, {take(bytes), bytes, c});
      const auto reader = last.find(result.view.data);
      block->last = reader == last.end() ? c : std::max(c, reader->second);
      result.view.data = memory[result.view.data] = block->memory;
    }
  }
}

}  // namespace meshtrain
