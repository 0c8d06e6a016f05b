#include "nn/tensor_program.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "config/tensor_expression.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

// Stand for sizes that are not known, in two runs: what differs between them is not known either.
// Messages say None for them. Five of them are below 2^48.
constexpr int64_t kUnknownSizes[] = {499, 503};

Operand in_graph(const Operand& operand, const std::vector<ValueId>& values) {
  Operand out = operand;
  if (operand.is_tensor()) {
    out.tensor = values[static_cast<size_t>(operand.tensor)];
  }
  for (Operand& entry : out.list) {
    entry = in_graph(entry, values);
  }
  return out;
}

// Adds the operations; all tensors of the program as values.
std::vector<ValueId> run_calls(Builder& builder, const TensorProgram& program,
                               std::span<const ValueId> inputs, DType floatx) {
  std::vector<ValueId> values(inputs.begin(), inputs.end());
  for (const TensorProgram::Call& call : program.calls) {
    OperationContext context{builder, floatx, {}, call.arguments, call.part};
    for (const Operand& operand : call.operands) {
      context.operands.push_back(in_graph(operand, values));
    }
    try {
      values.push_back(call.operation->apply(context));
      if (is_too_large(builder.shape(values.back()))) {
        operation_error("the result has more than 2^48 numbers");
      }
    } catch (ExprError& error) {
      error.offset = call.offset;
      error.message = fmt::format("{}: {}", call.operation->name, error.message);
      throw;
    }
  }
  return values;
}

std::vector<TensorType> types_with(const TensorProgram& program,
                                   const std::vector<TensorType>& inputs, DType floatx,
                                   int64_t unknown) {
  Graph graph;
  Builder builder(graph);
  std::vector<ValueId> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Shape shape = inputs[i].shape;
    if (!shape.empty() && shape[0] == kUnknownDim) {
      shape[0] = unknown * inputs[i].rows;
    }
    std::replace(shape.begin(), shape.end(), kUnknownDim, unknown);
    values.push_back(builder.input(fmt::format("x{}", i), shape, inputs[i].dtype, false));
  }
  std::vector<TensorType> out;
  try {
    for (const ValueId value : run_calls(builder, program, values, floatx)) {
      out.push_back({builder.shape(value), builder.dtype(value)});
    }
  } catch (ExprError& error) {
    const std::string number = std::to_string(unknown);
    for (size_t at = 0; (at = error.message.find(number)) != std::string::npos;) {
      error.message.replace(at, number.size(), "None");
    }
    throw;
  }
  return out;
}

}  // namespace

ValueId run_program(Builder& builder, const TensorProgram& program, std::span<const ValueId> inputs,
                    DType floatx) {
  return run_calls(builder, program, inputs, floatx)[static_cast<size_t>(program.result)];
}

void throw_expression_error(const ConfigObject& object, const ExprError& error,
                            const std::string& owner) {
  Diagnostics diagnostics;
  expression_error(diagnostics, object, error, owner);
  diagnostics.throw_if_errors();
  throw InternalError("an error of an expression that is none");
}

