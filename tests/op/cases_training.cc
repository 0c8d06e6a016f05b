#include "op/op_case.h"

namespace meshtrain {
namespace {

const OperandSpec kStep{{}, DType::kInt64, 7, 7};

OperandSpec ids(Shape shape, double low, double high) {
  return {std::move(shape), DType::kInt32, low, high};
}

void add_lookups(std::vector<OpCase>& cases) {
  cases.push_back({"gather_rows", "gather_rows", {{{6, 4}}, ids({4, 2}, 0, 5)}});
  cases.push_back(
      {"gather_rows of ids out of range", "gather_rows", {{{6, 4}}, ids({4, 4}, -3, 9)}});
  cases.push_back({"gather_rows of one id", "gather_rows", {{{6, 4}}, ids({}, 4, 4)}});
  cases.push_back({"gather_rows of a vector", "gather_rows", {{{6}}, ids({4}, 0, 5)}});
  cases.push_back(
      {"gather_rows of a table of matrices", "gather_rows", {{{6, 2, 4}}, ids({4}, 0, 5)}});
  const Attrs rows = {{"num_rows", int64_t{6}}};
  cases.push_back({"scatter_add_rows", "scatter_add_rows", {{{4, 2, 6}}, ids({4, 2}, 0, 5)}, rows});
  cases.push_back({"scatter_add_rows of ids out of range",
                   "scatter_add_rows",
                   {{{4, 4, 2}}, ids({4, 4}, -3, 9)},
                   rows});
  cases.push_back(
      {"scatter_add_rows of numbers", "scatter_add_rows", {{{4}}, ids({4}, 0, 5)}, rows});
  const Attrs classes = {{"num_classes", int64_t{6}}, {"dtype", std::string("float64")}};
  cases.push_back({"one_hot", "one_hot", {ids({4}, 0, 5)}, classes});
  cases.push_back({"one_hot of ids out of range", "one_hot", {ids({4, 4}, -2, 8)}, classes});
}

void add_random(std::vector<OpCase>& cases) {
  cases.push_back(
      {"random_bits", "random_bits", {kStep}, {{"shape", Shape{4, 6}}, {"seed", int64_t{-3}}}});
  Attrs dropout = {{"rate", 0.4}, {"seed", int64_t{11}}, {"noise_shape", Shape{4, 6}}};
  cases.push_back({"dropout", "dropout", {{{4, 6}}, kStep}, dropout});
  dropout["noise_shape"] = Shape{4, 1, 6};
  cases.push_back({"dropout shared along a dimension", "dropout", {{{4, 6, 6}}, kStep}, dropout});
  dropout["noise_shape"] = Shape{4, 6};
  dropout["rate"] = 0.0;
  cases.push_back({"dropout of nothing", "dropout", {{{4, 6}}, kStep}, dropout});
}

OpCase optimizer(std::string name, Attrs attrs, int num_slots) {
  OpCase op_case{std::move(name), "optimizer_update", {{{4, 6}}, {{4, 6}}}, std::move(attrs)};
  for (int slot = 0; slot < num_slots; ++slot) {
    // The first is a mean of squares in rmsprop, above the square of a mean that may follow.
    op_case.operands.push_back(
        {{4, 6}, DType::kFloat64, slot == 0 ? 5.1 : 0.1, slot == 0 ? 7.3 : 0.4});
  }
  op_case.operands.push_back({{}, DType::kFloat64, 0.01, 0.02});
  if (op_case.attrs.contains("has_decay")) {
    op_case.operands.push_back({{}, DType::kFloat64, 0.001, 0.002});
  }
  op_case.has_gradient = false;
  return op_case;
}

void add_optimizers(std::vector<OpCase>& cases) {
  const int64_t no = 0, yes = 1;
  const auto kind = [](const char* name) { return std::string(name); };
  cases.push_back(optimizer("sgd", {{"kind", kind("sgd")}}, 0));
  cases.push_back(optimizer("sgd with decay", {{"kind", kind("sgd")}, {"has_decay", yes}}, 0));
  for (int64_t nesterov : {no, yes}) {
    cases.push_back(
        optimizer(nesterov != 0 ? "nesterov momentum" : "momentum",
                  {{"kind", kind("momentum")}, {"momentum", 0.9}, {"nesterov", nesterov}}, 1));
  }
  for (double momentum : {0.0, 0.9}) {
    for (int64_t centered : {no, yes}) {
      cases.push_back(optimizer(std::string("rmsprop") + (momentum > 0 ? " with momentum" : "") +
                                    (centered != 0 ? " centered" : ""),
                                {{"kind", kind("rmsprop")},
                                 {"rho", 0.9},
                                 {"epsilon", 1e-7},
                                 {"momentum", momentum},
                                 {"centered", centered}},
                                1 + (momentum > 0 ? 1 : 0) + static_cast<int>(centered)));
    }
  }
  for (int64_t amsgrad : {no, yes}) {
    Attrs adam = {{"kind", kind("adam")},
                  {"beta_1", 0.9},
                  {"beta_2", 0.99},
                  {"epsilon", 1e-7},
                  {"amsgrad", amsgrad}};
    const int num_slots = 2 + static_cast<int>(amsgrad);
    cases.push_back(optimizer(amsgrad != 0 ? "adam with amsgrad" : "adam", adam, num_slots));
    adam["has_decay"] = yes;
    cases.push_back(optimizer(amsgrad != 0 ? "adamw with amsgrad" : "adamw", adam, num_slots));
  }
}

}  // namespace

std::vector<OpCase> training_cases() {
  std::vector<OpCase> cases;
  add_lookups(cases);
  add_random(cases);
  add_optimizers(cases);
  return cases;
}

}  // namespace meshtrain
