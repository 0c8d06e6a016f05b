#include "backend/gpu/epilogue.h"

#include <algorithm>

namespace meshtrain::gpu {
namespace {

// The instructions of a tape by what they compute.
class Formulas {
 public:
  Formulas(size_t num_operands, const std::vector<TapeInstruction>& tape)
      : num_operands_(static_cast<int>(num_operands)), tape_(tape) {}

  // The arguments of the instruction that computes `value`; null where that is no such op.
  const std::vector<int>* arguments(int value, std::string_view op) const {
    if (value < num_operands_)
      return nullptr;
    const TapeInstruction& made = tape_[static_cast<size_t>(value - num_operands_)];
    return made.op == op ? &made.args : nullptr;
  }
  bool is_operand(int value) const { return value >= 0 && value < num_operands_; }

 private:
  int num_operands_;
  const std::vector<TapeInstruction>& tape_;
};

}  // namespace

std::optional<EpilogueTape> epilogue_tape(const std::vector<View>& operands,
                                          const std::vector<TapeInstruction>& tape,
                                          const std::vector<TapeResult>& results) {
  if (results.size() != 1)
    return std::nullopt;
  const View& result = results[0].view;
  const DType dtype = result.dtype;
  const bool is_of_one_type =
      std::all_of(operands.begin(), operands.end(),
                  [&](const View& view) { return view.dtype == dtype; }) &&
      std::all_of(tape.begin(), tape.end(),
                  [&](const TapeInstruction& step) { return step.dtype == dtype; });
  if (!is_of_one_type || !is_floating(dtype) || dtype == DType::kFloat64)
    return std::nullopt;

  const Formulas formulas(operands.size(), tape);
  EpilogueTape out;
  int value = static_cast<int>(operands.size()) + results[0].instruction;
  if (const std::vector<int>* relu = formulas.arguments(value, "relu")) {
    out.activation = Activation::kRelu;
    value = (*relu)[0];
  } else if (const std::vector<int>* gelu = formulas.arguments(value, "gelu_tanh")) {
    out.activation = Activation::kGelu;
    value = (*gelu)[0];
  }
  const auto is_product = [&](int operand) {
    const View& view = operands[static_cast<size_t>(operand)];
    return view.shape == result.shape && is_contiguous(view);
  };
  const std::vector<int>* sum = formulas.arguments(value, "add");
  if (sum == nullptr) {
    if (out.activation == Activation::kNone || !formulas.is_operand(value) || !is_product(value))
      return std::nullopt;
    out.product = static_cast<size_t>(value);
    return out;
  }
  int product = (*sum)[0], bias = (*sum)[1];
  if (!formulas.is_operand(product) || !formulas.is_operand(bias))
    return std::nullopt;
  if (!is_product(product))
    std::swap(product, bias);
  if (!is_product(product))
    return std::nullopt;
  out.product = static_cast<size_t>(product);
  out.bias = static_cast<size_t>(bias);
  return out;
}

bool repeats_rows(const Shape& shape, const std::vector<int64_t>& strides, int64_t n) {
  int64_t inner = 1;  // elements of the dimensions so far
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1)
      continue;
    const bool is_of_row = inner < n;
    if (strides[d] != (is_of_row ? inner : 0))
      return false;
    inner *= shape[d];
    if (is_of_row && inner > n)
      return false;
  }
  return inner >= n;
}

std::vector<Command> with_parts(std::vector<Command> commands,
                                const std::function<bool(const Command&)>& is_whole) {
  std::vector<Command> out;
  for (Command& command : commands) {
    auto* matmul = std::get_if<Matmul>(&command.what);
    const auto* attention = std::get_if<Attention>(&command.what);
    const bool has_parts = attention != nullptr || (matmul != nullptr && matmul->epilogue);
    if (!has_parts || is_whole(command)) {
      out.push_back(std::move(command));
    } else if (attention != nullptr) {
      out.insert(out.end(), attention->apart->begin(), attention->apart->end());
    } else {
      const std::shared_ptr<const Command> apart = matmul->epilogue->apart;
      matmul->epilogue.reset();  // its accesses remain: what they say too much comes right behind
      out.push_back(std::move(command));
      out.push_back(*apart);
    }
  }
  return out;
}

}  // namespace meshtrain::gpu
