#include "backend/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/cpu/half_tape.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/tape_plan.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

// Elements of a block, so that what a block reads and writes stays in the first-level cache.
constexpr int64_t kBlock = 1024;
constexpr int64_t kSmallBlock = kLongestPeriod;
constexpr size_t kManyArrays = 6;
constexpr size_t kSlotGap = 64;  // bytes: addresses of slots differ in their low 12 bits
constexpr size_t kValueBytes = sizeof(TapePlan::Value::constant);

using Pattern = TapePlan::Pattern;
using Place = TapePlan::Place;

class Tape final : public Kernel {
 public:
  explicit Tape(TapePlan plan);

  int64_t units() const override { return num_blocks_; }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override;
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override;
  size_t scratch_bytes() const override {
    return value_bytes_ + static_cast<size_t>(std::max(plan_.num_slots, 1)) * slot_bytes_;
  }
  double cost() const override { return plan_.cost; }

 private:
  struct Block {
    int64_t begin, size;
    int64_t first_row = 0, rows = 0;  // of a tape over rows
    int64_t first(bool of_rows) const { return of_rows ? first_row : begin; }
    int64_t count(bool of_rows) const { return of_rows ? rows : size; }
  };

  void choose_blocks();
  void choose_rows();
  Block block(int64_t index) const;
  int64_t alignment(int64_t target) const;
  const std::byte* gathered(const TapePlan::Operand& operand, int64_t& held, const Block& block,
                            std::byte* out) const;
  const std::byte* read(const Place& place, const Block& block, std::byte* scratch) const;
  const std::byte* gather(const TapePlan::Operand& operand, const Block& block,
                          std::byte* out) const;
  void fill_once(std::byte* scratch) const;
  void run_step(const TapePlan::Step& step, const Block& where, std::byte* scratch) const;
  void run_rows(const TapePlan::Step& step, int64_t rows, std::byte* out,
                const std::byte* const* args) const;
  Access rows_of(const TapePlan::Operand& operand, int64_t first, int64_t stop) const;
  std::byte* slot(std::byte* scratch, int index) const {
    return scratch + value_bytes_ + static_cast<size_t>(index) * slot_bytes_;
  }

  TapePlan plan_;
  int64_t block_size_ = kBlock;
  int64_t blocks_per_row_ = 0;  // > 0: blocks end where the last dimension does
  int64_t num_blocks_ = 0;
  size_t slot_bytes_ = 0;
  size_t held_ = 0;         // where the spans are noted that the slots of operands hold
  size_t value_bytes_ = 0;  // of copies of all values and held spans, before the slots
};

Tape::Tape(TapePlan plan) : plan_(std::move(plan)) {
  choose_blocks();
  slot_bytes_ = static_cast<size_t>((block_size_ * plan_.widest + 63) / 64 * 64) + kSlotGap;
  held_ = plan_.values.size() * kValueBytes;
  value_bytes_ = (held_ + plan_.operands.size() * sizeof(int64_t) + 63) / 64 * 64;
}

void Tape::choose_blocks() {
  const size_t arrays =
      static_cast<size_t>(plan_.num_slots) + plan_.operands.size() + plan_.results.size();
  const int64_t target = arrays > kManyArrays ? kSmallBlock : kBlock;
  if (plan_.total == 0)
    return;
  if (plan_.columns > 0)
    return choose_rows();
  const int64_t step = alignment(target);
  if (step == 0) {
    block_size_ = elements_of_unit(plan_.total, target);
  } else if (step <= target) {
    block_size_ = target / step * step;
  } else {
    blocks_per_row_ = (plan_.last + target - 1) / target;
    block_size_ = ((plan_.last + blocks_per_row_ - 1) / blocks_per_row_ + 15) / 16 * 16;
    blocks_per_row_ = (plan_.last + block_size_ - 1) / block_size_;
    num_blocks_ = plan_.total / plan_.last * blocks_per_row_;
    return;
  }
  num_blocks_ = (plan_.total + block_size_ - 1) / block_size_;
}

// Whole rows, as many as a power of two where what repeats allows it (chain.h).
void Tape::choose_rows() {
  int64_t step = plan_.columns;
  for (const TapePlan::Operand& operand : plan_.operands) {
    if (operand.pattern == Pattern::kPeriodic)
      step = std::max(step, operand.period);
  }
  const int64_t steps = std::max<int64_t>(elements_of_unit(plan_.total, kBlock) / step, 1);
  block_size_ = step * static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(steps)));
  num_blocks_ = (plan_.total + block_size_ - 1) / block_size_;
}

// What blocks should be multiples of, so that they begin where rows and periods do: the longest of
// them, which is a multiple of the others. 0: no operand has any.
int64_t Tape::alignment(int64_t target) const {
  int64_t longest = 0;
  for (const TapePlan::Operand& operand : plan_.operands) {
    if (operand.pattern != Pattern::kPeriodic && operand.pattern != Pattern::kStrided)
      continue;
    longest = std::max(longest, plan_.last);
    if (plan_.last <= target)
      longest = std::max(longest, operand.period);
  }
  return longest;
}

