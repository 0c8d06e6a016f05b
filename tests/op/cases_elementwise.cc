#include <fmt/format.h>

#include "op/op_case.h"

namespace meshtrain {
namespace {

const OperandSpec kPositive{{4, 6}, DType::kFloat64, 0.2, 3.1};

void add_unary(std::vector<OpCase>& cases) {
  for (const char* op :
       {"neg", "exp", "expm1", "tanh", "sigmoid", "softplus", "square", "abs", "sign", "erf", "sin",
        "cos", "floor", "round", "relu", "is_finite", "gelu", "gelu_tanh", "silu"}) {
    cases.push_back({op, op, {{{4, 6}}}});
  }
  for (const char* op : {"log", "log1p", "sqrt", "rsqrt", "reciprocal"}) {
    cases.push_back({op, op, {kPositive}});
  }
  cases.push_back({"abs of int32", "abs", {{{4, 6}, DType::kInt32, -5, 5}}});
  cases.push_back({"logical_not", "logical_not", {{{4, 6}, DType::kBool, 0, 1}}});
}

void add_binary(std::vector<OpCase>& cases) {
  for (const char* op : {"add", "sub", "mul", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"}) {
    cases.push_back({op, op, {{{4, 6}}, {{4, 6}}}});
  }
  for (const char* op : {"gelu_grad", "gelu_tanh_grad", "silu_grad"}) {
    cases.push_back({op, op, {{{4, 6}}, {{4, 6}}}});
    cases.back().has_gradient = false;
  }
  for (const char* op : {"add", "mul", "max", "sub", "lt"}) {
    cases.push_back({fmt::format("{} of a matrix and a row", op), op, {{{4, 6}}, {{6}}}});
    cases.push_back({fmt::format("{} of a column and a row", op), op, {{{4, 1}}, {{1, 6}}}});
    cases.push_back({fmt::format("{} of a scalar and a matrix", op), op, {{{}}, {{4, 6}}}});
    cases.push_back({fmt::format("{} of int32", op),
                     op,
                     {{{4, 6}, DType::kInt32, -3, 3}, {{4, 6}, DType::kInt32, -3, 3}}});
  }
  cases.push_back({"div", "div", {{{4, 6}}, kPositive}});
  cases.push_back({"div by a row", "div", {{{4, 6}}, {{6}, DType::kFloat64, 0.3, 2}}});
  cases.push_back({"div by a scalar", "div", {{{4, 6}}, {{}, DType::kFloat64, 0.3, 2}}});
  cases.push_back(
      {"div of int32", "div", {{{4, 6}, DType::kInt32, -9, 9}, {{4, 6}, DType::kInt32, 1, 4}}});
  cases.push_back({"div of uint32",
                   "div",
                   {{{4, 6}, DType::kUInt32, 0, 9000}, {{4, 6}, DType::kUInt32, 1, 40}}});
  cases.push_back({"pow", "pow", {kPositive, {{4, 6}}}});
  cases.push_back({"pow with a scalar exponent", "pow", {kPositive, {{}}}});
  for (const char* op : {"logical_and", "logical_or", "eq"}) {
    cases.push_back({fmt::format("{} of bools", op),
                     op,
                     {{{4, 6}, DType::kBool, 0, 1}, {{1, 6}, DType::kBool, 0, 1}}});
  }
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  add_unary(cases);
  add_binary(cases);
  const OperandSpec mask{{4, 6}, DType::kBool, 0, 1};
  cases.push_back({"select", "select", {mask, {{4, 6}}, {{4, 6}}}});
  cases.push_back(
      {"select of broadcast operands", "select", {{{4, 1}, DType::kBool, 0, 1}, {{6}}, {{}}}});
  cases.push_back({"clamp", "clamp", {{{4, 6}}}, {{"low", -0.71}, {"high", 1.13}}});
  cases.push_back(
      {"clamp of int32", "clamp", {{{4, 6}, DType::kInt32, -9, 9}}, {{"low", 0.0}, {"high", 5.0}}});
  cases.push_back({"cast to float64", "cast", {{{4, 6}}}, {{"dtype", std::string("float64")}}});
  cases.push_back({"cast of bool", "cast", {mask}, {{"dtype", std::string("float64")}}});
  cases.push_back({"cast to int32", "cast", {{{4, 6}}}, {{"dtype", std::string("int32")}}});
  cases.push_back({"pin", "pin", {{{4, 6}}}, {{"key", std::string("d1/output")}}});
  return cases;
}

}  // namespace meshtrain
