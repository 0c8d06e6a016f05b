#include "backend/cpu/elementwise.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/half_tape.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

// Elements of a block, so that what a block reads and writes stays in the first-level cache.
constexpr int64_t kBlock = 1024;
constexpr int64_t kSmallBlock = 512;
constexpr size_t kManyArrays = 6;
constexpr size_t kSlotGap = 64;  // bytes: addresses of slots differ in their low 12 bits

double element_cost(std::string_view op) {  // nanoseconds an element, float32
  constexpr std::string_view kSlow[] = {"exp", "log", "log1p", "expm1", "tanh",
                                        "erf", "sin", "cos",   "pow",   "sigmoid"};
  constexpr std::string_view kTwoFunctions[] = {"softplus",  "gelu",           "gelu_tanh", "silu",
                                                "gelu_grad", "gelu_tanh_grad", "silu_grad"};
  if (std::find(std::begin(kTwoFunctions), std::end(kTwoFunctions), op) != std::end(kTwoFunctions))
    return 1.2;
  return std::find(std::begin(kSlow), std::end(kSlow), op) != std::end(kSlow) ? 0.5 : 0.06;
}

// Where a block of an operand or an intermediate result is found.
struct Place {
  enum Kind { kOperand, kSlot, kResult, kValue } kind = kSlot;
  int index = 0;
};

enum class Pattern {
  kFull,      // laid out as the result
  kScalar,    // one element
  kPeriodic,  // the last dimension again and again
  kStrided,
};

struct Operand {
  const std::byte* data = nullptr;
  int64_t item_size = 4;
  std::vector<int64_t> strides;  // over the coalesced shape
  Pattern pattern = Pattern::kFull;
  Access whole;
  int slot = -1;  // where blocks are gathered, if they are
};

struct Step {
  ElementLoop loop = nullptr;
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
constexpr size_t kValueBytes = sizeof(Value::constant);

struct Result {
  std::byte* data = nullptr;
  int64_t item_size = 4;
  int copy_from_slot = -1;  // written there first: a later instruction reads what it overwrites
};

class Tape final : public Kernel {
 public:
  Tape(const Shape& shape, const std::vector<View>& operands,
       const std::vector<TapeInstruction>& tape, const std::vector<TapeResult>& results);

  int64_t units() const override { return num_blocks_; }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override;
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override;
  size_t scratch_bytes() const override {
    return value_bytes_ + static_cast<size_t>(std::max(num_slots_, 1)) * slot_bytes_;
  }
  double cost() const override { return cost_; }

 private:
  struct Block {
    int64_t begin, size;
  };
  struct Builder;

  void choose_blocks();
  Block block(int64_t index) const;
  const std::byte* read(const Place& place, const Block& block, std::byte* scratch) const;
  const std::byte* gather(const Operand& operand, const Block& block, std::byte* out) const;
  void fill_once(std::byte* scratch) const;
  std::byte* slot(std::byte* scratch, int index) const {
    return scratch + value_bytes_ + static_cast<size_t>(index) * slot_bytes_;
  }

  Shape sizes_;  // coalesced
  int64_t total_ = 1;
  int64_t last_ = 1;  // size of the last dimension
  int64_t block_size_ = kBlock;
  int64_t blocks_per_row_ = 0;  // > 0: blocks end where the last dimension does
  int64_t num_blocks_ = 0;
  int num_slots_ = 0;
  size_t slot_bytes_ = 0;
  size_t value_bytes_ = 0;  // of copies of all values, before the slots
  double cost_ = 0;
  std::vector<Operand> operands_;
  std::vector<Value> values_;
  std::vector<Step> steps_;
  std::vector<Result> results_;
};

// Decides where each instruction reads and writes.
struct Tape::Builder {
  Tape& tape;
  const std::vector<View>& operands;
  const std::vector<TapeInstruction>& instructions;
  const std::vector<TapeResult>& results;
  int num_operands = 0;
  std::vector<int> last_use;  // of each instruction's result, as instruction index
  std::vector<Place> places;  // of each instruction's result
  std::vector<int> values;    // of operands, then instructions: index in tape.values_, or -1
  std::vector<int> free_slots = {};

