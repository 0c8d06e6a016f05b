#include "base/normal.h"

#include <bit>
#include <cmath>

#include "base/error.h"

namespace meshtrain {
namespace {

// Coefficients of Wichura's three rational approximations, highest power first.
constexpr double kCentreNum[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                 6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                 1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr double kCentreDen[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                 3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                 4.2313330701600911252e+1, 1.0};
constexpr double kMiddleNum[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                 2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                 4.63033784615654529590e+0, 1.42343711074968357734e+0};
constexpr double kMiddleDen[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                 1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                 2.05319162663775882187e+0, 1.0};
constexpr double kTailNum[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                               1.24266094738807843860e-3, 2.65321895265761230930e-2,
                               2.96560571828504891230e-1, 1.78482653991729133580e+0,
                               5.46378491116411436990e+0, 6.65790464350110377720e+0};
constexpr double kTailDen[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                               1.84631831751005468180e-5,  7.86869131145613259100e-4,
                               1.48753612908506148525e-2,  1.36929880922735805310e-1,
                               5.99832206555887937690e-1,  1.0};

template <size_t N>
double horner(const double (&coefficients)[N], double x) {
  double sum = coefficients[0];
  for (size_t i = 1; i < N; ++i) {
    sum = sum * x + coefficients[i];
  }
  return sum;
}

}  // namespace

double portable_log(double x) {
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <=
  // 0.1716, where the first left-out term s^24 / 25 is below 2^-64 of the sum.
  constexpr double kSqrt2 = 1.41421356237309504880;
  constexpr double kLn2High = 0x1.62e42fefa38p-1;  // 42 bits, so that k * kLn2High is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int k = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > kSqrt2) {
    m *= 0.5;
    ++k;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 0;
  for (int i = 23; i >= 3; i -= 2) {
    series = (series + 1.0 / i) * s2;
  }
  return k * kLn2High + (2.0 * s + (2.0 * s * series + k * kLn2Low));
}

double normal_quantile(double p) {
  MESHTRAIN_CHECK(p > 0.0 && p < 1.0, "p = {}", p);
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * horner(kCentreNum, r) / horner(kCentreDen, r);
  }
  const double tail = q < 0 ? p : 1.0 - p;
  double r = std::sqrt(-portable_log(tail));
  double x;
  if (r <= 5.0) {
    r -= 1.6;
    x = horner(kMiddleNum, r) / horner(kMiddleDen, r);
  } else {
    r -= 5.0;
    x = horner(kTailNum, r) / horner(kTailDen, r);
  }
  return q < 0 ? -x : x;
}

void fill_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t begin,
                 std::span<double> out) {
  size_t i = 0;
  if (begin % 2 == 1 && !out.empty()) {
    out[i++] = philox_normal(seed, stream, step, begin);
  }
  for (; i < out.size(); i += 2) {
    const uint64_t block = (begin + i) / 2;
    const PhiloxBlock bits = philox4x32_10(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, step}, seed);
    out[i] = normal_from_bits(bits[0], bits[1]);
    if (i + 1 < out.size()) {
      out[i + 1] = normal_from_bits(bits[2], bits[3]);
    }
  }
}

}  // namespace meshtrain
