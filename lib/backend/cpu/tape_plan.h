// Where a chain of elementwise instructions reads and writes: in operands, in results, or in slots,
// blocks of scratch memory that later instructions take again.
//
// A tape over rows also has instructions that reduce each row to a number: row_sum, row_max,
// row_min. What has one number a row is marked `of_rows`; other instructions that read it repeat it
// along the rows.
#pragma once

#include "backend/cpu/elementwise.h"
#include "backend/cpu/kernel_table.h"

namespace meshtrain::cpu {

struct TapePlan {
  // Where a block of an operand or an intermediate result is found.
  struct Place {
    enum Kind { kOperand, kSlot, kResult, kValue } kind = kSlot;
    int index = 0;
  };
  enum class Pattern {
    kFull,      // laid out as the result
    kScalar,    // one element
    kPeriodic,  // the last dimensions again and again
    kStrided,
  };
  struct Operand {
    const std::byte* data = nullptr;
    int64_t item_size = 4;
    std::vector<int64_t> strides;  // over `sizes`
    Pattern pattern = Pattern::kFull;
    Access whole;
    bool of_rows = false;  // then kFull
    int slot = -1;         // where blocks are gathered, if they are
    // The same `period` elements repeat over each `span` of elements; 0: they do not.
    int64_t period = 0, span = 0;
  };
  struct Step {
    // One of the three.
    ElementLoop loop = nullptr;
    ReduceRows reduce = nullptr;
    int64_t spread = 0;                   // size of an element that is repeated along its row
    int row_arg = -1;                     // of a loop: run row by row, with this argument's number
    int64_t arg_size = 0, item_size = 0;  // then: of an element of an argument, of the result
    bool of_rows = false;                 // the result
    Place args[3];
    int num_args = 0;
    Place out;
    ElementParams params;
  };
  // One element that stands for all: an operand of one element, or a constant.
  struct Value {
    const std::byte* data = nullptr;  // null: `constant`
    int64_t item_size = 4;
    alignas(8) std::byte constant[8] = {};
    int slot = -1;  // filled with it, for loops that take no single element
    const std::byte* element() const { return data != nullptr ? data : constant; }
  };
  struct Result {
    std::byte* data = nullptr;
    int64_t item_size = 4;
    int copy_from_slot = -1;  // written there first: a later instruction reads what it overwrites
    bool of_rows = false;
  };

  Shape sizes;  // adjacent dimensions joined
  int64_t total = 1;
  int64_t last = 1;     // size of the last dimension
  int64_t columns = 0;  // of rows, if it has any
  int64_t widest = 1;   // bytes of an element
  int num_slots = 0;
  double cost = 0;  // nanoseconds
  std::vector<Operand> operands;
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<Result> results;
};

// Elements: longer periods are not looked for.
constexpr int64_t kLongestPeriod = 512;

// As make_tape; no 16-bit loops but casts.
TapePlan plan_tape(const TapeOverRows& tape);

}  // namespace meshtrain::cpu
