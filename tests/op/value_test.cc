// Values that the interpreter, which everything else is compared with, must give: computed by hand,
// or by Keras 3.16 on JAX where it says so.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "ir/op.h"
#include "op/op_case.h"
#include "support/interpreter.h"

namespace meshtrain {
namespace {

using List = std::vector<double>;

struct Operand {
  Shape shape;
  List values;
  DType dtype = DType::kFloat64;
};

std::vector<HostTensor> results_of(const std::string& op, const std::vector<Operand>& operands,
                                   const Attrs& attrs = {}) {
  OpCase op_case{op, op, {}, attrs};
  std::vector<HostTensor> tensors;
  for (const Operand& operand : operands) {
    op_case.operands.push_back({operand.shape, operand.dtype});
    tensors.push_back(tensor_of<double>(operand.dtype, operand.shape, operand.values));
  }
  return interpret_case(case_graph(op_case), tensors);
}

List list_of(const HostTensor& tensor) {
  List out;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    out.push_back(tensor.at(i));
  }
  return out;
}

List result_of(const std::string& op, const std::vector<Operand>& operands,
               const Attrs& attrs = {}) {
  return list_of(results_of(op, operands, attrs)[0]);
}

Attrs axis_attrs(int64_t axis) {
  return {{"axis", axis}};
}

TEST_CASE("Elementwise ops give what they are called") {
  CHECK(result_of("round", {{{5}, {0.5, 1.5, 2.5, -0.5, -1.5}}}) == List{0, 2, 2, -0.0, -2});
  CHECK(result_of("sign", {{{3}, {-3, 0, 0.1}}}) == List{-1, 0, 1});
  CHECK(result_of("relu", {{{3}, {-3, 0, 2}}}) == List{0, 0, 2});
  CHECK(result_of("clamp", {{{3}, {-3, 0.5, 2}}}, {{"low", -1.0}, {"high", 1.0}}) ==
        List{-1, 0.5, 1});
  CHECK(result_of("softplus", {{{3}, {0, 1000, -1000}}}) == List{std::log(2.0), 1000, 0});
  CHECK(result_of("sigmoid", {{{3}, {0, 1000, -1000}}}) == List{0.5, 1, 0});
  CHECK(result_of("select", {{{2}, {1, 0}, DType::kBool}, {{2}, {3, 4}}, {{1}, {5}}}) ==
        List{3, 5});
  CHECK(result_of("pow", {{{2}, {3, 2}}, {{}, {2}}}) == List{9, 4});
}

TEST_CASE("NaN goes through max and min and relu from either side") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* op : {"max", "min"}) {
    for (double x : result_of(op, {{{2}, {nan, 1}}, {{2}, {1, nan}}})) {
      CHECK(std::isnan(x));
    }
  }
  CHECK(std::isnan(result_of("relu", {{{1}, {nan}}})[0]));
  const Attrs all = {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}};
  CHECK(std::isnan(result_of("reduce_max", {{{3}, {1, nan, 2}}}, all)[0]));
}

TEST_CASE("Integers divide towards zero and wrap") {
  const DType i32 = DType::kInt32, u32 = DType::kUInt32;
  CHECK(result_of("div", {{{3}, {7, -7, 9}, i32}, {{}, {2}, i32}}) == List{3, -3, 4});
  CHECK(result_of("add", {{{1}, {4294967295.0}, u32}, {{}, {2}, u32}}) == List{1});
  CHECK(result_of("mul", {{{1}, {4294967295.0}, u32}, {{}, {4294967295.0}, u32}}) == List{1});
  CHECK(result_of("sub", {{{1}, {-2147483648.0}, i32}, {{}, {1}, i32}}) == List{2147483647});
  CHECK(result_of("cast", {{{3}, {1.9, -1.9, 0.2}}}, {{"dtype", std::string("int32")}}) ==
        List{1, -1, 0});
  CHECK(result_of("cast", {{{2}, {0, -0.5}}}, {{"dtype", std::string("bool")}}) == List{0, 1});
}

Attrs window_1d(int64_t stride, int64_t dilation, int64_t before, int64_t after) {
  return {{"strides", std::vector<int64_t>{stride}},
          {"dilations", std::vector<int64_t>{dilation}},
          {"pads_before", std::vector<int64_t>{before}},
          {"pads_after", std::vector<int64_t>{after}}};
}

