#include "backend/gpu/tape_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/preamble.h"
#include "base/error.h"

namespace meshtrain::gpu {
namespace {

bool only_on_floats(std::string_view op) {
  constexpr std::string_view kOps[] = {
      "exp",   "log",       "log1p",   "expm1",      "tanh",           "floor",
      "round", "pow",       "sigmoid", "softplus",   "sqrt",           "rsqrt",
      "erf",   "sin",       "cos",     "reciprocal", "is_finite",      "channel_affine",
      "gelu",  "gelu_tanh", "silu",    "gelu_grad",  "gelu_tanh_grad", "silu_grad"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// The element of `dtype` that this value becomes, as it is computed with.
std::string rounded(double value, DType dtype) {
  const std::string text = literal(value, dtype);
  return is_16_bit(dtype) ? fmt::format("mt::rounded<{}>({})", type_name(dtype), text) : text;
}

// Floating to integer truncates towards zero; to bool tests for zero.
std::string cast(const std::string& value, DType from, DType to) {
  if (to == DType::kBool)
    return fmt::format("mt::cast_bool({})", value);
  const bool through_int = is_floating(from) && !is_floating(to) && dtype_size(to) == 1;
  return fmt::format("({}){}{}", compute_type(to), through_int ? "(int)" : "", value);
}

}  // namespace

bool is_16_bit(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

std::string instruction_text(const TapeInstruction& instruction,
                             const std::function<TapeArgument(int)>& argument) {
  if (instruction.op == "constant")
    return rounded(instruction.low, instruction.dtype);
  MESHTRAIN_CHECK(!instruction.args.empty(), "op `{}` without operands", instruction.op);
  const TapeArgument first = argument(instruction.args[0]);
  if (instruction.op == "cast")
    return cast(first.name, first.dtype, instruction.dtype);
  const DType dtype =
      instruction.op == "select" ? argument(instruction.args[1]).dtype : first.dtype;
  MESHTRAIN_CHECK(find_element_op(instruction.op) >= 0 &&
                      (is_floating(dtype) || !only_on_floats(instruction.op)),
                  "no GPU kernel for op `{}` on {}", instruction.op, dtype_name(dtype));
  std::string text = fmt::format("mt::{}(", instruction.op);
  for (size_t a = 0; a < instruction.args.size(); ++a)
    text += (a == 0 ? "" : ", ") + argument(instruction.args[a]).name;
  if (instruction.op == "clamp")
    text += ", " + rounded(instruction.low, dtype) + ", " + rounded(instruction.high, dtype);
  return text + ")";
}

}  // namespace meshtrain::gpu
