// Specs between BeginRowFusion and EndRowFusion: one tape over rows where they are one, otherwise
// what each of them is by itself. Sums have the order, and so the bits, of reductions by
// themselves.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/half_tape.h"
#include "backend/cpu/lowering.h"
#include "backend/fused_rows.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

std::string_view reduction_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "row_sum";
    case Reduction::kMax:
      return "row_max";
    case Reduction::kMin:
      return "row_min";
    case Reduction::kCount:
      break;
  }
  throw InternalError("a reduction of no kind");
}

bool is_same(const TapeInstruction& a, const TapeInstruction& b) {
  return a.op == b.op && a.args == b.args && a.dtype == b.dtype && a.low == b.low &&
         a.high == b.high && std::signbit(a.low) == std::signbit(b.low);
}

// The instructions of all members in one list.
class TapeJoiner {
 public:
  explicit TapeJoiner(const FusedRows& rows) : rows_(rows) {
    out_.shape = rows.shape;
    out_.columns = rows.columns;
    value_args_.resize(rows.values.size());
  }

  // Nothing where numbers of rows lie apart, something has 16 bits, or a member is no tape, copy or
  // reduction.
  std::optional<TapeOverRows> run() {
    for (const FusedRows::Array& array : rows_.arrays) {
      if (!add_operand(array))
        return std::nullopt;
    }
    for (const FusedRows::Member& member : rows_.members) {
      switch (member.call->kind) {
        case RowCall::Kind::kTape:
          add_tape(member);
          break;
        case RowCall::Kind::kCopy:
          set_value(member.results[0], argument(member.operands[0]));
          break;
        case RowCall::Kind::kReduce:
          add_reduction(member);
          break;
        case RowCall::Kind::kOneHot:
          return std::nullopt;
      }
    }
    if (has_halves(out_.operands, out_.tape))
      return std::nullopt;
    return std::move(out_);
  }

 private:
  const FusedRows::Value& value(int v) const { return rows_.values[static_cast<size_t>(v)]; }

  // Numbers of rows are read as such whether they are repeated along the rows or not.
  bool add_operand(const FusedRows::Array& array) {
    View view = array.view;
    const auto is_along = [&](int64_t stride) {
      return array.rows.sizes.size() == 1 && array.rows.strides[0][0] == stride;
    };
    const bool of_rows = !array.is_whole && rows_.rows > 1 && is_along(1);
    if (!of_rows && !array.is_spread) {
      if (!is_along(0) && rows_.rows > 1)
        return false;
      view.shape = rows_.shape;
      view.strides.assign(rows_.shape.size(), 0);
    }
    out_.operands.push_back(std::move(view));
    out_.of_rows.push_back(of_rows);
    return true;
  }

  // Operands come before instructions. What several members compute again is computed once.
  int emit(const TapeInstruction& instruction, bool of_rows) {
    const size_t before = out_.operands.size();
    for (size_t i = 0; i < out_.tape.size(); ++i) {
      if (out_.of_rows[before + i] == of_rows && is_same(out_.tape[i], instruction))
        return static_cast<int>(before + i);
    }
    return add(instruction, of_rows);
  }

  int add(const TapeInstruction& instruction, bool of_rows) {
    out_.tape.push_back(instruction);
    out_.of_rows.push_back(of_rows);
    return static_cast<int>(out_.of_rows.size()) - 1;
  }

  int argument(const FusedRows::Operand& operand) const {
    return operand.is_value ? value_args_[static_cast<size_t>(operand.index)] : operand.index;
  }

  // An instruction has one result, and an operand none.
  void set_value(int v, int arg) {
    const bool of_rows = !value(v).is_whole;
    int instruction = arg - static_cast<int>(out_.operands.size());
    const bool is_free =
        instruction >= 0 && out_.of_rows[static_cast<size_t>(arg)] == of_rows &&
        std::none_of(out_.results.begin(), out_.results.end(),
                     [&](const TapeResult& result) { return result.instruction == instruction; });
    if (value(v).is_stored && !is_free) {
      arg = add({"copy", {arg}, value(v).view.dtype, 0, 0}, of_rows);
      instruction = arg - static_cast<int>(out_.operands.size());
    }
    value_args_[static_cast<size_t>(v)] = arg;
    if (value(v).is_stored)
      out_.results.push_back({instruction, value(v).view});
  }

  void add_reduction(const FusedRows::Member& member) {
    const int v = member.results[0];
    const std::string_view op = reduction_op(member.call->reduction);
    set_value(v, emit({op, {argument(member.operands[0])}, value(v).view.dtype, 0, 0}, true));
  }

  void add_tape(const FusedRows::Member& member) {
    std::vector<int> args;
    for (const FusedRows::Operand& operand : member.operands)
      args.push_back(argument(operand));
    for (TapeInstruction instruction : member.call->tape) {
      for (int& arg : instruction.args)
        arg = args[static_cast<size_t>(arg)];
      args.push_back(emit(instruction, !member.is_whole));
    }
    for (size_t r = 0; r < member.results.size(); ++r) {
      const auto i = static_cast<size_t>(member.call->results[r].instruction);
      set_value(member.results[r], args[member.operands.size() + i]);
    }
  }

  const FusedRows& rows_;
  TapeOverRows out_;
  std::vector<int> value_args_;
};

}  // namespace

void CpuLowering::make(const BeginRowFusion&) {
  row_calls_.emplace();
}

void CpuLowering::make(const EndRowFusion& spec) {
  MESHTRAIN_CHECK(row_calls_.has_value(), "rows that have not begun");
  std::vector<RowCall> calls = std::move(*row_calls_);
  row_calls_.reset();
  if (const std::optional<FusedRows> rows = join_rows(calls, spec.read_later)) {
    if (std::optional<TapeOverRows> tape = TapeJoiner(*rows).run()) {
      steps_.emplace_back(kernels_.size(), calls[0].path);
      add(make_tape(std::move(*tape)));
      return;
    }
  }
  give_memory(calls, spec.read_later, [this](int64_t bytes) { return scratch_.take(bytes); });
  for (const RowCall& call : calls) {
    steps_.emplace_back(kernels_.size(), call.path);
    if (call.kind == RowCall::Kind::kTape)
      make(TapeSpec{call.shape, call.operands, call.tape, call.results});
    else if (call.kind == RowCall::Kind::kCopy)
      make(CopySpec{call.operands[0], call.results[0].view});
    else
      make(ReduceSpec{call.reduction, call.operands[0], call.reduced, call.results[0].view});
  }
}

}  // namespace meshtrain::cpu