TEST_CASE("A convolution slides its kernel without turning it round") {
  const Operand x{{1, 4, 1}, {1, 2, 3, 4}}, kernel{{2, 1, 1}, {10, 1}};
  CHECK(result_of("conv", {x, kernel}, window_1d(1, 1, 0, 0)) == List{12, 23, 34});
  CHECK(result_of("conv", {x, kernel}, window_1d(1, 1, 1, 0)) == List{1, 12, 23, 34});
  CHECK(result_of("conv", {x, kernel}, window_1d(2, 1, 0, 1)) == List{12, 34});
  CHECK(result_of("conv", {x, kernel}, window_1d(1, 2, 0, 0)) == List{13, 24});
}

TEST_CASE("The groups of a convolution are neighbouring channels and filters") {
  const Operand x{{1, 1, 4}, {1, 2, 3, 4}}, kernel{{1, 2, 2}, {1, 10, 100, 1000}};
  CHECK(result_of("conv", {x, kernel}, window_1d(1, 1, 0, 0)) == List{201, 4030});
}

TEST_CASE("Padding is never the largest and does not count in a mean") {
  const Operand x{{1, 4, 1}, {-1, -2, -3, -4}};
  Attrs attrs = window_1d(2, 1, 1, 1);
  attrs["size"] = std::vector<int64_t>{2};
  CHECK(result_of("max_pool", {x}, attrs) == List{-1, -2, -4});
  CHECK(result_of("avg_pool", {x}, attrs) == List{-1, -2.5, -4});
}

TEST_CASE("The gradient of a pool of equal cells goes to the first of them") {
  const Operand x{{1, 4, 1}, {5, 5, 5, 5}}, dy{{1, 3, 1}, {1, 2, 4}};
  Attrs attrs = window_1d(1, 1, 0, 0);
  attrs["size"] = std::vector<int64_t>{2};
  CHECK(result_of("max_pool_grad", {x, dy}, attrs) == List{1, 2, 4, 0});
}

TEST_CASE("Moments are sums per channel in float64") {
  const Operand x{{2, 2}, {1, 10, 3, 20}, DType::kFloat32};
  const HostTensor sums = std::move(results_of("moments", {x})[0]);
  CHECK(sums.dtype() == DType::kFloat64);
  CHECK(list_of(sums) == List{4, 30, 10, 500});
}

TEST_CASE("Shape ops move elements") {
  const Operand x{{2, 3}, {0, 1, 2, 3, 4, 5}};
  CHECK(result_of("transpose", {x}, {{"permutation", std::vector<int64_t>{1, 0}}}) ==
        List{0, 3, 1, 4, 2, 5});
  CHECK(result_of("reverse", {x}, axis_attrs(1)) == List{2, 1, 0, 5, 4, 3});
  CHECK(result_of("concat", {x, {{2, 1}, {8, 9}}}, axis_attrs(1)) == List{0, 1, 2, 8, 3, 4, 5, 9});
  CHECK(result_of("slice", {x},
                  {{"axis", int64_t{1}},
                   {"begin", int64_t{0}},
                   {"end", int64_t{3}},
                   {"stride", int64_t{2}}}) == List{0, 2, 3, 5});
  CHECK(
      result_of(
          "pad", {x},
          {{"axis", int64_t{0}}, {"before", int64_t{1}}, {"after", int64_t{0}}, {"value", 7.0}}) ==
      List{7, 7, 7, 0, 1, 2, 3, 4, 5});
  CHECK(result_of("broadcast", {{{3}, {1, 2, 3}}}, {{"shape", Shape{2, 3}}}) ==
        List{1, 2, 3, 1, 2, 3});
}

TEST_CASE("Reductions look along their dimensions") {
  const Operand x{{2, 3}, {3, 1, 3, 4, 5, 5}};
  const auto over = [](std::vector<int64_t> axes) {
    return Attrs{{"axes", std::move(axes)}, {"keepdims", int64_t{0}}};
  };
  CHECK(result_of("reduce_sum", {x}, over({0})) == List{7, 6, 8});
  CHECK(result_of("reduce_max", {x}, over({1})) == List{3, 5});
  CHECK(result_of("reduce_min", {x}, over({0, 1})) == List{1});
  CHECK(result_of("argmax", {x}, axis_attrs(1)) == List{0, 1});
  CHECK(result_of("cumsum", {x}, axis_attrs(1)) == List{3, 4, 7, 4, 9, 14});
  const std::vector<HostTensor> top = results_of("top_k", {x}, {{"k", int64_t{2}}});
  CHECK(list_of(top[0]) == List{3, 3, 5, 5});
  CHECK(list_of(top[1]) == List{0, 2, 1, 2});
}

