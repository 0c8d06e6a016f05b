#include "base/normal.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace meshtrain {
namespace {

TEST_CASE("normal_quantile: the check values of the paper") {
  CHECK(normal_quantile(0.25) == doctest::Approx(-0.6744897501960817).epsilon(1e-15));
  CHECK(normal_quantile(0.001) == doctest::Approx(-3.090232306167814).epsilon(1e-15));
  CHECK(normal_quantile(1e-20) == doctest::Approx(-9.262340089798408).epsilon(1e-15));
  CHECK(normal_quantile(0.5) == 0.0);
  CHECK_THROWS_AS(normal_quantile(0.0), InternalError);
  CHECK_THROWS_AS(normal_quantile(1.0), InternalError);
}

TEST_CASE("normal_quantile: is the inverse of the distribution function of the C library") {
  for (int i = 1; i < 20000; ++i) {
    const double p = i / 20000.0;
    const double back = 0.5 * std::erfc(-normal_quantile(p) / std::sqrt(2.0));
    CHECK(std::abs(back - p) < 1e-14 * p + 1e-16);
  }
}

TEST_CASE("portable_log: agrees with the C library") {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    CHECK(std::abs(portable_log(x) - std::log(x)) <= 1e-15 * std::abs(std::log(x)));
  }
  CHECK(portable_log(1.0) == 0.0);
}

// These bits are a promise: a change of the random numbers changes every run's initial weights.
TEST_CASE("philox_normal: the same bits on every machine") {
  CHECK(philox_normal(1, 2, 3, 0) == -0x1.ad480461ac897p+0);
  CHECK(philox_normal(1, 2, 3, 1) == -0x1.e5c9b0ff652cfp-7);
  CHECK(philox_normal(1, 2, 3, 2) == 0x1.25459472bebdp+0);
  CHECK(philox_normal(1, 2, 3, 7) == 0x1.6bdb1274379acp-1);
  CHECK(normal_from_bits(0, 0) == -0x1.06b48528cea51p+3);
  CHECK(normal_from_bits(~0u, ~0u) == 0x1.06b48528cea51p+3);
}

TEST_CASE("fill_normal: equals one number at a time from any begin") {
  for (const uint64_t begin : {0u, 1u, 2u, 7u}) {
    for (const size_t count : {0u, 1u, 2u, 5u}) {
      std::vector<double> out(count);
      fill_normal(9, 8, 7, begin, out);
      for (size_t i = 0; i < count; ++i) {
        CHECK(out[i] == philox_normal(9, 8, 7, begin + i));
      }
    }
  }
}

TEST_CASE("fill_normal: mean 0 and variance 1") {
  std::vector<double> out(200000);
  fill_normal(42, 0, 0, 0, out);
  double sum = 0;
  double squares = 0;
  for (const double x : out) {
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / 200000) < 0.01);
  CHECK(std::abs(squares / 200000 - 1) < 0.02);
}

}  // namespace
}  // namespace meshtrain
