// Distributions and fans, as in Keras 3 initializers/random_initializers.py.
#include <algorithm>
#include <cmath>

#include "config/catalogue.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

ConfigValue initializer(const std::string& name, const NamedArgs& args = {}) {
  return Arg(make_object(Category::kInitializer, name, args));
}

std::vector<double> draw(const ConfigValue& value, const Shape& shape, uint64_t seed = 3,
                         DType dtype = DType::kFloat32, const char* path = "d1/kernel") {
  return numbers(make_initializer(value)(shape, dtype, seed, path));
}

struct Moments {
  double mean, stddev, min, max;
};

Moments moments(const std::vector<double>& x) {
  double sum = 0, squares = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
  }
  const double n = static_cast<double>(x.size());
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean), *std::min_element(x.begin(), x.end()),
          *std::max_element(x.begin(), x.end())};
}

double limit_of(const Shape& shape, std::optional<Fans> fans = std::nullopt) {
  const HostTensor w =
      make_initializer(initializer("glorot_uniform"), fans)(shape, DType::kFloat64, 1, "k");
  double limit = 0;
  for (const double v : numbers(w)) {
    limit = std::max(limit, std::abs(v));
  }
  return limit;
}

TEST_CASE("constant initializers") {
  check_near(draw(initializer("zeros"), {2}), {0, 0});
  check_near(draw(initializer("ones"), {2}), {1, 1});
  check_near(draw(initializer("Constant", {{"value", 0.25}}), {2}), {.25, .25});
  check_near(draw(initializer("identity", {{"gain", 2.0}}), {2, 3}), {2, 0, 0, 0, 2, 0});
  check_near(draw(Arg("zeros"), {1}), {0});
  check_near(draw(Arg(nullptr), {1}), {0});
}

TEST_CASE("initial values depend on seed and path and on nothing else") {
  const ConfigValue uniform = initializer("uniform");
  const std::vector<double> a = draw(uniform, {10, 3});
  CHECK(a == draw(uniform, {10, 3}));
  CHECK(a == draw(uniform, {30}));
  CHECK(a != draw(uniform, {10, 3}, 4));
  CHECK(a != draw(uniform, {10, 3}, 3, DType::kFloat32, "d2/kernel"));
}

TEST_CASE("an initializer's own seed replaces that of the run") {
  const ConfigValue own = initializer("RandomNormal", {{"seed", 5}});
  CHECK(draw(own, {8}, 1) == draw(own, {8}, 2));
  CHECK(draw(own, {8}, 1) == draw(initializer("RandomNormal"), {8}, 5));
}

TEST_CASE("float32 values are the float64 values rounded") {
  const ConfigValue normal = initializer("normal");
  const std::vector<double> wide = draw(normal, {64}, 3, DType::kFloat64);
  const std::vector<double> narrow = draw(normal, {64});
  for (size_t i = 0; i < wide.size(); ++i) {
    CHECK(narrow[i] == static_cast<double>(static_cast<float>(wide[i])));
  }
}

TEST_CASE("normal and uniform draws have their moments") {
  const Moments normal = moments(draw(initializer("RandomNormal", {{"mean", 1.0}}), {200, 200}));
  CHECK(normal.mean == doctest::Approx(1).epsilon(0.002));
  CHECK(normal.stddev == doctest::Approx(0.05).epsilon(0.02));
  const Moments uniform = moments(draw(initializer("uniform"), {200, 200}));
  CHECK(uniform.stddev == doctest::Approx(0.1 / std::sqrt(12)).epsilon(0.02));
  CHECK(uniform.min >= -0.05);
  CHECK(uniform.max < 0.05);
}

TEST_CASE("truncated normals end at two deviations and VarianceScaling corrects for it") {
  const Moments plain = moments(draw(initializer("TruncatedNormal"), {200, 200}));
  CHECK(plain.max <= 0.1);
  CHECK(plain.min >= -0.1);
  CHECK(plain.stddev == doctest::Approx(0.05 * 0.87962566).epsilon(0.02));
  // he_normal with fan_in 100: wanted deviation sqrt(2 / 100), limit 2 sigma / 0.8796.
  const Moments he = moments(draw(initializer("he_normal"), {100, 400}));
  CHECK(he.stddev == doctest::Approx(0.1414).epsilon(0.02));
  CHECK(he.max <= 0.32156);
  CHECK(he.max > 0.31);
}