  int take_slot() {
    if (free_slots.empty())
      return tape.num_slots_++;
    const int slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  }

  void find_last_uses() {
    last_use.assign(instructions.size(), -1);
    for (size_t i = 0; i < instructions.size(); ++i) {
      for (int arg : instructions[i].args) {
        if (arg >= num_operands)
          last_use[arg - num_operands] = static_cast<int>(i);
      }
    }
  }

  // Returns whether an instruction after `i` reads an operand in the memory of this result.
  bool overwrites_needed(size_t i, const View& result) const {
    const Access written = whole_access(result, true);
    for (size_t later = i + 1; later < instructions.size(); ++later) {
      for (int arg : instructions[later].args) {
        if (arg >= num_operands || tape.operands_[arg].pattern == Pattern::kScalar ||
            tape.operands_[arg].pattern == Pattern::kPeriodic) {
          continue;
        }
        const Access& read = tape.operands_[arg].whole;
        if (read.begin < written.end && written.begin < read.end)
          return true;
      }
    }
    return false;
  }

  void find_values() {
    for (size_t i = 0; i < operands.size(); ++i) {
      values.push_back(-1);
      if (tape.operands_[i].pattern != Pattern::kScalar)
        continue;
      values.back() = static_cast<int>(tape.values_.size());
      tape.values_.push_back({operands[i].data, operands[i].item_size()});
    }
    for (const TapeInstruction& instruction : instructions) {
      values.push_back(-1);
      if (instruction.op != "constant")
        continue;
      values.back() = static_cast<int>(tape.values_.size());
      Value value{nullptr, static_cast<int64_t>(dtype_size(instruction.dtype))};
      store_value(value.constant, instruction.dtype, instruction.low);
      tape.values_.push_back(value);
    }
  }

  void place_result(size_t i) {
    for (size_t r = 0; r < results.size(); ++r) {
      if (results[r].instruction != static_cast<int>(i))
        continue;
      if (overwrites_needed(i, results[r].view)) {
        places[i] = {Place::kSlot, tape.num_slots_++};
        tape.results_[r].copy_from_slot = places[i].index;
      } else {
        places[i] = {Place::kResult, static_cast<int>(r)};
      }
      return;
    }
    places[i] = {Place::kSlot, take_slot()};
  }

  DType dtype_of(int arg) const {
    return arg < num_operands ? operands[arg].dtype : instructions[arg - num_operands].dtype;
  }

  // Which operand of a binary op is one element, where a loop takes it as that; otherwise -1.
  int scalar_arg(const TapeInstruction& instruction) const {
    const int op = find_element_op(instruction.op);
    if (op < 0 || instruction.args.size() != 2)
      return -1;
    const bool left = values[instruction.args[0]] >= 0, right = values[instruction.args[1]] >= 0;
    const int which = left ? 0 : 1;
    const TypeIndex type = type_index(dtype_of(instruction.args[0]));
    return left != right && kernels().element_by_scalar[which][op][type] != nullptr ? which : -1;
  }

  ElementLoop find_loop(const TapeInstruction& instruction) const {
    if (const int which = scalar_arg(instruction); which >= 0) {
      return kernels().element_by_scalar[which][find_element_op(instruction.op)]
                                        [type_index(dtype_of(instruction.args[0]))];
    }
    const TypeIndex to = type_index(instruction.dtype);
    if (instruction.op == "cast") {
      return kernels().cast[type_index(dtype_of(instruction.args[0]))][to];
    }
    const int op = find_element_op(instruction.op);
    MESHTRAIN_CHECK(op >= 0, "no CPU kernel for op `{}`", instruction.op);
    const int data_arg = instruction.op == "select" ? 1 : 0;
    const TypeIndex type = type_index(dtype_of(instruction.args[data_arg]));
    const ElementLoop loop = kernels().element[op][type];
    MESHTRAIN_CHECK(loop != nullptr, "no CPU kernel for op `{}` on {}", instruction.op,
                    dtype_name(dtype_of(instruction.args[data_arg])));
    return loop;
  }