TEST_CASE("Einsum is a matrix product") {
  const Operand a{{2, 2}, {1, 2, 3, 4}};
  const Operand b{{2, 2}, {5, 6, 7, 8}};
  CHECK(result_of("einsum", {a, b}, {{"equation", std::string("ik,kj->ij")}}) ==
        List{19, 22, 43, 50});
  CHECK(result_of("einsum", {a, b}, {{"equation", std::string("ik,jk->ji")}}) ==
        List{17, 39, 23, 53});
  CHECK(result_of("einsum", {a}, {{"equation", std::string("ij->")}}) == List{10});
}

TEST_CASE("Lookups clamp and scatters drop and one_hot ignores ids out of range") {
  const Operand table{{3, 2}, {0, 1, 10, 11, 20, 21}};
  const Operand ids{{4}, {-1, 1, 1, 3}, DType::kInt32};
  CHECK(result_of("gather_rows", {table, ids}) == List{0, 1, 10, 11, 10, 11, 20, 21});
  CHECK(result_of("scatter_add_rows", {{{4}, {1, 2, 3, 4}}, ids}, {{"num_rows", int64_t{3}}}) ==
        List{0, 5, 0});
  CHECK(result_of("one_hot", {ids},
                  {{"num_classes", int64_t{2}}, {"dtype", std::string("float32")}}) ==
        List{0, 0, 0, 1, 0, 1, 0, 0});
}

TEST_CASE("Random bits are Philox of the global index") {
  const List bits =
      result_of("random_bits", {{{}, {5}, DType::kInt64}},
                {{"shape", Shape{2, 3}}, {"seed", int64_t{9}}, {"stream", int64_t{77}}});
  for (uint64_t i = 0; i < 6; ++i) {
    CHECK(bits[i] == philox_bits(9, 77, 5, i));
  }
}

TEST_CASE("Dropout shares its mask where the noise shape is one") {
  const Attrs attrs = {
      {"rate", 0.5}, {"seed", int64_t{9}}, {"stream", int64_t{77}}, {"noise_shape", Shape{2, 1}}};
  const List y =
      result_of("dropout", {{{2, 3}, {1, 1, 1, 1, 1, 1}}, {{}, {5}, DType::kInt64}}, attrs);
  for (uint64_t i = 0; i < 6; ++i) {
    CHECK(y[i] == (philox_bits(9, 77, 5, i / 3) < 0x80000000u ? 0 : 2));
  }
}

// --- optimizers
// ---------------------------------------------------------------------------------------

const List kGradients[] = {{.1, -.2, .3, .4}, {.3, .1, -.1, .2}, {-.2, .4, .05, -.3}};

// Three steps from the same start in float32; `scale(t)` turns the rate into the operand of step t.
std::vector<List> three_steps(Attrs attrs, int num_slots, double rate, double decay = 0,
                              double (*scale)(double t) = nullptr) {
  const Shape shape = {2, 2};
  std::vector<List> state(1 + num_slots, List(4, 0.0));
  state[0] = {1, -2, 3, .5};
  std::vector<List> weights;
  if (decay != 0) {
    attrs["has_decay"] = int64_t{1};
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<Operand> operands = {{shape, state[0], DType::kFloat32},
                                     {shape, kGradients[step], DType::kFloat32}};
    for (int slot = 1; slot <= num_slots; ++slot) {
      operands.push_back({shape, state[slot], DType::kFloat32});
    }
    operands.push_back({{}, {rate * (scale != nullptr ? scale(step + 1) : 1)}, DType::kFloat32});
    if (decay != 0) {
      operands.push_back({{}, {decay * rate}, DType::kFloat32});
    }
    const std::vector<HostTensor> results = results_of("optimizer_update", operands, attrs);
    for (size_t i = 0; i < results.size(); ++i) {
      state[i] = list_of(results[i]);
    }
    weights.push_back(state[0]);
  }
  return weights;
}