TEST_CASE("fans follow the stored shape") {
  // glorot_uniform's limit is sqrt(6 / (fan_in + fan_out)); many draws come near it.
  const struct {
    Shape shape;
    double fan_sum;
  } cases[] = {{{64, 40}, 104}, {{3, 3, 8, 16}, 216}, {{3, 8, 16}, 72}, {{300}, 600}};
  for (const auto& c : cases) {
    CAPTURE(shape_string(c.shape));
    const double wanted = std::sqrt(6 / c.fan_sum);
    const double limit = limit_of(c.shape);
    CHECK(limit <= wanted);
    CHECK(limit > 0.98 * wanted);
  }
  const double given = limit_of({8, 2, 4}, Fans{8, 8});
  CHECK(given <= 0.612373);
  CHECK(given > 0.58);
}

TEST_CASE("the named families are VarianceScaling") {
  const auto scaled = [](double scale, const char* mode, const char* distribution) {
    return initializer("VarianceScaling",
                       {{"scale", scale}, {"mode", mode}, {"distribution", distribution}});
  };
  const Shape shape = {6, 10};
  CHECK(draw(initializer("glorot_uniform"), shape) == draw(scaled(1, "fan_avg", "uniform"), shape));
  CHECK(draw(initializer("glorot_normal"), shape) ==
        draw(scaled(1, "fan_avg", "truncated_normal"), shape));
  CHECK(draw(initializer("he_uniform"), shape) == draw(scaled(2, "fan_in", "uniform"), shape));
  CHECK(draw(initializer("he_normal"), shape) ==
        draw(scaled(2, "fan_in", "truncated_normal"), shape));
  CHECK(draw(initializer("lecun_uniform"), shape) == draw(scaled(1, "fan_in", "uniform"), shape));
  CHECK(draw(initializer("lecun_normal"), shape) ==
        draw(scaled(1, "fan_in", "truncated_normal"), shape));
}

TEST_CASE("orthogonal matrices have orthonormal columns or rows") {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{2, 3, 4}, Shape{4, 4}, Shape{1, 1}}) {
    CAPTURE(shape_string(shape));
    const std::vector<double> q = draw(initializer("orthogonal"), shape, 3, DType::kFloat64);
    const int64_t cols = shape.back();
    const int64_t rows = static_cast<int64_t>(q.size()) / cols;
    const int64_t k = std::min(rows, cols);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        double dot = 0;
        for (int64_t n = 0; n < std::max(rows, cols); ++n) {
          dot +=
              rows >= cols ? q[n * cols + i] * q[n * cols + j] : q[i * cols + n] * q[j * cols + n];
        }
        CHECK(dot == doctest::Approx(i == j ? 1 : 0));
      }
    }
  }
}

TEST_CASE("every initializer of the catalogue draws") {
  for (const ClassSpec& spec : classes(Category::kInitializer)) {
    CAPTURE(spec.name);
    const Shape shape = spec.name == "STFT" ? Shape{2, 1, 2} : Shape{2, 2};
    CHECK(draw(initializer(spec.name), shape).size() == 4);
  }
}

TEST_CASE("matrix initializers refuse other shapes") {
  CHECK_THROWS_AS(draw(initializer("identity"), {2, 2, 2}), ConfigError);
  CHECK_THROWS_AS(draw(initializer("orthogonal"), {4}), ConfigError);
  CHECK_THROWS_AS(draw(initializer("stft"), {4, 4}), ConfigError);
  CHECK_THROWS_AS(draw(initializer("stft"), {4, 2, 3}), ConfigError);
  CHECK_THROWS_AS(draw(initializer("stft"), {4, 1, 1}), ConfigError);
}

TEST_CASE("initial bits are pinned") {
  // A change here changes every user's initial weights.
  const auto first = [](const ConfigValue& value, const Shape& shape) {
    return draw(value, shape, 1337, DType::kFloat64);
  };
  CHECK(first(initializer("uniform"), {3}) ==
        std::vector{-0.024373973898326108, -0.037549651080501956, -0.019718754198381927});
  CHECK(first(initializer("normal"), {3}) ==
        std::vector{-0.03274590220428771, -0.05763823483083278, -0.025816430596201468});
  CHECK(first(initializer("TruncatedNormal"), {3}) ==
        std::vector{-0.031042299001978357, -0.05366044938177692, -0.024539916845420673});
  CHECK(
      first(initializer("orthogonal"), {2, 2}) ==
      std::vector{-0.7852977762617173, -0.619118246055147, -0.619118246055147, 0.7852977762617175});
}

}  // namespace
}  // namespace meshtrain::testing
