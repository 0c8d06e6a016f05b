// Values computed by Keras.
#include <cmath>
#include <limits>

#include "config/catalogue.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

const HostTensor& points() {
  static const HostTensor kPoints = floats({7}, {-3, -1, -0.5, 0, 0.5, 1, 3});
  return kPoints;
}

std::vector<double> activated(const Arg& activation, const HostTensor& x = points()) {
  return run_one({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
    return add_activation(b, activation, in[0]);
  });
}

// d sum(f(x)) / dx
std::vector<double> gradient(const Arg& activation, const HostTensor& x) {
  return run_one({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
    const ValueId loss = b.reduce_sum_all(add_activation(b, activation, in[0]));
    return gradients(b, loss, in)[0];
  });
}

Arg with(const char* name, const NamedArgs& args) {
  return make_object(Category::kActivation, name, args);
}

TEST_CASE("activations have Keras' values") {
  const struct {
    Arg activation;
    std::vector<double> expected;
  } cases[] = {
      {"linear", {-3, -1, -0.5, 0, 0.5, 1, 3}},
      {nullptr, {-3, -1, -0.5, 0, 0.5, 1, 3}},
      {"relu", {0, 0, 0, 0, 0.5, 1, 3}},
      {with("relu", {{"negative_slope", 0.1}, {"max_value", 2.0}, {"threshold", 0.6}}),
       {-.36, -.16, -.11, -.06, -.01, 1, 2}},
      {"leaky_relu", {-.6, -.2, -.1, 0, .5, 1, 3}},
      {"relu6", {0, 0, 0, 0, 0.5, 1, 3}},
      {"elu", {-.950213, -.632121, -.393469, 0, .5, 1, 3}},
      {"celu", {-.950213, -.632121, -.393469, 0, .5, 1, 3}},
      {"selu", {-1.670569, -1.111331, -.691758, 0, .525351, 1.050701, 3.152103}},
      {"softplus", {.048587, .313262, .474077, .693147, .974077, 1.313262, 3.048587}},
      {"softsign", {-.75, -.5, -.333333, 0, .333333, .5, .75}},
      {"squareplus", {.302776, .618034, .780776, 1, 1.280776, 1.618034, 3.302776}},
      {"soft_shrink", {-2.5, -.5, 0, 0, 0, .5, 2.5}},
      {"hard_shrink", {-3, -1, 0, 0, 0, 1, 3}},
      {"tanh_shrink", {-2.004945, -.238406, -.037883, 0, .037883, .238406, 2.004945}},
      {"sparse_plus", {0, 0, .0625, .25, .5625, 1, 3}},
      {"silu", {-.142278, -.268941, -.18877, 0, .31123, .731059, 2.857722}},
      {"swish", {-.142278, -.268941, -.18877, 0, .31123, .731059, 2.857722}},
      {"gelu", {-.0040497, -.1586553, -.1542688, 0, .3457312, .8413447, 2.9959503}},
      {with("gelu", {{"approximate", true}}),
       {-.003637, -.158808, -.154286, 0, .345714, .841192, 2.996363}},
      {"exponential", {.049787, .367879, .606531, 1, 1.648721, 2.718282, 20.085537}},
      {"tanh", {-.995055, -.761594, -.462117, 0, .462117, .761594, .995055}},
      {"sigmoid", {.047426, .268941, .377541, .5, .622459, .731059, .952574}},
      {"sparse_sigmoid", {0, 0, .25, .5, .75, 1, 1}},
      {"hard_sigmoid", {0, .333333, .416667, .5, .583333, .666667, 1}},
      {"hard_silu", {0, -.333333, -.208333, 0, .291667, .666667, 3}},
      {"hard_swish", {0, -.333333, -.208333, 0, .291667, .666667, 3}},
      {"hard_tanh", {-1, -1, -.5, 0, .5, 1, 1}},
      {"mish", {-.145647, -.303401, -.220744, 0, .375245, .865098, 2.986535}},
      {"log_sigmoid", {-3.048587, -1.313262, -.974077, -.693147, -.474077, -.313262, -.048587}},
      {"softmax", {.00188, .013894, .022908, .037769, .062271, .102667, .758611}},
      {"sparsemax", {0, 0, 0, 0, 0, 0, 1}},
      {with("threshold", {{"threshold", 0.5}, {"default_value", 9.0}}), {9, 9, 9, 9, 9, 1, 3}},
  };
  for (const auto& c : cases) {
    CAPTURE(c.activation.is_string() ? c.activation.string() : "(object)");
    check_near(activated(c.activation), c.expected, 1.5e-6);
  }
}