  Place place_of(int arg, bool as_one_element) {
    if (const int v = values[arg]; v >= 0) {
      Value& value = tape.values_[v];
      if (as_one_element)
        return {Place::kValue, v};
      if (value.slot < 0)
        value.slot = tape.num_slots_++;  // for the whole run
      return {Place::kSlot, value.slot};
    }
    return arg < num_operands ? Place{Place::kOperand, arg} : places[arg - num_operands];
  }

  void add_step(size_t i) {
    const TapeInstruction& instruction = instructions[i];
    Step step;
    step.loop = find_loop(instruction);
    step.params = {instruction.low, instruction.high};
    step.num_args = static_cast<int>(instruction.args.size());
    MESHTRAIN_CHECK(step.num_args >= 1 && step.num_args <= 3, "op `{}` with {} operands",
                    instruction.op, step.num_args);
    const int scalar = scalar_arg(instruction);
    for (int a = 0; a < step.num_args; ++a)
      step.args[a] = place_of(instruction.args[a], a == scalar);
    const std::vector<int> dead = last_read_by(i);
    // A result may take the place of an operand only where its elements are as wide.
    const bool in_place = std::all_of(dead.begin(), dead.end(), [&](int d) {
      return dtype_size(instructions[d].dtype) == dtype_size(instruction.dtype);
    });
    if (in_place)
      release(dead);
    place_result(i);
    step.out = places[i];
    tape.steps_.push_back(step);
    tape.cost_ += static_cast<double>(tape.total_) * element_cost(instruction.op);
    if (!in_place)
      release(dead);
    if (last_use[i] == -1)
      release({static_cast<int>(i)});
  }

  // Instructions whose results no instruction after `i` reads.
  std::vector<int> last_read_by(size_t i) const {
    std::vector<int> dead;
    for (int arg : instructions[i].args) {
      if (arg >= num_operands && last_use[arg - num_operands] == static_cast<int>(i))
        dead.push_back(arg - num_operands);
    }
    std::sort(dead.begin(), dead.end());
    dead.erase(std::unique(dead.begin(), dead.end()), dead.end());
    return dead;
  }

  void release(const std::vector<int>& dead) {
    for (int d : dead) {
      const bool is_result = std::any_of(results.begin(), results.end(),
                                         [d](const TapeResult& r) { return r.instruction == d; });
      if (places[d].kind == Place::kSlot && !is_result && values[num_operands + d] < 0)
        free_slots.push_back(places[d].index);
    }
  }

  void build() {
    find_last_uses();
    find_values();
    places.resize(instructions.size());
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (values[operands.size() + i] < 0)
        add_step(i);
    }
  }
};