Tape::Block Tape::block(int64_t index) const {
  if (blocks_per_row_ == 0) {
    const int64_t begin = index * block_size_, size = std::min(block_size_, plan_.total - begin);
    if (plan_.columns > 0)
      return {begin, size, begin / plan_.columns, size / plan_.columns};
    return {begin, size};
  }
  const int64_t column = index % blocks_per_row_ * block_size_;
  return {index / blocks_per_row_ * plan_.last + column,
          std::min(block_size_, plan_.last - column)};
}

// Copies the elements of a broadcast operand that belong to a block, row by row; gives the operand
// itself when they are adjacent already.
const std::byte* Tape::gather(const TapePlan::Operand& operand, const Block& block,
                              std::byte* out) const {
  const size_t outer = plan_.sizes.size() - 1;
  const int64_t stride = operand.strides.back(), size = operand.item_size;
  const std::array<const int64_t*, 1> strides = {operand.strides.data()};
  std::byte* place = out;
  const std::byte* adjacent = nullptr;
  const auto copy = [&](int64_t row, int64_t count, int64_t column, int64_t n) {
    walk_rows(plan_.sizes, strides, outer, row, count, [&](const auto& at, int64_t rows) {
      const std::byte* source = operand.data + (at[0] + column * stride) * size;
      if (stride == 1 && n == block.size) {
        adjacent = source;
        return;
      }
      copy_rows(source, place, size,
                {.rows = rows,
                 .size = n,
                 .from_row = outer == 0 ? 0 : operand.strides[outer - 1],
                 .to_row = n,
                 .from = stride,
                 .to = 1});
      place += rows * n * size;
    });
  };
  for (int64_t i = block.begin, end = block.begin + block.size; i < end;) {
    const int64_t column = i % plan_.last;
    const bool is_part = column != 0 || end - i < plan_.last;
    const int64_t n = is_part ? std::min(plan_.last - column, end - i) : plan_.last;
    const int64_t rows = is_part ? 1 : (end - i) / plan_.last;
    copy(i / plan_.last, rows, column, n);
    i += rows * n;
  }
  return adjacent != nullptr ? adjacent : out;
}

// `held`: the span whose elements `out` has from an earlier block, which all blocks inside of it
// share; -1: none.
const std::byte* Tape::gathered(const TapePlan::Operand& operand, int64_t& held, const Block& block,
                                std::byte* out) const {
  const int64_t span = operand.span == 0 || blocks_per_row_ != 0 ? -1 : block.begin / operand.span;
  const bool is_shared = span >= 0 && (block.begin + block.size - 1) / operand.span == span &&
                         (block.begin - span * operand.span) % operand.period == 0;
  if (is_shared && held == span)
    return out;
  const std::byte* found = gather(operand, block, out);
  held = is_shared && found == out ? span : -1;
  return found;
}

const std::byte* Tape::read(const Place& place, const Block& block, std::byte* scratch) const {
  switch (place.kind) {
    case Place::kSlot:
      return slot(scratch, place.index);
    case Place::kValue:
      return scratch + static_cast<size_t>(place.index) * kValueBytes;
    case Place::kResult: {
      const TapePlan::Result& result = plan_.results[place.index];
      return result.data + block.first(result.of_rows) * result.item_size;
    }
    case Place::kOperand:
      break;
  }
  const TapePlan::Operand& operand = plan_.operands[place.index];
  if (operand.pattern == Pattern::kFull)
    return operand.data + block.first(operand.of_rows) * operand.item_size;
  std::byte* own = slot(scratch, operand.slot);
  if (operand.pattern != Pattern::kStrided)
    return own;  // filled once
  return gathered(operand, reinterpret_cast<int64_t*>(scratch + held_)[place.index], block, own);
}

// Fills what is equal in every block: constants, scalar operands, what repeats all over.
void Tape::fill_once(std::byte* scratch) const {
  const int64_t most = std::min(block_size_, plan_.total);
  std::fill_n(reinterpret_cast<int64_t*>(scratch + held_), plan_.operands.size(), int64_t{-1});
  for (size_t v = 0; v < plan_.values.size(); ++v) {
    const TapePlan::Value& value = plan_.values[v];
    std::memcpy(scratch + v * kValueBytes, value.element(), static_cast<size_t>(value.item_size));
    if (value.slot >= 0)
      fill_elements(slot(scratch, value.slot), value.element(), value.item_size, most);
  }
  for (const TapePlan::Operand& operand : plan_.operands) {
    if (operand.pattern == Pattern::kPeriodic) {
      std::byte* out = slot(scratch, operand.slot);
      const std::byte* filled = gather(operand, {0, most}, out);
      if (filled != out)
        std::memcpy(out, filled, static_cast<size_t>(most * operand.item_size));
    }
  }
}

