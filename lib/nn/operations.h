// The operations of keras.ops that expressions, and functional graphs of Keras, are made of. Each
// is an entry of a table: its signature as in Keras, and the ops of the graph that compute it. What
// an operation refuses, it refuses while ops are added; so shapes are inferred by adding them to a
// scratch graph (tensor_program.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/arithmetic.h"
#include "ir/builder.h"

namespace meshtrain {

// An operand of a call: a tensor, a constant, or a list of operands. `Tensor` is what names a
// tensor: a ValueId of a graph, or an index in a TensorProgram.
struct Operand {
  int tensor = kNone;
  ExprValue constant;  // where it is no tensor; within it, `...` and slices as in index_of()
  std::vector<Operand> list;
  bool is_list = false;

  bool is_tensor() const { return tensor != kNone; }
};

using OperationArguments = std::map<std::string, ExprValue, std::less<>>;

// What an operation is applied to. The functions throw ExprError without a place.
struct OperationContext {
  Builder& b;
  DType floatx;                   // of what is no float and becomes one
  std::vector<Operand> operands;  // tensors are values of the graph
  const OperationArguments& arguments;
  int64_t part = 0;  // of the list that the operation gives

  // Operand `i` as a tensor; a constant takes the dtype `like`.
  ValueId tensor(size_t i) const;
  ValueId tensor(size_t i, DType like) const;
  ValueId floating(size_t i) const;  // in floatx where it is no float
  // All of `given` in the dtype that Keras promotes them to. Constants are weak: they take the
  // tensors' dtype where it can hold their kind.
  std::vector<ValueId> promoted(const std::vector<Operand>& given) const;
  // All operands, which broadcast, in one type of floats.
  std::vector<ValueId> broadcast_floats() const;

  bool is_null(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const;
  std::string text(std::string_view name) const;
  // The argument `data_format`, last where it is null; refuses other words.
  bool channels_first() const;
  std::vector<int64_t> integers(std::string_view name) const;  // one is a list of one
  std::vector<double> numbers(std::string_view name) const;    // the same
  // The axes that the argument names, from 0, ascending; all of them where it is null.
  std::vector<int64_t> axes(std::string_view name, size_t rank) const;
  int64_t axis(std::string_view name, size_t rank) const;
  size_t rank(ValueId x) const { return b.shape(x).size(); }
  int axis_of(ValueId x, std::string_view name = "axis") const {
    return static_cast<int>(axis(name, rank(x)));
  }
};

struct Operation {
  std::string_view name;        // of keras.ops: "mean"
  std::string_view class_name;  // in Keras' JSON: "Mean"
  std::string_view module;      // "numpy" of keras.src.ops.numpy
  std::string_view operands;    // "x1, x2"; "x, gamma=None" may leave one out; "*operands": any
  std::string_view arguments;   // with their defaults: "axis=None, keepdims=False"
  ValueId (*apply)(OperationContext& context);
  bool gives_list = false;  // of tensors: apply() adds the one that the context's `part` says

  struct Parameter {
    std::string name;
    bool is_required = true;
    ExprValue otherwise;
  };
  std::vector<Parameter> operand_parameters() const;
  std::vector<Parameter> parameters() const;
  // Keras hands this argument to the call rather than to the constructor.
  bool is_call_argument(std::string_view argument) const;
  bool takes_any_number() const { return operands.starts_with("*"); }
  bool takes_list() const { return operands == "xs"; }  // concatenate, stack
};

// nullptr for none.
const Operation* find_operation(std::string_view name);
const Operation* find_operation_class(std::string_view class_name);
std::vector<std::string> operation_names();
// The operation of an operator with one or two operands: "+", "-", "**", "<", ...
const Operation& operation_of_operator(std::string_view op, size_t operands);

// The families (operations_*.cc).
std::vector<Operation> elementwise_operations();
std::vector<Operation> activation_operations();
std::vector<Operation> reduction_operations();
std::vector<Operation> shape_operations();
std::vector<Operation> joining_operations();
std::vector<Operation> product_operations();
std::vector<Operation> angle_operations();
// The angle of (x, y) in (-pi, pi], 0 of the origin: arctan2.
ValueId full_angle(Builder& builder, ValueId y, ValueId x);
std::vector<Operation> order_operations();
std::vector<Operation> window_operations();
std::vector<Operation> image_operations();
std::vector<Operation> network_operations();
std::vector<Operation> fourier_operations();

[[noreturn]] void operation_error(std::string message, std::string help = {});
// Operands in one shape, by NumPy's broadcasting; says which do not fit.
void check_broadcast(const Builder& b, const std::vector<ValueId>& values);
// Whether a value of shape `own` broadcasts to `shape`, which stays as it is.
bool broadcasts_to(const Shape& own, const Shape& shape);
// `value` in this shape, or the error that it does not broadcast to it.
ValueId broadcast_operand(Builder& b, ValueId value, Shape shape);

}  // namespace meshtrain
