// Row fusion: reductions along rows, and elementwise steps before, between and after them, as one
// kernel that computes a row throughout. This is what its specs say together; each backend writes
// its own kernel from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/kernel_spec.h"

namespace meshtrain {

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
struct FusedRows {
  // An array that the kernel reads. Element (k, r) is at data + rows(k) + columns(r).
  struct Array {
    View view;
    StridedLoop rows = {}, columns = {};
    bool is_spread = false;           // the view has the shape of whole arrays
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

  Shape shape;  // of whole arrays
  int64_t rows = 1, columns = 1;
  StridedLoop result_rows, result_columns;  // of whole values
  std::vector<Array> arrays;
  std::vector<Value> values;
  std::vector<Member> members;
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

// Returns nothing when the calls cannot be one kernel. The calls must outlive the result.
std::optional<FusedRows> join_rows(const std::vector<RowCall>& calls,
                                   const std::vector<const std::byte*>& read_later);

// For calls that are not one kernel: gives memory to results that are not read later, which may be
// where there is none. What no other call reads any more is given again, but not to a result that
// needs far less, such as one number a row.
void give_memory(std::vector<RowCall>& calls, const std::vector<const std::byte*>& read_later,
                 const std::function<std::byte*(int64_t bytes)>& take);

}  // namespace meshtrain
