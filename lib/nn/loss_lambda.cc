// Losses and metrics that are expressions of the config.
#include "nn/loss_table.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

TensorProgram program_of_loss(const ConfigObject& loss) {
  TensorNames names;
  names.tensors = {{"y_true", 0}, {"y_pred", 1}};
  names.help = "names are `y_true`, `y_pred` and those of `vars`";
  return program_of_object(loss, names, {"y_true", "y_pred"});
}

LossValues lambda_loss(Builder& b, LossArgs args, ValueId y, ValueId p) {
  try {
    return {run_program(b, program_of_loss(args), std::vector{y, p}, b.dtype(p))};
  } catch (const ExprError& error) {
    throw_expression_error(args, error, "loss");
  }
}

}  // namespace

void check_lambda_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                       Diagnostics& diagnostics) {
  Shape y = y_true, p = y_pred;
  to_same_rank(y, p);
  try {
    const TensorType type = infer_program(program_of_loss(loss), {{y}, {p}}, DType::kFloat32);
    if (!is_floating(type.dtype)) {
      throw ExprError{0,
                      fmt::format("its values are {}, not floats", dtype_name(type.dtype)),
                      {},
                      "write cast(..., \"float32\")"};
    }
    if (!type.has_batch && !type.shape.empty()) {
      throw ExprError{0,
                      fmt::format("it gives {}, neither values per sample nor a single one",
                                  shape_string(type.shape)),
                      {},
                      "the batch is axis 0: reduce over other axes"};
    }
  } catch (const ExprError& error) {
    expression_error(
        diagnostics, loss, error,
        fmt::format("targets {} and outputs {}", shape_string(y_true), shape_string(y_pred)));
  }
}

LossTable lambda_losses() {
  return {{"lambda", lambda_loss, TargetKind::kAny}};
}

}  // namespace meshtrain