void Tape::run_step(const TapePlan::Step& step, const Block& where, std::byte* scratch) const {
  const std::byte* args[3] = {};
  for (int a = 0; a < step.num_args; ++a)
    args[a] = read(step.args[a], where, scratch);
  // A result is written where it would be read.
  auto* const out = const_cast<std::byte*>(read(step.out, where, scratch));
  if (step.reduce != nullptr) {
    step.reduce(out, args[0], where.rows, plan_.columns, plan_.columns);
  } else if (step.spread > 0) {
    copy_rows(args[0], out, step.spread,
              {.rows = where.rows,
               .size = plan_.columns,
               .from_row = 1,
               .to_row = plan_.columns,
               .from = 0,
               .to = 1});
  } else if (step.row_arg >= 0) {
    run_rows(step, where.rows, out, args);
  } else {
    step.loop(out, args[0], args[1], args[2], where.count(step.of_rows), step.params);
  }
}

// Arguments and results of a loop by a scalar have one type but for comparisons, whose results are
// narrower.
void Tape::run_rows(const TapePlan::Step& step, int64_t rows, std::byte* out,
                    const std::byte* const* args) const {
  int64_t steps[2];
  for (int a = 0; a < 2; ++a)
    steps[a] = step.arg_size * (a == step.row_arg ? 1 : plan_.columns);
  for (int64_t r = 0; r < rows; ++r) {
    step.loop(out + r * plan_.columns * step.item_size, args[0] + r * steps[0],
              args[1] + r * steps[1], nullptr, plan_.columns, step.params);
  }
}

void Tape::run(int64_t begin, int64_t end, std::byte* scratch) const {
  if (begin >= end)
    return;
  fill_once(scratch);
  for (int64_t index = begin; index < end; ++index) {
    const Block where = block(index);
    for (const TapePlan::Step& step : plan_.steps)
      run_step(step, where, scratch);
    for (const TapePlan::Result& result : plan_.results) {
      if (result.copy_from_slot >= 0) {
        std::memcpy(result.data + where.first(result.of_rows) * result.item_size,
                    slot(scratch, result.copy_from_slot),
                    static_cast<size_t>(where.count(result.of_rows) * result.item_size));
      }
    }
  }
}

// What elements [first, stop) read of a broadcast operand: of the first dimension what is theirs.
Access Tape::rows_of(const TapePlan::Operand& operand, int64_t first, int64_t stop) const {
  if (operand.strides.empty() || std::any_of(operand.strides.begin(), operand.strides.end(),
                                             [](int64_t stride) { return stride < 0; }))
    return operand.whole;
  const int64_t row = plan_.total / plan_.sizes[0];
  int64_t inside = 0;
  for (size_t d = 1; d < plan_.sizes.size(); ++d)
    inside += (plan_.sizes[d] - 1) * operand.strides[d];
  const int64_t from = first / row * operand.strides[0];
  const int64_t to = (stop - 1) / row * operand.strides[0] + inside + 1;
  return {operand.data + from * operand.item_size, operand.data + to * operand.item_size, false};
}

void Tape::accesses(int64_t begin, int64_t end, std::vector<Access>& out) const {
  if (begin >= end)
    return;
  const Block first = block(begin), last = block(end - 1);
  const auto part = [&](const std::byte* data, int64_t item_size, bool of_rows, bool is_write) {
    out.push_back({data + first.first(of_rows) * item_size,
                   data + (last.first(of_rows) + last.count(of_rows)) * item_size, is_write});
  };
  for (const TapePlan::Operand& operand : plan_.operands) {
    if (operand.pattern == Pattern::kFull)
      part(operand.data, operand.item_size, operand.of_rows, false);
    else
      out.push_back(rows_of(operand, first.begin, last.begin + last.size));
  }
  for (const TapePlan::Result& result : plan_.results)
    part(result.data, result.item_size, result.of_rows, true);
}

}  // namespace

KernelPtr make_tape(TapeOverRows tape) {
  if (has_halves(tape.operands, tape.tape)) {
    MESHTRAIN_CHECK(tape.of_rows.empty(), "rows of 16 bits");
    WideTape wide = widened_tape(tape.operands, tape.tape, tape.results);
    tape.tape = std::move(wide.instructions);
    tape.results = std::move(wide.results);
  }
  return std::make_unique<Tape>(plan_tape(tape));
}

KernelPtr make_tape(const Shape& shape, const std::vector<View>& operands,
                    const std::vector<TapeInstruction>& tape,
                    const std::vector<TapeResult>& results) {
  return make_tape(TapeOverRows{shape, operands, tape, results});
}

void CpuLowering::make(const TapeSpec& spec) {
  if (row_calls_) {
    row_calls_->push_back(
        {RowCall::Kind::kTape, path_, spec.shape, spec.operands, spec.tape, spec.results});
    return;
  }
  add(make_tape(spec.shape, spec.operands, spec.tape, spec.results));
}

}  // namespace meshtrain::cpu
