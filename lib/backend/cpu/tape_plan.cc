#include "backend/cpu/tape_plan.h"

#include <algorithm>
#include <map>
#include <optional>

#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

using Pattern = TapePlan::Pattern;
using Place = TapePlan::Place;
using Step = TapePlan::Step;
using Value = TapePlan::Value;

constexpr int64_t kLeastColumns = 16;  // of a row that is a call of a loop

std::optional<Reduction> row_reduction(std::string_view op) {
  if (op == "row_sum")
    return Reduction::kSum;
  if (op == "row_max")
    return Reduction::kMax;
  return op == "row_min" ? std::optional(Reduction::kMin) : std::nullopt;
}

double element_cost(std::string_view op) {  // nanoseconds an element, float32
  constexpr std::string_view kSlow[] = {"exp", "log", "log1p", "expm1", "tanh",
                                        "erf", "sin", "cos",   "pow",   "sigmoid"};
  constexpr std::string_view kTwoFunctions[] = {"softplus",  "gelu",           "gelu_tanh", "silu",
                                                "gelu_grad", "gelu_tanh_grad", "silu_grad"};
  if (std::find(std::begin(kTwoFunctions), std::end(kTwoFunctions), op) != std::end(kTwoFunctions))
    return 1.2;
  return std::find(std::begin(kSlow), std::end(kSlow), op) != std::end(kSlow) ? 0.5 : 0.06;
}

// Decides where each instruction reads and writes. The plan has its operands and results already.
struct Builder {
  Builder(TapePlan& to, const TapeOverRows& tape)
      : plan(to),
        operands(tape.operands),
        instructions(tape.tape),
        results(tape.results),
        of_rows(tape.of_rows),
        num_operands(static_cast<int>(operands.size())) {}

  TapePlan& plan;
  const std::vector<View>& operands;
  const std::vector<TapeInstruction>& instructions;
  const std::vector<TapeResult>& results;
  const std::vector<bool>& of_rows;
  int num_operands;
  std::vector<int> last_use;  // of each instruction's result, as instruction index
  std::vector<Place> places;  // of each instruction's result
  std::vector<int> values;    // of operands, then instructions: index in plan.values, or -1
  std::vector<int> free_slots;
  std::map<int, int> spread_slots;  // of numbers of rows, by argument