Tape::Tape(const Shape& shape, const std::vector<View>& operands,
           const std::vector<TapeInstruction>& tape, const std::vector<TapeResult>& results) {
  StridedLoop loop{shape, {row_major_strides(shape)}};
  for (const View& operand : operands) {
    MESHTRAIN_CHECK(operand.strides.size() == shape.size());
    loop.strides.push_back(operand.strides);
  }
  total_ = num_elements(shape);
  coalesce(loop);
  sizes_ = loop.sizes;
  last_ = sizes_.back();
  int64_t widest = 1;
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand operand;
    operand.data = operands[i].data;
    operand.item_size = operands[i].item_size();
    operand.strides = loop.strides[i + 1];
    operand.whole = whole_access(operands[i], false);
    const auto is_zero = [](int64_t stride) { return stride == 0; };
    const bool outer_zero =
        std::all_of(operand.strides.begin(), operand.strides.end() - 1, is_zero);
    operand.pattern = operand.strides == loop.strides[0]          ? Pattern::kFull
                      : outer_zero && operand.strides.back() == 0 ? Pattern::kScalar
                      : outer_zero && last_ <= kSmallBlock        ? Pattern::kPeriodic
                                                                  : Pattern::kStrided;
    if (total_ == 1)
      operand.pattern = Pattern::kFull;
    if (operand.pattern == Pattern::kPeriodic || operand.pattern == Pattern::kStrided)
      operand.slot = num_slots_++;
    widest = std::max(widest, operand.item_size);
    cost_ += static_cast<double>(total_) * 0.02 * static_cast<double>(operand.item_size);
    operands_.push_back(std::move(operand));
  }
  for (const TapeResult& result : results) {
    MESHTRAIN_CHECK(is_contiguous(result.view));
    results_.push_back({result.view.data, result.view.item_size(), -1});
  }
  for (const TapeInstruction& instruction : tape) {
    widest = std::max(widest, static_cast<int64_t>(dtype_size(instruction.dtype)));
  }
  Builder{*this, operands, tape, results, static_cast<int>(operands.size()), {}, {}, {}}.build();
  choose_blocks();
  slot_bytes_ = static_cast<size_t>((block_size_ * widest + 63) / 64 * 64) + kSlotGap;
  value_bytes_ = (values_.size() * kValueBytes + 63) / 64 * 64;
}

void Tape::choose_blocks() {
  const size_t arrays = static_cast<size_t>(num_slots_) + operands_.size() + results_.size();
  const int64_t target = arrays > kManyArrays ? kSmallBlock : kBlock;
  const bool by_rows = std::any_of(operands_.begin(), operands_.end(), [](const Operand& operand) {
    return operand.pattern == Pattern::kPeriodic || operand.pattern == Pattern::kStrided;
  });
  if (total_ == 0)
    return;
  if (!by_rows) {
    block_size_ = target;
  } else if (last_ <= target) {
    block_size_ = target / last_ * last_;
  } else {
    blocks_per_row_ = (last_ + target - 1) / target;
    block_size_ = ((last_ + blocks_per_row_ - 1) / blocks_per_row_ + 15) / 16 * 16;
    blocks_per_row_ = (last_ + block_size_ - 1) / block_size_;
    num_blocks_ = total_ / last_ * blocks_per_row_;
    return;
  }
  num_blocks_ = (total_ + block_size_ - 1) / block_size_;
}

Tape::Block Tape::block(int64_t index) const {
  if (blocks_per_row_ == 0) {
    const int64_t begin = index * block_size_;
    return {begin, std::min(block_size_, total_ - begin)};
  }
  const int64_t column = index % blocks_per_row_ * block_size_;
  return {index / blocks_per_row_ * last_ + column, std::min(block_size_, last_ - column)};
}

// Copies the elements of a broadcast operand that belong to a block, row by row; gives the operand
// itself when they are adjacent already.
const std::byte* Tape::gather(const Operand& operand, const Block& block, std::byte* out) const {
  const size_t outer = sizes_.size() - 1;
  const int64_t stride = operand.strides.back();
  const int64_t size = operand.item_size;
  std::byte* place = out;
  for (int64_t i = block.begin, end = block.begin + block.size; i < end;) {
    const int64_t column = i % last_;
    const int64_t n = std::min(last_ - column, end - i);
    const std::byte* source =
        operand.data +
        (offset_of(sizes_, operand.strides, outer, i / last_) + column * stride) * size;
    if (stride == 1) {
      if (n == block.size)
        return source;
      std::memcpy(place, source, static_cast<size_t>(n * size));
    } else if (stride == 0) {
      fill_elements(place, source, size, n);
    } else {
      for (int64_t j = 0; j < n; ++j) {
        std::memcpy(place + j * size, source + j * stride * size, static_cast<size_t>(size));
      }
    }
    place += n * size;
    i += n;
  }
  return out;
}

