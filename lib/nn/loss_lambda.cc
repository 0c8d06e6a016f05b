// Losses and metrics that are expressions of the config.
#include "nn/loss_table.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

// `outputs`: names of the model's outputs, the tensors after y_true and y_pred.
TensorProgram program_of_loss(const ConfigObject& loss, std::vector<std::string> outputs) {
  TensorNames names;
  names.tensors = {{"y_true", 0}, {"y_pred", 1}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    names.tensors.emplace(outputs[i], static_cast<int>(i) + 2);
  }
  names.help = fmt::format("names are `y_true`, `y_pred`, {}those of `vars`",
                           outputs.empty() ? "and " : "the model's outputs and ");
  outputs.insert(outputs.begin(), {"y_true", "y_pred"});
  return program_of_object(loss, names, std::move(outputs));
}

LossValues lambda_loss(Builder& b, LossArgs args, ValueId y, ValueId p) {
  std::vector<std::string> names;
  std::vector<ValueId> values = {y, p};
  for (const auto& [name, value] : b.named_values()) {
    names.push_back(name);
    values.push_back(b.cast(value, b.dtype(p)));
  }
  try {
    return {run_program(b, program_of_loss(args, std::move(names)), values, b.dtype(p))};
  } catch (const ExprError& error) {
    throw_expression_error(args, error, "loss");
  }
}

}  // namespace

void check_lambda_loss(const ConfigObject& loss, const Shape& y_true, const Shape& y_pred,
                       const NamedShapes& outputs, Diagnostics& diagnostics) {
  Shape y = y_true, p = y_pred;
  to_same_rank(y, p);
  std::vector<std::string> names;
  std::vector<TensorType> types = {{y}, {with_known_sizes(p, y)}};
  for (const auto& [name, shape] : outputs) {
    names.push_back(name);
    types.push_back({with_known_sizes(shape, y)});
  }
  try {
    const TensorType type =
        infer_program(program_of_loss(loss, std::move(names)), types, DType::kFloat32);
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
