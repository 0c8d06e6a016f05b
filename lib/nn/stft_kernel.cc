#include "nn/stft_kernel.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace meshtrain {
namespace {

constexpr double kPi = 3.141592653589793;

// The series of cos (first = 0) or sin (first = 1) for 0 <= x <= pi / 4, to the last bit but one.
double series(double x, int first) {
  double term = first == 0 ? 1 : x, sum = 0;
  for (int n = first; n < 20; n += 2) {
    sum += term;
    term *= -x * x / static_cast<double>((n + 1) * (n + 2));
  }
  return sum;
}

// cos(2 pi k / n), n > 0: exact in k, which is reduced to an eighth of a turn.
double cos_turns(int64_t k, int64_t n) {
  k = ((k % n) + n) % n;
  k = std::min(k, n - k);  // half a turn
  const bool negative = 4 * k > n;
  if (negative) {  // doubled, so that half of an odd n is whole
    k = n - 2 * k;
  } else {
    k = 2 * k;
  }
  n = 2 * n;  // now cos(2 pi k / n), at most a quarter
  const double value =
      8 * k <= n ? series(2 * kPi * static_cast<double>(k) / static_cast<double>(n), 0)
                 : series(2 * kPi * static_cast<double>(n - 4 * k) / static_cast<double>(4 * n), 1);
  return negative ? -value : value;
}

double sin_turns(int64_t k, int64_t n) {
  return cos_turns(4 * k - n, 4 * n);
}

// Sums of cosines, their factors: SciPy's general_cosine.
struct CosineSum {
  std::string_view name;
  std::vector<double> factors;
};
const std::vector<CosineSum>& cosine_sums() {
  static const std::vector<CosineSum> kSums = {
      {"boxcar", {1}},
      {"hann", {0.5, 0.5}},
      {"hamming", {0.54, 0.46}},
      {"blackman", {0.42, 0.5, 0.08}},
      {"nuttall", {0.3635819, 0.4891775, 0.1365995, 0.0106411}},
      {"blackmanharris", {0.35875, 0.48829, 0.14128, 0.01168}},
      {"flattop", {0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368}}};
  return kSums;
}

// Value `i` of the symmetric window of `length` > 1 values.
double symmetric(std::string_view name, int64_t i, int64_t length) {
  const int64_t mirrored = std::min(i, length - 1 - i);
  if (name == "bartlett") {
    return 2 * static_cast<double>(mirrored) / static_cast<double>(length - 1);
  }
  if (name == "triang") {
    return length % 2 == 0
               ? static_cast<double>(2 * mirrored + 1) / static_cast<double>(length)
               : 2 * static_cast<double>(mirrored + 1) / static_cast<double>(length + 1);
  }
  if (name == "cosine") {
    return sin_turns(2 * i + 1, 4 * length);
  }
  const auto& sums = cosine_sums();
  const auto sum = std::find_if(sums.begin(), sums.end(),
                                [&](const CosineSum& known) { return known.name == name; });
  MESHTRAIN_CHECK(sum != sums.end(), "there is no window {}", name);
  double out = 0;
  for (size_t k = 0; k < sum->factors.size(); ++k) {
    const double term = sum->factors[k] * cos_turns(static_cast<int64_t>(k) * i, length - 1);
    out += k % 2 == 0 ? term : -term;
  }
  return out;
}

double norm(const std::vector<double>& window, const std::string& scaling) {
  double sum = 0;
  for (const double value : window) {
    sum += scaling == "density" ? value * value : std::abs(value);
  }
  return scaling == "density" ? std::sqrt(sum) : sum;
}

// scipy.signal.get_window(name, length, fftbins=periodic) with its default arguments; length >= 1.
std::vector<double> window_values(std::string_view name, int64_t length, bool periodic) {
  std::vector<double> out(static_cast<size_t>(length), 1);
  const int64_t whole = length + (periodic ? 1 : 0);  // of which the last is left out
  for (int64_t i = 0; i < length && length > 1; ++i) {
    out[static_cast<size_t>(i)] = symmetric(name, i, whole);
  }
  return out;
}

}  // namespace

std::vector<double> stft_kernel(const StftKernel& kernel, int64_t length, int64_t bands) {
  std::vector<double> window(static_cast<size_t>(length), 1);
  double scale = 1;
  if (!kernel.window.empty()) {
    window = window_values(kernel.window, length, kernel.periodic);
    scale = kernel.scaling.empty() ? 1 : norm(window, kernel.scaling);
  }
  std::vector<double> out;
  out.reserve(static_cast<size_t>(length * bands));
  const int64_t turn = 2 * (bands - 1);
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t f = 0; f < bands; ++f) {
      const double wave = kernel.imaginary ? -sin_turns(t * f, turn) : cos_turns(t * f, turn);
      out.push_back(wave * window[static_cast<size_t>(t)] / scale);
    }
  }
  return out;
}

}  // namespace meshtrain
