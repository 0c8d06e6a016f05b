// Expressions over tensors: parsed with the grammar of all expressions, traced into a list of
// operations, checked on a scratch graph, and added to a graph like the ops of any layer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/expression_parser.h"
#include "config/object.h"
#include "nn/operations.h"

namespace meshtrain {

// The calls of an expression in order. Tensor i of an Operand is input i, or the result of call
// i - inputs.size().
struct TensorProgram {
  struct Call {
    const Operation* operation = nullptr;
    std::vector<Operand> operands;
    OperationArguments arguments;  // all of them
    size_t offset = 0;             // of the call in the expression's text
    int64_t part = 0;              // which tensor, of an operation that gives a list
  };
  std::vector<std::string> inputs;  // their names
  std::vector<Call> calls;
  int result = kNone;  // a tensor
};

// Names of tensors and of numbers in an expression.
struct TensorNames {
  std::map<std::string, int, std::less<>> tensors;
  std::map<std::string, ExprValue, std::less<>> constants;
  std::string help;  // said of an unknown name
};

struct TensorType {
  Shape shape;
  DType dtype = DType::kFloat32;
  bool has_batch = true;  // dimension 0 is the batch
  int64_t rows = 1;       // of an input: Model::Call::rows
};

// Throws ExprError with its place: unknown names and functions, wrong arguments, a result that is
// no tensor, more than 1,000 operations.
TensorProgram trace_expression(std::string_view text, std::vector<std::string> inputs,
                               const TensorNames& names);
// Shape and dtype of all tensors: the inputs, then the results of the calls. Throws as
// infer_program().
std::vector<TensorType> infer_tensors(const TensorProgram& program,
                                      const std::vector<TensorType>& inputs, DType floatx);
// Shape and dtype of the result; unknown sizes stay unknown. Throws ExprError with its place where
// the operations do not take these shapes.
TensorType infer_program(const TensorProgram& program, const std::vector<TensorType>& inputs,
                         DType floatx);
// Adds the operations to the graph.
ValueId run_program(Builder& builder, const TensorProgram& program, std::span<const ValueId> inputs,
                    DType floatx);

// The inputs that the result depends on, in the order in which a walk from it along the operands
// meets them, each with the number of calls on the longest way.
struct UsedInput {
  int input = 0;
  int depth = 0;
};
std::vector<UsedInput> used_inputs(const TensorProgram& program);

// The program of an object with the arguments `function` and `constants` (Lambda).
TensorProgram program_of_object(const ConfigObject& object, const TensorNames& tensors,
                                std::vector<std::string> inputs);
// The names that a Lambda's inputs have in its function: `x` of a single one; their own, without
// the blocks around them; and x1, x2, ...
TensorNames names_of_inputs(const std::vector<std::string>& inputs);
// Reports an error of the argument `function` at its place: E132 of its text, E120 of its shapes.
Diagnostic& expression_error(Diagnostics& diagnostics, const ConfigObject& object,
                             const ExprError& error, const std::string& owner);

// The same, as an error to throw.
[[noreturn]] void throw_expression_error(const ConfigObject& object, const ExprError& error,
                                         const std::string& owner);

}  // namespace meshtrain