const std::byte* Tape::read(const Place& place, const Block& block, std::byte* scratch) const {
  switch (place.kind) {
    case Place::kSlot:
      return slot(scratch, place.index);
    case Place::kValue:
      return scratch + static_cast<size_t>(place.index) * kValueBytes;
    case Place::kResult:
      return results_[place.index].data + block.begin * results_[place.index].item_size;
    case Place::kOperand:
      break;
  }
  const Operand& operand = operands_[place.index];
  if (operand.pattern == Pattern::kFull)
    return operand.data + block.begin * operand.item_size;
  std::byte* gathered = slot(scratch, operand.slot);
  if (operand.pattern != Pattern::kStrided)
    return gathered;  // filled once
  return gather(operand, block, gathered);
}

// Fills what is equal in every block: constants, scalar operands, a repeated last dimension.
void Tape::fill_once(std::byte* scratch) const {
  const int64_t most = std::min(block_size_, total_);
  for (size_t v = 0; v < values_.size(); ++v) {
    const Value& value = values_[v];
    std::memcpy(scratch + v * kValueBytes, value.element(), static_cast<size_t>(value.item_size));
    if (value.slot >= 0)
      fill_elements(slot(scratch, value.slot), value.element(), value.item_size, most);
  }
  for (const Operand& operand : operands_) {
    if (operand.pattern == Pattern::kPeriodic) {
      std::byte* out = slot(scratch, operand.slot);
      const std::byte* filled = gather(operand, {0, most}, out);
      if (filled != out)
        std::memcpy(out, filled, static_cast<size_t>(most * operand.item_size));
    }
  }
}

void Tape::run(int64_t begin, int64_t end, std::byte* scratch) const {
  if (begin >= end)
    return;
  fill_once(scratch);
  for (int64_t index = begin; index < end; ++index) {
    const Block where = block(index);
    for (const Step& step : steps_) {
      const std::byte* args[3] = {};
      for (int a = 0; a < step.num_args; ++a)
        args[a] = read(step.args[a], where, scratch);
      std::byte* out =
          step.out.kind == Place::kSlot
              ? slot(scratch, step.out.index)
              : results_[step.out.index].data + where.begin * results_[step.out.index].item_size;
      step.loop(out, args[0], args[1], args[2], where.size, step.params);
    }
    for (const Result& result : results_) {
      if (result.copy_from_slot >= 0) {
        std::memcpy(result.data + where.begin * result.item_size,
                    slot(scratch, result.copy_from_slot),
                    static_cast<size_t>(where.size * result.item_size));
      }
    }
  }
}

void Tape::accesses(int64_t begin, int64_t end, std::vector<Access>& out) const {
  if (begin >= end)
    return;
  const int64_t first = block(begin).begin;
  const Block last = block(end - 1);
  const int64_t stop = last.begin + last.size;
  for (const Operand& operand : operands_) {
    if (operand.pattern == Pattern::kFull) {
      out.push_back({operand.data + first * operand.item_size,
                     operand.data + stop * operand.item_size, false});
    } else {
      out.push_back(operand.whole);
    }
  }
  for (const Result& result : results_) {
    out.push_back(
        {result.data + first * result.item_size, result.data + stop * result.item_size, true});
  }
}

}  // namespace

KernelPtr make_tape(const Shape& shape, const std::vector<View>& operands,
                    const std::vector<TapeInstruction>& tape,
                    const std::vector<TapeResult>& results) {
  if (has_halves(operands, tape)) {
    const WideTape wide = widened_tape(operands, tape, results);
    return std::make_unique<Tape>(shape, operands, wide.instructions, wide.results);
  }
  return std::make_unique<Tape>(shape, operands, tape, results);
}

void CpuLowering::make(const TapeSpec& spec) {
  add(make_tape(spec.shape, spec.operands, spec.tape, spec.results));
}

}  // namespace meshtrain::cpu