void check_near(const std::vector<List>& found, const std::vector<List>& expected) {
  for (size_t step = 0; step < expected.size(); ++step) {
    for (size_t i = 0; i < expected[step].size(); ++i) {
      // Two float32 roundings of the larger weights.
      const double tolerance = 2.4e-7 * std::max(1.0, std::abs(expected[step][i]));
      CHECK_MESSAGE(std::abs(found[step][i] - expected[step][i]) < tolerance, "step ", step + 1,
                    ": ", found[step][i], " for ", expected[step][i]);
    }
  }
}

double adam_scale(double t) {
  return std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
}

// Expected numbers: Keras 3.16, float32.
TEST_CASE("Gradient descent takes the steps of Keras") {
  check_near(three_steps({{"kind", std::string("sgd")}}, 0, .01),
             {{.999, -1.998, 2.997, .496},
              {.996, -1.9990001, 2.9979999, .494},
              {.998, -2.003, 2.9974999, .497}});
  check_near(three_steps({{"kind", std::string("sgd")}}, 0, .1, .1),
             {{.98, -1.96, 2.9400001, .455},
              {.9402, -1.9504, 2.9205999, .43045},
              {.950798, -1.970896, 2.8863938, .4561455}});
}

TEST_CASE("Momentum takes the steps of Keras") {
  Attrs attrs = {{"kind", std::string("momentum")}, {"momentum", 0.9}, {"nesterov", int64_t{0}}};
  check_near(three_steps(attrs, 1, .1), {{.99, -1.98, 2.97, .46},
                                         {.951, -1.972, 2.9530001, .404},
                                         {.9359, -2.0048001, 2.9327002, .3836}});
  attrs["nesterov"] = int64_t{1};
  check_near(three_steps(attrs, 1, .1), {{.981, -1.962, 2.9430001, .424},
                                         {.9159, -1.9648, 2.9377, .3536},
                                         {.92231, -2.0343201, 2.9144301, .36524}});
}

TEST_CASE("Adam and AdamW take the steps of Keras") {
  for (int64_t amsgrad : {0, 1}) {
    const Attrs attrs = {{"kind", std::string("adam")},
                         {"beta_1", 0.9},
                         {"beta_2", 0.999},
                         {"epsilon", 1e-7},
                         {"amsgrad", amsgrad}};
    const int num_slots = 2 + static_cast<int>(amsgrad);
    check_near(three_steps(attrs, num_slots, .01, 0, adam_scale),
               {{.9900004, -1.9900002, 2.9900002, .4900002},
                {.9808227, -1.987337, 2.9859982, .4806785},
                {.9782437, -1.9919102, 2.9819438, .4782571}});
  }
  const Attrs attrs = {{"kind", std::string("adam")},
                       {"beta_1", 0.9},
                       {"beta_2", 0.999},
                       {"epsilon", 1e-7},
                       {"amsgrad", int64_t{0}}};
  check_near(three_steps(attrs, 2, .01, .004, adam_scale),
             {{.9899604, -1.9899203, 2.9898803, .4899802},
              {.9807432, -1.9871774, 2.9857585, .4806389},
              {.9781249, -1.9916711, 2.9815848, .4781983}});
}

TEST_CASE("RMSprop takes the steps of Keras") {
  Attrs attrs = {{"kind", std::string("rmsprop")},
                 {"rho", 0.9},
                 {"epsilon", 1e-7},
                 {"momentum", 0.0},
                 {"centered", int64_t{0}}};
  check_near(three_steps(attrs, 1, .01), {{.9683788, -1.9683776, 2.9683774, .4683773},
                                          {.9382278, -1.9831216, 2.9788601, .4536332},
                                          {.9558299, -2.0113072, 2.9734178, .4723978}});
  attrs["momentum"] = 0.9;
  attrs["centered"] = int64_t{1};
  check_near(three_steps(attrs, 3, .01), {{.9666685, -1.9666672, 2.9666669, .4666668},
                                          {.9038967, -1.9515153, 2.9473205, .4204789},
                                          {.8651618, -1.9668487, 2.9243283, .397829}});
}

}  // namespace
}  // namespace meshtrain
