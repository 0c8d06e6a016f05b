// Every op, over every way to split its factors on one and two mesh axes, against the interpreter.
#include <doctest/doctest.h>

#include "check_op.h"

namespace meshtrain::testing {
namespace {

using Ints = std::vector<int64_t>;

TEST_CASE("unary ops equal the interpreter on every split") {
  for (const char* op :
       {"neg", "exp", "expm1", "tanh", "sigmoid", "softplus", "square", "abs", "sign", "erf", "sin",
        "cos", "floor", "round", "relu", "is_finite", "gelu", "gelu_tanh", "silu"}) {
    check_everywhere({op, {{{8, 13, 16}}}});
  }
  for (const char* op : {"log", "log1p", "sqrt", "rsqrt", "reciprocal"}) {
    check_everywhere({op, {{{16, 7}, DType::kFloat32, Values::kPositive}}});
  }
  check_everywhere({"logical_not", {{{16, 3}, DType::kBool, Values::kBool}}});
  check_everywhere({"neg", {{{8, 3}, DType::kInt32, Values::kSmallIds}}});
}

TEST_CASE("binary ops broadcast as the interpreter does on every split") {
  for (const char* op : {"add", "sub", "mul", "div", "max", "min", "eq", "lt", "ge"}) {
    check_everywhere({op, {{{16, 8}}, {{16, 8}}}});
    check_everywhere({op, {{{16, 24}}, {{24}}}});
    check_everywhere({op, {{{16, 8}}, {{16, 1}}}});
    check_everywhere({op, {{{16, 8}}, {{}}}});
  }
  for (const char* op : {"gelu_grad", "gelu_tanh_grad", "silu_grad"})
    check_everywhere({op, {{{16, 1500}}, {{16, 1500}}}});
  check_everywhere({"pow", {{{16, 8}, DType::kFloat32, Values::kPositive}, {{8}}}, {}, 1e-5});
  check_everywhere({"add", {{{8, 1, 24}}, {{5, 24}}}});
  check_everywhere({"mul", {{{1, 5, 1}}, {{8, 1, 16}}}});
  check_everywhere({"add", {{{16, 1500}}, {{1500}}}});
  check_everywhere({"add", {{{16, 1500}}, {{16, 1}}}});
  for (const char* op : {"add", "mul", "div", "max", "le"}) {
    check_everywhere(
        {op, {{{16, 8}, DType::kInt32, Values::kSmallIds}, {{8}, DType::kInt32, Values::kStep}}});
    check_everywhere(
        {op, {{{16, 8}, DType::kInt64, Values::kSmallIds}, {{}, DType::kInt64, Values::kStep}}});
  }
  check_everywhere({"logical_and",
                    {{{16, 8}, DType::kBool, Values::kBool}, {{8}, DType::kBool, Values::kBool}}});
}

TEST_CASE("select and clamp and cast equal the interpreter") {
  check_everywhere({"select", {{{16, 8}, DType::kBool, Values::kBool}, {{16, 8}}, {{}}}});
  check_everywhere({"select", {{{16, 1}, DType::kBool, Values::kBool}, {{8}}, {{16, 8}}}});
  check_everywhere({"clamp", {{{16, 9}}}, {{"low", -0.5}, {"high", 1.0}}});
  for (const char* to : {"bool", "int32", "int64", "float32", "float64", "bfloat16", "float16"}) {
    check_everywhere({"cast", {{{16, 9}}}, {{"dtype", std::string(to)}}});
    check_everywhere(
        {"cast", {{{16, 9}, DType::kInt32, Values::kSmallIds}}, {{"dtype", std::string(to)}}});
  }
  check_everywhere({"cast",
                    {{{16, 9}, DType::kUInt8, Values::kSmallIntegers}},
                    {{"dtype", std::string("float32")}}});
}

TEST_CASE("shape ops move elements as the interpreter does") {
  check_everywhere({"broadcast", {{{1, 8}}}, {{"shape", Ints{16, 8}}}});
  check_everywhere({"broadcast", {{{16, 1}}}, {{"shape", Ints{3, 16, 8}}}});
  check_everywhere({"transpose", {{{16, 40}}}, {{"permutation", Ints{1, 0}}}});
  check_everywhere({"transpose", {{{8, 3, 16}}}, {{"permutation", Ints{2, 0, 1}}}});
  check_everywhere({"transpose", {{{8, 3, 16, 5}}}, {{"permutation", Ints{0, 2, 1, 3}}}});
  check_everywhere({"reshape", {{{16, 6}}}, {{"shape", Ints{8, 2, 6}}}});
  check_everywhere({"reshape", {{{8, 2, 6}}}, {{"shape", Ints{16, 6}}}});
  const auto along = [](int64_t axis, Attrs attrs) {
    attrs["axis"] = axis;
    return attrs;
  };
  for (int64_t axis : {0, 1}) {
    check_everywhere(
        {"slice",
         {{{16, 24}}},
         along(axis, {{"begin", int64_t{1}}, {"end", int64_t{15}}, {"stride", int64_t{3}}})});
    check_everywhere(
        {"pad",
         {{{16, 24}}},
         along(axis, {{"before", int64_t{2}}, {"after", int64_t{1}}, {"value", 0.5}})});
    check_everywhere({"reverse", {{{16, 24}}}, along(axis, {})});
    check_everywhere({"concat", {{{16, 8}}, {{16, 8}}}, along(axis, {})});
  }
}

TEST_CASE("reductions equal the interpreter on every split") {
  const std::vector<std::pair<Shape, Ints>> shapes = {
      {{16, 8}, {1}},       {{16, 8}, {0}},
      {{16, 8}, {0, 1}},    {{8, 3, 16}, {1}},
      {{8, 3, 16}, {0, 2}}, {{4, 8, 3, 16}, {1, 3}},
      {{16, 2000}, {1}},    {{2000, 8}, {0}},
      {{16, 1}, {1}},       {{8, 16, 5, 5}, {0, 2, 3}}};
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min"}) {
    for (const auto& [shape, axes] : shapes) {
      for (int64_t keepdims : {0, 1}) {
        check_everywhere({op, {{shape}}, {{"axes", axes}, {"keepdims", keepdims}}});
      }
    }
  }
  check_everywhere({"reduce_sum",
                    {{{16, 8}, DType::kInt32, Values::kSmallIds}},
                    {{"axes", Ints{0}}, {"keepdims", int64_t{0}}}});
}

TEST_CASE("scans along a dimension equal the interpreter") {
  for (int64_t axis : {0, 1, 2}) {
    check_everywhere({"argmax", {{{8, 16, 5}}}, {{"axis", axis}}});
    check_everywhere({"cumsum", {{{8, 16, 5}}}, {{"axis", axis}}});
  }
  check_everywhere(
      {"argmax", {{{16, 9}, DType::kInt32, Values::kSmallIntegers}}, {{"axis", int64_t{1}}}});
  check_everywhere({"top_k", {{{16, 9}}}, {{"k", int64_t{3}}}});
  check_everywhere(
      {"top_k", {{{8, 9}, DType::kInt32, Values::kSmallIntegers}}, {{"k", int64_t{4}}}});
}

TEST_CASE("sums of products equal the interpreter on every split") {
  const auto einsum = [](const char* equation, Shape a, Shape b) {
    check_everywhere(
        {"einsum", {{std::move(a)}, {std::move(b)}}, {{"equation", std::string(equation)}}, 1e-5});
  };
  einsum("bi,io->bo", {16, 24}, {24, 8});
  einsum("bi,bo->io", {16, 24}, {16, 8});
  einsum("bo,io->bi", {16, 8}, {24, 8});
  einsum("bi,bo->io", {1104, 208}, {1104, 64});  // deep: copies A
  einsum("bti,io->bto", {8, 3, 16}, {16, 24});
  einsum("bti,bto->io", {8, 3, 16}, {8, 3, 24});
  einsum("bthd,bshd->bhts", {2, 8, 4, 16}, {2, 8, 4, 16});
  einsum("bhts,bshd->bthd", {2, 4, 8, 8}, {2, 8, 4, 16});
  einsum("bte,ehd->bthd", {2, 8, 16}, {16, 4, 8});
  einsum("bte,bthd->ehd", {2, 8, 16}, {2, 8, 4, 8});
  einsum("bthd,ehd->bte", {2, 8, 4, 8}, {16, 4, 8});
  einsum("bthd,hde->bte", {2, 8, 4, 8}, {4, 8, 16});
  einsum("bhdt,hde->bte", {2, 4, 8, 8}, {4, 8, 16});
  einsum("dbh,hde->be", {8, 2, 4}, {4, 8, 16});
  einsum("i,j->ij", {16}, {8});
  einsum("bi,bi->b", {16, 24}, {16, 24});
  einsum("bi,bi->bi", {16, 24}, {16, 24});
  einsum("bi,bi->", {16, 24}, {16, 24});
  einsum("bqh,bkh->bqkh", {2, 8, 4}, {2, 16, 4});
  einsum("bi,i->b", {16, 24}, {24});
  einsum("bij,jk->ki", {2, 8, 4}, {4, 16});
  einsum("bi,io->bo", {1, 13}, {13, 7});
  einsum("bi,io->bo", {7, 1}, {1, 13});
  einsum("bi,io->bo", {200, 100}, {100, 64});
  check_everywhere({"einsum", {{{16, 8}}}, {{"equation", std::string("ij->j")}}});
  check_everywhere({"einsum", {{{16, 8, 3}}}, {{"equation", std::string("ijk->ki")}}});
}

TEST_CASE("lookups equal the interpreter with split vocabularies and ids") {
  const Operand ids{{16, 2}, DType::kInt32, Values::kSmallIds};
  check_everywhere({"gather_rows", {{{8, 16}}, ids}});
  check_everywhere({"scatter_add_rows", {{{16, 2, 8}}, ids}, {{"num_rows", int64_t{8}}}});
  for (const char* dtype : {"float32", "float64", "int32", "bfloat16", "float16"}) {
    check_everywhere(
        {"one_hot", {ids}, {{"num_classes", int64_t{8}}, {"dtype", std::string(dtype)}}});
  }
}

TEST_CASE("random numbers do not depend on the mesh") {
  const Operand step{{}, DType::kInt64, Values::kStep};
  const Attrs stream = {{"seed", int64_t{1337}}, {"stream", int64_t{0x89ABCDEF}}};
  for (const Shape& shape : {Shape{16, 8}, Shape{8, 3, 16}, Shape{32, 250}, Shape{64}}) {
    Attrs attrs = stream;
    attrs["shape"] = shape;
    check_everywhere({"random_bits", {step}, attrs});
    attrs = stream;
    attrs["rate"] = 0.4;
    attrs["noise_shape"] = shape;
    check_everywhere({"dropout", {{shape}, step}, attrs});
  }
  Attrs shared = stream;
  shared["rate"] = 0.5;
  shared["noise_shape"] = Shape{8, 1, 16};
  check_everywhere({"dropout", {{{8, 3, 16}}, step}, shared});
  shared["noise_shape"] = Shape{8, 3, 1};
  check_everywhere({"dropout", {{{8, 3, 16}}, step}, shared});
}

TEST_CASE("constants and iotas begin where their shard does") {
  const Attrs declared = {{"shape", Shape{8, 16}}, {"dtype", std::string("int32")}};
  Attrs constant = declared, iota = declared;
  constant["value"] = 3.0;
  iota["axis"] = int64_t{1};
  check_everywhere({"constant", {}, constant});
  check_everywhere({"iota", {}, iota});
}

TEST_CASE("optimizer rules equal the interpreter on every split") {
  const Operand tensor{{16, 24}};
  const Operand positive{{16, 24}, DType::kFloat32, Values::kPositive};
  const Operand rate{{}, DType::kFloat32, Values::kPositive};
  const auto run = [&](const char* kind, std::vector<Operand> operands, Attrs attrs) {
    attrs["kind"] = std::string(kind);
    check_everywhere({"optimizer_update", operands, attrs});
    attrs["has_decay"] = int64_t{1};
    operands.push_back(rate);
    check_everywhere({"optimizer_update", operands, attrs});
  };
  run("sgd", {tensor, tensor, rate}, {});
  for (int64_t flag : {0, 1}) {
    run("momentum", {tensor, tensor, tensor, rate}, {{"momentum", 0.9}, {"nesterov", flag}});
    std::vector<Operand> adam = {tensor, tensor, tensor, positive};
    if (flag != 0)
      adam.push_back(positive);
    adam.push_back(rate);
    run("adam", adam, {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-7}, {"amsgrad", flag}});
    for (double momentum : {0.0, 0.9}) {
      // The mean square is at least the square of the mean.
      std::vector<Operand> rmsprop = {tensor, tensor, positive};
      if (momentum > 0)
        rmsprop.push_back(tensor);
      if (flag != 0)
        rmsprop.push_back({{16, 24}, DType::kFloat32, Values::kBool});
      rmsprop.push_back(rate);
      run("rmsprop", rmsprop,
          {{"rho", 0.9}, {"epsilon", 5.0}, {"momentum", momentum}, {"centered", flag}});
    }
  }
}

}  // namespace
}  // namespace meshtrain::testing