std::vector<UsedInput> used_inputs(const TensorProgram& program) {
  const auto num_inputs = static_cast<int>(program.inputs.size());
  const size_t num_tensors = program.inputs.size() + program.calls.size();
  std::vector<int> depth(num_tensors, -1);
  depth[static_cast<size_t>(program.result)] = 0;
  std::vector<int> order;
  std::vector<bool> met(num_tensors, false);
  const std::function<void(const Operand&, int)> deepen = [&](const Operand& operand, int below) {
    if (operand.is_tensor()) {
      int& own = depth[static_cast<size_t>(operand.tensor)];
      own = std::max(own, below);
    }
    for (const Operand& entry : operand.list) {
      deepen(entry, below);
    }
  };
  for (size_t i = program.calls.size(); i-- > 0;) {
    const int own = depth[program.inputs.size() + i];
    for (const Operand& operand : program.calls[i].operands) {
      own < 0 ? void() : deepen(operand, own + 1);
    }
  }
  const std::function<void(const Operand&)> walk = [&](const Operand& operand) {
    if (operand.is_tensor() && !met[static_cast<size_t>(operand.tensor)]) {
      met[static_cast<size_t>(operand.tensor)] = true;
      if (operand.tensor < num_inputs) {
        order.push_back(operand.tensor);
      } else {
        const auto& call = program.calls[static_cast<size_t>(operand.tensor - num_inputs)];
        std::for_each(call.operands.begin(), call.operands.end(), walk);
      }
    }
    std::for_each(operand.list.begin(), operand.list.end(), walk);
  };
  walk({.tensor = program.result});
  std::vector<UsedInput> out;
  for (const int input : order) {
    out.push_back({input, depth[static_cast<size_t>(input)]});
  }
  return out;
}

std::vector<TensorType> infer_tensors(const TensorProgram& program,
                                      const std::vector<TensorType>& inputs, DType floatx) {
  std::vector<TensorType> types = types_with(program, inputs, floatx, kUnknownSizes[0]);
  const std::vector<TensorType> others = types_with(program, inputs, floatx, kUnknownSizes[1]);
  for (size_t t = 0; t < types.size(); ++t) {
    Shape& shape = types[t].shape;
    const Shape& other = others[t].shape;
    types[t].has_batch =
        !shape.empty() && shape[0] == kUnknownSizes[0] && other[0] == kUnknownSizes[1];
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i] = shape[i] == other[i] ? shape[i] : kUnknownDim;
    }
  }
  return types;
}

TensorType infer_program(const TensorProgram& program, const std::vector<TensorType>& inputs,
                         DType floatx) {
  return infer_tensors(program, inputs, floatx)[static_cast<size_t>(program.result)];
}

TensorNames names_of_inputs(const std::vector<std::string>& inputs) {
  TensorNames out;
  std::map<std::string, std::set<std::string>> wholes;  // "a/w" and "b/w" are no one `w`
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = inputs[i].substr(inputs[i].rfind('/') + 1);  // npos + 1 is 0
    wholes[name].insert(inputs[i]);
    if (is_name_alone(name)) {
      out.tensors.emplace(name, static_cast<int>(i));
    }
  }
  std::erase_if(out.tensors,
                [&](const auto& tensor) { return wholes.at(tensor.first).size() > 1; });
  for (size_t i = 0; i < inputs.size(); ++i) {
    out.tensors.emplace(fmt::format("x{}", i + 1), static_cast<int>(i));
  }
  if (inputs.size() == 1) {
    out.tensors.emplace("x", 0);
  }
  out.help = inputs.size() == 1 ? "the input is `x`, and other names are those of `vars`"
                                : "names are those of the `inputs`, or x1, x2, ..., and of `vars`";
  return out;
}

TensorProgram program_of_object(const ConfigObject& object, const TensorNames& tensors,
                                std::vector<std::string> inputs) {
  TensorNames names = tensors;
  for (const auto& [name, text] : object.arg("constants").dict()) {
    names.constants[name] = constant_of_text(text.string());
  }
  return trace_expression(expression_text(object.string("function")), std::move(inputs), names);
}

Diagnostic& expression_error(Diagnostics& diagnostics, const ConfigObject& object,
                             const ExprError& error, const std::string& owner) {
  const ConfigValue& function = object.arg("function");
  Diagnostic& d =
      diagnostics.error("E132", expression_place(function.loc, function.string(), error.offset),
                        fmt::format("{}: cannot compute `function` `{}`: {}", owner,
                                    function.string(), error.message));
  if (expression_text(function.string()).starts_with("lambda ")) {
    d.help("write the expression alone: `=x * 2`; a loss compares `y_true` and `y_pred`");
  } else if (!error.help.empty()) {
    d.help(error.help);
  }
  return d;
}

}  // namespace meshtrain