  int take_slot() {
    if (free_slots.empty())
      return plan.num_slots++;
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
        if (arg >= num_operands || plan.operands[arg].pattern == Pattern::kScalar ||
            plan.operands[arg].pattern == Pattern::kPeriodic) {
          continue;
        }
        const Access& read = plan.operands[arg].whole;
        if (read.begin < written.end && written.begin < read.end)
          return true;
      }
    }
    return false;
  }

  void find_values() {
    for (size_t i = 0; i < operands.size(); ++i) {
      values.push_back(-1);
      if (plan.operands[i].pattern != Pattern::kScalar)
        continue;
      values.back() = static_cast<int>(plan.values.size());
      plan.values.push_back({operands[i].data, operands[i].item_size()});
    }
    for (const TapeInstruction& instruction : instructions) {
      values.push_back(-1);
      if (instruction.op != "constant")
        continue;
      values.back() = static_cast<int>(plan.values.size());
      Value value{nullptr, static_cast<int64_t>(dtype_size(instruction.dtype))};
      store_value(value.constant, instruction.dtype, instruction.low);
      plan.values.push_back(value);
    }
  }

  void place_result(size_t i) {
    for (size_t r = 0; r < results.size(); ++r) {
      if (results[r].instruction != static_cast<int>(i))
        continue;
      if (overwrites_needed(i, results[r].view)) {
        places[i] = {Place::kSlot, plan.num_slots++};
        plan.results[r].copy_from_slot = places[i].index;
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

  bool is_of_rows(int arg) const { return arg < static_cast<int>(of_rows.size()) && of_rows[arg]; }

  ElementLoop loop_by_scalar(const TapeInstruction& instruction, int which) const {
    return kernels().element_by_scalar[which][find_element_op(instruction.op)]
                                      [type_index(dtype_of(instruction.args[0]))];
  }

  ElementLoop find_loop(const TapeInstruction& instruction) const {
    if (const int which = scalar_arg(instruction); which >= 0)
      return loop_by_scalar(instruction, which);
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
      Value& value = plan.values[v];
      if (as_one_element)
        return {Place::kValue, v};
      if (value.slot < 0)
        value.slot = plan.num_slots++;  // for the whole run
      return {Place::kSlot, value.slot};
    }
    return arg < num_operands ? Place{Place::kOperand, arg} : places[arg - num_operands];
  }

  // Which operand of a binary op has one number for each row of the other one, where a loop takes
  // these row by row; otherwise -1.
  int row_arg(size_t i) const {
    const TapeInstruction& instruction = instructions[i];
    if (of_rows.empty() || is_of_rows(num_operands + static_cast<int>(i)) ||
        find_element_op(instruction.op) < 0 || instruction.args.size() != 2 ||
        plan.columns < kLeastColumns)
      return -1;
    const bool left = is_of_rows(instruction.args[0]), right = is_of_rows(instruction.args[1]);
    const int which = left ? 0 : 1;
    const bool is_alone = left != right && values[instruction.args[1 - which]] < 0;
    return is_alone && loop_by_scalar(instruction, which) != nullptr ? which : -1;
  }

  // Where an instruction on whole rows reads a number of each.
  Place spread_place(int arg) {
    const auto [found, is_new] = spread_slots.try_emplace(arg, plan.num_slots);
    if (is_new) {
      Step step;
      step.spread = static_cast<int64_t>(dtype_size(dtype_of(arg)));
      step.args[0] = place_of(arg, false);
      step.num_args = 1;
      step.out = {Place::kSlot, plan.num_slots++};
      plan.steps.push_back(step);
    }
    return {Place::kSlot, found->second};
  }

  // The function that computes an instruction, and what it reads.
  Step step_of(size_t i) {
    const TapeInstruction& instruction = instructions[i];
    Step step;
    step.of_rows = is_of_rows(num_operands + static_cast<int>(i));
    step.params = {instruction.low, instruction.high};
    step.num_args = static_cast<int>(instruction.args.size());
    MESHTRAIN_CHECK(step.num_args >= 1 && step.num_args <= 3, "op `{}` with {} operands",
                    instruction.op, step.num_args);
    const auto reduction = row_reduction(instruction.op);
    const bool reads_rows = !of_rows.empty() && !step.of_rows;
    const int scalar = reduction ? -1 : scalar_arg(instruction);
    step.row_arg = row_arg(i);
    step.arg_size = static_cast<int64_t>(dtype_size(dtype_of(instruction.args[0])));
    step.item_size = static_cast<int64_t>(dtype_size(instruction.dtype));
    if (reduction) {
      const DType dtype = dtype_of(instruction.args[0]);
      step.reduce = kernels().reduce_rows[static_cast<int>(*reduction)][type_index(dtype)];
    } else if (reads_rows && instruction.op == "copy" && is_of_rows(instruction.args[0])) {
      step.spread = step.item_size;
    } else {
      step.loop =
          step.row_arg >= 0 ? loop_by_scalar(instruction, step.row_arg) : find_loop(instruction);
    }
    for (int a = 0; a < step.num_args; ++a) {
      const int arg = instruction.args[a];
      const bool is_spread = (reads_rows || reduction) && is_of_rows(arg) && step.spread == 0 &&
                             a != step.row_arg && values[arg] < 0;
      step.args[a] = is_spread ? spread_place(arg) : place_of(arg, a == scalar);
    }
    return step;
  }

  void add_step(size_t i) {
    const TapeInstruction& instruction = instructions[i];
    Step step = step_of(i);
    const std::vector<int> dead = last_read_by(i);
    // A result may take the place of an operand only where its elements are as wide, and as many.
    const bool in_place =
        step.loop != nullptr && step.row_arg < 0 &&
        std::all_of(dead.begin(), dead.end(), [&](int d) {
          return dtype_size(instructions[d].dtype) == dtype_size(instruction.dtype);
        });
    if (in_place)
      release(dead);
    place_result(i);
    step.out = places[i];
    plan.steps.push_back(step);
    const int64_t elements =
        step.of_rows && step.loop != nullptr ? plan.total / plan.columns : plan.total;
    plan.cost += static_cast<double>(elements) * element_cost(instruction.op);
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

// The longest span over which the same elements repeat: that of the outermost dimensions without a
// stride, inside of which there are few enough elements.
void find_period(TapePlan::Operand& operand, const TapePlan& plan) {
  int64_t inner = 1, outer = 1;  // elements inside of dimension d, and with it
  for (size_t d = plan.sizes.size(); d-- > 0; inner = outer) {
    outer = inner * plan.sizes[d];
    if (operand.strides[d] != 0 || inner > kLongestPeriod)
      continue;
    const bool continues = operand.span == inner;  // dimensions without a stride side by side
    operand.period = continues ? operand.period : inner;
    operand.span = outer;
  }
}

Pattern pattern_of(const TapePlan::Operand& operand, const std::vector<int64_t>& dense,
                   const TapePlan& plan) {
  if (operand.strides == dense || plan.total == 1)
    return Pattern::kFull;
  if (operand.span == plan.total)
    return operand.period == 1 ? Pattern::kScalar : Pattern::kPeriodic;
  return Pattern::kStrided;
}

void add_operands(TapePlan& plan, const TapeOverRows& tape) {
  StridedLoop loop{tape.shape, {row_major_strides(tape.shape)}};
  const auto is_of_rows = [&](size_t i) { return i < tape.of_rows.size() && tape.of_rows[i]; };
  for (size_t i = 0; i < tape.operands.size(); ++i) {
    const View& operand = tape.operands[i];
    MESHTRAIN_CHECK(is_of_rows(i) || operand.strides.size() == tape.shape.size());
    loop.strides.push_back(is_of_rows(i) ? std::vector<int64_t>(tape.shape.size())
                                         : operand.strides);
  }
  plan.total = num_elements(tape.shape);
  coalesce(loop);
  plan.sizes = loop.sizes;
  plan.last = plan.sizes.back();
  for (size_t i = 0; i < tape.operands.size(); ++i) {
    TapePlan::Operand operand;
    operand.data = tape.operands[i].data;
    operand.item_size = tape.operands[i].item_size();
    operand.strides = loop.strides[i + 1];
    operand.whole = whole_access(tape.operands[i], false);
    operand.of_rows = is_of_rows(i);
    if (!operand.of_rows) {
      find_period(operand, plan);
      operand.pattern = pattern_of(operand, loop.strides[0], plan);
    }
    if (operand.pattern == Pattern::kPeriodic || operand.pattern == Pattern::kStrided)
      operand.slot = plan.num_slots++;
    plan.widest = std::max(plan.widest, operand.item_size);
    const int64_t elements = operand.of_rows ? plan.total / plan.columns : plan.total;
    plan.cost += static_cast<double>(elements) * 0.02 * static_cast<double>(operand.item_size);
    plan.operands.push_back(std::move(operand));
  }
}

}  // namespace

TapePlan plan_tape(const TapeOverRows& tape) {
  TapePlan plan;
  plan.columns = tape.columns;
  add_operands(plan, tape);
  for (const TapeResult& result : tape.results) {
    MESHTRAIN_CHECK(is_contiguous(result.view));
    const bool of_rows = tape.columns > 0 && num_elements(result.view.shape) != plan.total;
    plan.results.push_back({result.view.data, result.view.item_size(), -1, of_rows});
  }
  for (const TapeInstruction& instruction : tape.tape)
    plan.widest = std::max(plan.widest, static_cast<int64_t>(dtype_size(instruction.dtype)));
  Builder(plan, tape).build();
  return plan;
}

}  // namespace meshtrain::cpu