TEST_CASE("log_softmax is the logarithm of softmax and does not overflow") {
  const HostTensor x = floats({2, 3}, {1000, 999, 998, -1000, 0, 1});
  const std::vector<double> p = activated("softmax", x);
  check_near({p[0] + p[1] + p[2], p[3] + p[4] + p[5]}, {1, 1});
  const std::vector<double> log_p = activated("log_softmax", x);
  check_near({log_p[0], log_p[1]}, {-.4076059, -1.4076059});
  check_near({log_p[3]}, {-1001.3132617}, 1e-3);
}

TEST_CASE("softmax of many equal float16 scores has equal shares") {
  const std::vector<double> scores(30000, 0.3);
  const HostTensor x = floats({1, 30000}, scores).cast(DType::kFloat16);
  CHECK(activated("softmax", x)[7] == doctest::Approx(1.0 / 30000).epsilon(2e-3));
  CHECK(activated("log_softmax", x)[7] == doctest::Approx(-std::log(30000)).epsilon(1e-3));
}

TEST_CASE("activations that Keras makes of arithmetic keep NaN") {
  const HostTensor x = floats({1}, {NAN});
  for (const char* name : {"relu", "relu6", "hard_sigmoid", "hard_silu", "hard_tanh", "sparse_plus",
                           "sparse_sigmoid", "leaky_relu", "elu", "sigmoid", "gelu"}) {
    CAPTURE(name);
    CHECK(std::isnan(activated(name, x)[0]));
  }
}

TEST_CASE("sparsemax projects a row onto the simplex") {
  check_near(activated("sparsemax", floats({2, 3}, {0.1, 0.2, 0.3, 1.0, 0.8, -2})),
             {.233333, .333333, .433333, .6, .4, 0});
}

TEST_CASE("glu gates the first half by the second") {
  check_near(activated("glu", floats({1, 4}, {1, 2, 0, 100})), {.5, 2});
}

TEST_CASE("gradients take JAX's side at the corners") {
  const HostTensor zero = floats({3}, {-1, 0, 1});
  check_near(gradient("relu", zero), {0, 0, 1});
  check_near(gradient("leaky_relu", zero), {.2, 1, 1});
  check_near(gradient("elu", zero), {std::exp(-1.0), 1, 1});
  check_near(gradient("relu6", floats({3}, {0, 5, 6})), {0, 1, 0});
  check_near(gradient("sparse_sigmoid", floats({3}, {-1, 0, 1})), {.25, .5, .25});
  check_near(gradient("hard_tanh", floats({3}, {-1, 0, 1})), {1, 1, 1});
}

TEST_CASE("gradients are finite far from zero") {
  const HostTensor far = floats({2}, {-300, 300});
  for (const char* name : {"elu", "celu", "selu", "softplus", "silu", "gelu", "mish", "log_sigmoid",
                           "tanh", "sigmoid", "softmax", "log_softmax", "softsign"}) {
    CAPTURE(name);
    for (const double g : gradient(name, far)) {
      CHECK(std::isfinite(g));
    }
  }
}

TEST_CASE("gradients agree with differences") {
  const std::vector<double> at = {-2.3, -0.7, -0.2, 0.3, 0.8, 1.7};
  constexpr double kStep = 1e-5;
  for (const ClassSpec& spec : classes(Category::kActivation)) {
    CAPTURE(spec.name);
    const Arg activation = spec.name == "threshold"
                               ? with("threshold", {{"threshold", 0.1}, {"default_value", 1.0}})
                               : Arg(spec.name.c_str());
    // Weighted, so that functions whose outputs sum to a constant are seen too.
    const auto weighted_sum = [&](Builder& b, ValueId x) {
      const ValueId y = add_activation(b, activation, x);
      const ValueId weight = b.iota(b.shape(y), 0, DType::kFloat64);
      return b.reduce_sum_all(b.mul(y, b.add(weight, 1.0)));
    };
    const HostTensor x = tensor_of<double>(DType::kFloat64, {6}, at);
    const auto g = run_one({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
      return gradients(b, weighted_sum(b, in[0]), in)[0];
    });
    for (size_t i = 0; i < at.size(); ++i) {
      CAPTURE(at[i]);
      double values[2];
      for (const int side : {0, 1}) {
        HostTensor moved = x.clone();
        moved.set(static_cast<int64_t>(i), at[i] + (side == 0 ? -kStep : kStep));
        values[side] = run_one({&moved}, [&](Builder& b, const std::vector<ValueId>& in) {
          return weighted_sum(b, in[0]);
        })[0];
      }
      CHECK(g[i] == doctest::Approx((values[1] - values[0]) / (2 * kStep)).epsilon(1e-6));
    }
  }
}

TEST_CASE("an unknown activation is an error that names it") {
  CHECK_THROWS_WITH_AS(activated("rellu"), doctest::Contains("rellu"), ConfigError);
}

}  // namespace
}  // namespace meshtrain::testing
