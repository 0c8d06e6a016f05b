// Row fusion: reductions along rows, and elementwise steps before, between and after them, as one
// launch in which the same threads compute a row throughout.
//
// `lanes` threads of a block compute a row; lane l has its columns l, l + lanes, ... . Each reduces
// its columns into four values as a reduction does (reduction.h) and combines these in the same
// tree. When reduce() uses as many lanes in one part, a sum has the same bits. The order depends on
// nothing but the numbers of rows and columns and what is computed.
//
// Values are kept in registers when a lane has few columns. Otherwise every reduction recomputes
// them from the operands, which are then in the caches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// A spec between BeginRowFusion and EndRowFusion.
struct RowCall {
  enum class Kind : uint8_t { kTape, kCopy, kReduce, kOneHot };
  Kind kind = Kind::kTape;
  std::string path = {};
  Shape shape = {};                 // of the results; of what is reduced
  std::vector<View> operands = {};  // of all but a tape: one
  std::vector<TapeInstruction> tape = {};
  std::vector<TapeResult> results = {};  // of all but a tape: one, of which only the view counts
  Reduction reduction = Reduction::kSum;
  std::vector<bool> reduced = {};
  LookupShape lookup = {};
  std::vector<Access> last_reads = {};  // of its step
};

// Whole arrays have one number for each row and column, others one a row.
struct RowPlan {
  // An array that the kernel reads. Element (k, r) is at data + rows(k) + columns(r).
  struct Array {
    View view;
    StridedLoop rows = {}, columns = {};
    bool is_whole = false;            // or repeated over all rows
    bool has_result_strides = false;  // those that are whole
  };
  struct Value {
    View view;  // where it is stored, if at all
    bool is_whole = false;
    bool is_stored = false;
    bool is_used = false;  // by a later member
    bool is_last = false;  // stored last, because an operand is at the same address
  };
  struct Operand {
    bool is_value = false;
    int index = 0;  // of `values` or `arrays`
  };
  struct Member {
    const RowCall* call = nullptr;
    bool is_whole = false;  // its results are, or what it reduces
    std::vector<Operand> operands = {};
    std::vector<int> results = {};
  };

  int64_t rows = 1, columns = 1;
  StridedLoop result_rows, result_columns;  // of whole values
  std::vector<Array> arrays;
  std::vector<Value> values;
  std::vector<Member> members;
  unsigned lanes = 1;
  int held = 0;  // columns of a lane that are kept in registers; 0: none
  int64_t work = 0;

  const View& view_of(const Operand& operand) const {
    return operand.is_value ? values[static_cast<size_t>(operand.index)].view
                            : arrays[static_cast<size_t>(operand.index)].view;
  }
  bool is_whole(const Operand& operand) const {
    return operand.is_value ? values[static_cast<size_t>(operand.index)].is_whole
                            : arrays[static_cast<size_t>(operand.index)].is_whole;
  }
};

// Returns nothing when the calls cannot be one kernel, or when that would be slower or less exact.
// The calls must outlive the plan.
std::optional<RowPlan> plan_rows(const std::vector<RowCall>& calls,
                                 const std::vector<const std::byte*>& read_later);
Launch row_launch(const RowPlan& plan);
std::vector<Access> row_accesses(const RowPlan& plan);

}  // namespace meshtrain::gpu
