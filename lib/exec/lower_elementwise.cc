// Elementwise ops, alone or fused, and copies that change no element.
#include "exec/lower.h"

namespace meshtrain {
namespace {

// Shape of the results: the axes of the step, then the local dimensions.
std::vector<View> operand_views(const StepContext& context, const View& result) {
  const size_t rank = result.rank() - context.num_axes();
  std::vector<View> views;
  for (size_t i = 0; i < context.step.inputs.size(); ++i) {
    View view = context.view(context.input(i), context.input_base(i), rank);
    for (size_t d = 0; d < view.rank(); ++d) {
      MESHTRAIN_CHECK(view.shape[d] == 1 || view.shape[d] == result.shape[d],
                      "{}: operand {} of shape {} for {}", context.step.path, i,
                      shape_string(view.shape), shape_string(result.shape));
    }
    views.push_back(std::move(view));
  }
  return views;
}

double number(const Attrs& attrs, std::string_view name) {
  const auto found = attrs.find(name);
  if (found == attrs.end())
    return 0;
  if (const auto* value = std::get_if<double>(&found->second))
    return *value;
  if (const auto* value = std::get_if<int64_t>(&found->second))
    return static_cast<double>(*value);
  return 0;
}

TapeInstruction instruction(const OpDef& op, const Attrs& attrs, std::vector<int> args,
                            DType dtype) {
  const LowerOp lower = lowering_of(op);
  if (lower == lower_constant)
    return {"constant", std::move(args), dtype, number(attrs, "value")};
  return {lower == lower_copy ? "copy" : op.name, std::move(args), dtype, number(attrs, "low"),
          number(attrs, "high")};
}

void lower_fused(StepContext& context) {
  const FusedTape& tape = context.program.fusions[context.step.fused];
  const View result = context.output_view(0);
  std::vector<TapeInstruction> instructions;
  for (const FusedTape::Instruction& in : tape.instructions) {
    instructions.push_back(instruction(*in.op, in.attrs, in.args, in.dtype));
  }
  std::vector<TapeResult> results;
  for (size_t r = 0; r < tape.results.size(); ++r) {
    results.push_back({tape.results[r], context.output_view(r)});
  }
  context.add(TapeSpec{result.shape, operand_views(context, result), instructions, results});
}

}  // namespace

void lower_tape(StepContext& context) {
  if (context.step.fused != kNone) {
    lower_fused(context);
    return;
  }
  const View result = context.output_view(0);
  std::vector<int> args;
  for (size_t i = 0; i < context.step.inputs.size(); ++i)
    args.push_back(static_cast<int>(i));
  context.add(TapeSpec{
      result.shape,
      operand_views(context, result),
      {instruction(*context.step.op, context.step.attrs, std::move(args), context.output(0).dtype)},
      {{0, result}}});
}

}  // namespace meshtrain
