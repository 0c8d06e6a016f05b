// The inner loops on every instruction set level that this processor has.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/kernel_table.h"
#include "base/philox.h"
#include "support/splitmix.h"
#include "tensor/host_tensor.h"

namespace meshtrain::cpu {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kSizes[] = {1, 7, 13, 16, 31, 64, 1000};

template <class T>
std::vector<T> numbers(int64_t n, uint64_t seed) {
  std::vector<T> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<T>(test::splitmix_signed(seed, static_cast<uint64_t>(i), 2.0F)));
  }
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void check_against_double(ElementOp op, int type, double (*want)(double), double tolerance,
                          bool positive) {
  for (int level = 0; level < num_kernel_levels(); ++level) {
    const ElementLoop loop = kernels_of_level(level).element[static_cast<int>(op)][type];
    const bool exists = loop != nullptr;
    REQUIRE(exists);
    for (int64_t n : kSizes) {
      std::vector<T> x = numbers<T>(n, 5), y(static_cast<size_t>(n));
      for (T& value : x) {
        if (positive) {
          value = std::abs(value) + T{0.01F};
        }
      }
      loop(y.data(), x.data(), nullptr, nullptr, n, {});
      for (int64_t i = 0; i < n; ++i) {
        const double w = want(static_cast<double>(x[static_cast<size_t>(i)]));
        CHECK(std::abs(static_cast<double>(y[static_cast<size_t>(i)]) - w) <=
              tolerance * std::max(1.0, std::abs(w)));
      }
    }
  }
}

void check_function(ElementOp op, double (*want)(double), bool positive = false) {
  check_against_double<float>(op, kTypeF32, want, 1e-6, positive);
  check_against_double<double>(op, kTypeF64, want, 4e-15, positive);
}

TEST_CASE("vector math is within a few units of the last place on every level") {
  check_function(ElementOp::k_exp, [](double x) { return std::exp(x); });
  check_function(ElementOp::k_expm1, [](double x) { return std::expm1(x); });
  check_function(ElementOp::k_tanh, [](double x) { return std::tanh(x); });
  check_function(ElementOp::k_erf, [](double x) { return std::erf(x); });
  check_function(ElementOp::k_sin, [](double x) { return std::sin(x); });
  check_function(ElementOp::k_cos, [](double x) { return std::cos(x); });
  check_function(ElementOp::k_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
  check_function(ElementOp::k_softplus, [](double x) { return std::log1p(std::exp(x)); });
  check_function(ElementOp::k_gelu,
                 [](double x) { return x * std::erfc(-x * std::sqrt(0.5)) / 2; });
  check_function(ElementOp::k_gelu_tanh, [](double x) {
    return x * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x))) / 2;
  });
  check_function(ElementOp::k_silu, [](double x) { return x / (1 + std::exp(-x)); });
  check_function(
      ElementOp::k_log, [](double x) { return std::log(x); }, true);
  check_function(
      ElementOp::k_log1p, [](double x) { return std::log1p(x); }, true);
  check_function(
      ElementOp::k_rsqrt, [](double x) { return 1 / std::sqrt(x); }, true);
}

// Beside float64's loops, far beyond the last number that is not 0 or the input itself.
TEST_CASE("gelu and its gradients are finite and near float64's everywhere") {
  std::vector<float> x;
  std::vector<double> wide, ones;
  for (int i = -40000; i <= 40000; ++i) {
    x.push_back(static_cast<float>(i) * 5e-4F * (1 + static_cast<float>(std::abs(i)) * 1e-3F));
    wide.push_back(static_cast<double>(x.back()));
    ones.push_back(1);
  }
  const std::vector<float> one(x.size(), 1);
  const auto n = static_cast<int64_t>(x.size());
  for (int level = 0; level < num_kernel_levels(); ++level) {
    for (ElementOp op : {ElementOp::k_gelu, ElementOp::k_gelu_tanh, ElementOp::k_gelu_grad,
                         ElementOp::k_gelu_tanh_grad}) {
      const auto& loops = kernels_of_level(level).element[static_cast<int>(op)];
      std::vector<float> y(x.size());
      std::vector<double> exact(x.size());
      loops[kTypeF32](y.data(), x.data(), one.data(), nullptr, n, {});
      loops[kTypeF64](exact.data(), wide.data(), ones.data(), nullptr, n, {});
      double largest = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double error = std::abs(static_cast<double>(y[i]) - exact[i]);
        largest = std::max(largest, error / std::max(1.0, std::abs(exact[i])));
        CHECK_FALSE(std::isnan(error));
      }
      CHECK(largest < 1e-6);
    }
    for (ElementOp op : {ElementOp::k_gelu, ElementOp::k_gelu_tanh}) {
      float nan = std::nanf(""), out = 0;
      kernels_of_level(level).element[static_cast<int>(op)][kTypeF32](&out, &nan, nullptr, nullptr,
                                                                      1, {});
      CHECK(std::isnan(out));
    }
  }
}

TEST_CASE("a value has the same result wherever it stands") {
  for (int level = 0; level < num_kernel_levels(); ++level) {
    for (ElementOp op :
         {ElementOp::k_exp, ElementOp::k_tanh, ElementOp::k_sigmoid, ElementOp::k_log1p,
          ElementOp::k_softplus, ElementOp::k_rsqrt, ElementOp::k_square}) {
      const ElementLoop loop = kernels_of_level(level).element[static_cast<int>(op)][kTypeF32];
      for (float value : {0.3F, 1.7F, 0.001F}) {
        const std::vector<float> x(45, value);
        std::vector<float> y(45), one(1);
        loop(y.data(), x.data(), nullptr, nullptr, 45, {});
        loop(one.data(), x.data(), nullptr, nullptr, 1, {});
        CHECK(same_bits(y, std::vector<float>(45, one[0])));
      }
    }
  }
}

TEST_CASE("arithmetic and sums are bit for bit the same on every level") {
  const KernelTable& base = kernels_of_level(0);
  for (int level = 1; level < num_kernel_levels(); ++level) {
    const KernelTable& table = kernels_of_level(level);
    for (int64_t n : kSizes) {
      const std::vector<float> a = numbers<float>(n, 1), b = numbers<float>(n, 2);
      for (ElementOp op : {ElementOp::k_add, ElementOp::k_mul, ElementOp::k_div, ElementOp::k_max,
                           ElementOp::k_sqrt, ElementOp::k_floor, ElementOp::k_sign}) {
        std::vector<float> one(static_cast<size_t>(n)), two(static_cast<size_t>(n));
        const int index = static_cast<int>(op);
        base.element[index][kTypeF32](one.data(), a.data(), b.data(), nullptr, n, {});
        table.element[index][kTypeF32](two.data(), a.data(), b.data(), nullptr, n, {});
        CHECK(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) == 0);
      }
      for (int kind = 0; kind < static_cast<int>(Reduction::kCount); ++kind) {
        std::vector<float> one(1), two(1);
        base.reduce_rows[kind][kTypeF32](one.data(), a.data(), 1, n, n);
        table.reduce_rows[kind][kTypeF32](two.data(), a.data(), 1, n, n);
        CHECK(same_bits(one, two));
        const std::vector<float> m = numbers<float>(5 * n, 3);
        std::vector<float> c1(static_cast<size_t>(n)), c2(static_cast<size_t>(n));
        base.reduce_columns[kind][kTypeF32](c1.data(), m.data(), 5, n, n);
        table.reduce_columns[kind][kTypeF32](c2.data(), m.data(), 5, n, n);
        CHECK(same_bits(c1, c2));
      }
    }
  }
}

// Whole numbers, so that every order of adding gives one result: beside a plain loop, for every
// remainder of the blocks of rows and of the vectors of columns.
TEST_CASE("sums, maxima and minima of columns and rows are those of a plain loop") {
  constexpr int64_t kMost = 200;
  std::vector<float> x;
  for (int64_t i = 0; i < kMost * kMost; ++i)
    x.push_back(static_cast<float>(test::splitmix_below(7, static_cast<uint64_t>(i), 2001)) -
                1000.0F);
  const auto plain = [&](int kind, int64_t start, int64_t step, int64_t count) {
    float total = x[static_cast<size_t>(start)];
    for (int64_t i = 1; i < count; ++i) {
      const float next = x[static_cast<size_t>(start + i * step)];
      total = kind == static_cast<int>(Reduction::kSum)   ? total + next
              : kind == static_cast<int>(Reduction::kMax) ? std::max(total, next)
                                                          : std::min(total, next);
    }
    return total;
  };
  for (int level = 0; level < num_kernel_levels(); ++level) {
    const KernelTable& table = kernels_of_level(level);
    for (int kind = 0; kind < static_cast<int>(Reduction::kCount); ++kind) {
      for (int64_t rows = 1; rows <= kMost; ++rows) {
        constexpr int64_t columns = 83;  // four vectors, one, and three elements
        CAPTURE(level);
        CAPTURE(kind);
        CAPTURE(rows);
        std::vector<float> got(kMost), want;
        table.reduce_columns[kind][kTypeF32](got.data(), x.data(), rows, columns, kMost);
        for (int64_t c = 0; c < columns; ++c)
          want.push_back(plain(kind, c, kMost, rows));
        got.resize(want.size());
        CHECK(same_bits(got, want));
        want.clear();
        got.assign(kMost, 0);
        table.reduce_rows[kind][kTypeF32](got.data(), x.data(), kMost, rows, kMost);
        for (int64_t r = 0; r < kMost; ++r)
          want.push_back(plain(kind, r * kMost, 1, rows));
        CHECK(same_bits(got, want));
      }
    }
  }
}

// Every value of 16 bits becomes float32 and comes back; a float32 in the middle of two goes to the
// even one; as HostTensor converts, on every level and at every place of a loop.
TEST_CASE("16 bits widen and round as elements of tensors do on every level") {
  for (const auto& [dtype, type] :
       {std::pair(DType::kBFloat16, kTypeBF16), std::pair(DType::kFloat16, kTypeF16)}) {
    HostTensor all(dtype, {65536}), wide(DType::kFloat32, {65536}), back(dtype, {65536});
    for (int64_t i = 0; i < all.size(); ++i)
      all.data<uint16_t>()[i] = static_cast<uint16_t>(i);
    HostTensor numbers(DType::kFloat32, {4 * 65536});
    for (int64_t i = 0; i < numbers.size(); ++i) {
      const float value = static_cast<float>(all.at(i % 65536));
      const uint32_t middle = dtype == DType::kBFloat16 ? 0x8000 : 0x1000;
      const uint32_t change = std::array{0u, middle - 1, middle, middle + 1}[i / 65536];
      numbers.data<float>()[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(value) + change);
    }
    HostTensor rounded(dtype, numbers.shape());
    for (int level = 0; level < num_kernel_levels(); ++level) {
      const KernelTable& table = kernels_of_level(level);
      int64_t wrong = 0;
      for (int64_t begin : {0, 3}) {
        const auto n = all.size() - begin;
        table.cast[type][kTypeF32](wide.data<float>() + begin, all.data<uint16_t>() + begin,
                                   nullptr, nullptr, n, {});
        table.cast[kTypeF32][type](back.data<uint16_t>() + begin, wide.data<float>() + begin,
                                   nullptr, nullptr, n, {});
        for (int64_t i = begin; i < all.size(); ++i) {
          const bool is_nan = std::isnan(all.at(i));
          wrong += is_nan ? !std::isnan(wide.at(i)) || !std::isnan(back.at(i))
                          : wide.at(i) != all.at(i) || back.at(i) != all.at(i);
        }
      }
      table.cast[kTypeF32][type](rounded.data<uint16_t>(), numbers.data<float>(), nullptr, nullptr,
                                 numbers.size(), {});
      HostTensor one(dtype, {1});
      for (int64_t i = 0; i < numbers.size(); ++i) {
        one.set(0, numbers.at(i));
        wrong += std::isnan(one.at(0)) ? !std::isnan(rounded.at(i)) : one.at(0) != rounded.at(i);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("random bits are those of the reference wherever a run begins") {
  for (int level = 0; level < num_kernel_levels(); ++level) {
    for (uint64_t first : {uint64_t{0}, uint64_t{3}, uint64_t{77}, (uint64_t{1} << 34) - 9}) {
      for (int64_t n : kSizes) {
        std::vector<uint32_t> bits(static_cast<size_t>(n));
        kernels_of_level(level).random_bits(bits.data(), first, n, {0x123456789ABCDEF, 42, 7});
        for (int64_t i = 0; i < n; ++i) {
          CHECK(bits[static_cast<size_t>(i)] ==
                philox_bits(0x123456789ABCDEF, 42, 7, first + static_cast<uint64_t>(i)));
        }
      }
    }
  }
}

template <class T>
void check_product(int type, int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b,
                   double tolerance) {
  const std::vector<T> a = numbers<T>(m * k, 1), b = numbers<T>(k * n, 2);
  GemmArgs args{a.data(), b.data(), nullptr, m, n, k};
  args.a_row = transpose_a ? 1 : k;
  args.a_column = transpose_a ? m : 1;
  args.b_row = transpose_b ? 1 : n;
  args.b_column = transpose_b ? k : 1;
  args.c_row = n + 3;
  for (int level = 0; level < num_kernel_levels(); ++level) {
    const KernelTable& table = kernels_of_level(level);
    std::vector<T> c(static_cast<size_t>(m * args.c_row), T{99});
    std::vector<double> scratch(table.gemm_scratch_bytes / sizeof(double));
    args.c = c.data();
    table.gemm[type](args, scratch.data());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < args.c_row; ++j) {
        double want = 0;
        for (int64_t p = 0; p < k && j < n; ++p) {
          want += static_cast<double>(a[static_cast<size_t>(i * args.a_row + p * args.a_column)]) *
                  static_cast<double>(b[static_cast<size_t>(p * args.b_row + j * args.b_column)]);
        }
        if (j >= n)
          want = 99;  // beyond the row nothing is written
        CHECK(std::abs(static_cast<double>(c[static_cast<size_t>(i * args.c_row + j)]) - want) <=
              tolerance * static_cast<double>(k + 1));
      }
    }
  }
}

TEST_CASE("own matrix products of every remainder") {
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {7, 13, 5},
                                                                   {12, 32, 16},
                                                                   {13, 33, 257},
                                                                   {100, 17, 40},
                                                                   {5, 600, 3},
                                                                   {2, 3, 0}}) {
    for (bool ta : {false, true}) {
      for (bool tb : {false, true}) {
        check_product<float>(kTypeF32, m, n, k, ta, tb, 1e-5);
        check_product<double>(kTypeF64, m, n, k, ta, tb, 1e-14);
      }
    }
  }
}

TEST_CASE("integers wrap and divide without trapping") {
  for (int level = 0; level < num_kernel_levels(); ++level) {
    const KernelTable& table = kernels_of_level(level);
    const std::vector<int32_t> a = {7, -7, INT32_MIN, 5, INT32_MAX};
    const std::vector<int32_t> b = {2, 2, -1, 0, 1};
    std::vector<int32_t> y(5);
    table.element[static_cast<int>(ElementOp::k_div)][kTypeI32](y.data(), a.data(), b.data(),
                                                                nullptr, 5, {});
    CHECK(y == std::vector<int32_t>{3, -3, INT32_MIN, -1, INT32_MAX});
    table.element[static_cast<int>(ElementOp::k_add)][kTypeI32](y.data(), a.data(), b.data(),
                                                                nullptr, 5, {});
    CHECK(y[4] == INT32_MIN);
  }
}

// Whole numbers: sums are exact in every order.
template <class T>
std::vector<T> whole_numbers(int64_t n, uint64_t seed) {
  std::vector<T> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<T>(test::splitmix_below(seed, static_cast<uint64_t>(i), 9) - 4));
  }
  return out;
}

template <class T>
void check_panel(const KernelTable& table, int type, PanelKind kind, int64_t rows,
                 int64_t columns) {
  const int64_t width = table.panel_columns[type];  // of a line of b
  const bool lanes = kind == PanelKind::kLanes;
  const std::vector<int64_t> a_offsets = {3, 500}, b_offsets = {width, 0};
  PanelArgs args;
  args.num_runs = 2;
  args.length = 5;
  args.a_row = kind == PanelKind::kAdjacent ? 1 : 40;
  args.a_step = kind == PanelKind::kSteps ? 1 : 37;
  args.b_row = width;
  args.c_row = columns + 1;
  args.rows = rows;
  args.columns = columns;
  const std::vector<T> a = whole_numbers<T>(4000, 1), b = whole_numbers<T>(8 * width, 2);
  std::vector<T> c = whole_numbers<T>(rows * args.c_row, 3), want = c;
  for (const bool accumulate : {false, true}) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j) {
        T& sum = want[static_cast<size_t>(r * args.c_row + j)];
        sum = accumulate ? sum : T{0};
        for (size_t run = 0; run < 2; ++run) {
          for (int64_t k = 0; k < args.length; ++k) {
            const int64_t left =
                a_offsets[run] + r * args.a_row + k * args.a_step + (lanes ? j : 0);
            sum += a[static_cast<size_t>(left)] *
                   b[static_cast<size_t>(b_offsets[run] + k * width + j)];
          }
        }
      }
    }
    args.a = a.data();
    args.b = b.data();
    args.c = c.data();
    args.a_offsets = a_offsets.data();
    args.b_offsets = b_offsets.data();
    args.accumulate = accumulate;
    table.panel[static_cast<int>(kind)][type](args);
    CHECK(same_bits(c, want));
  }
}

TEST_CASE("panels are the sums of products on every level") {
  for (int level = 0; level < num_kernel_levels(); ++level) {
    const KernelTable& table = kernels_of_level(level);
    for (PanelKind kind : {PanelKind::kSteps, PanelKind::kAdjacent, PanelKind::kLanes}) {
      for (int64_t rows : {1, 2, 3, 5, 6, 7, 13, 14, 15, 29}) {
        for (int64_t columns = 1; columns <= table.panel_columns[kTypeF32]; columns += 3) {
          check_panel<float>(table, kTypeF32, kind, rows, columns);
        }
        for (int64_t columns = 1; columns <= table.panel_columns[kTypeF64]; ++columns) {
          check_panel<double>(table, kTypeF64, kind, rows, columns);
        }
      }
    }
  }
}

TEST_CASE("per-channel sums are the same on every level") {
  for (int64_t channels : {1, 3, 8, 12, 24, 64, 100}) {
    const int64_t rows = 203;
    const std::vector<float> u = numbers<float>(rows * channels, 1);
    const std::vector<float> v = numbers<float>(rows * channels, 2);
    std::vector<std::vector<double>> sums;
    for (int level = 0; level < num_kernel_levels(); ++level) {
      std::vector<double> out(static_cast<size_t>(2 * channels));
      kernels_of_level(level).channel_sums[kTypeF32](out.data(), u.data(), v.data(), rows,
                                                     channels);
      sums.push_back(std::move(out));
    }
    for (const std::vector<double>& other : sums) {
      CHECK(same_bits(other, sums[0]));
    }
    double first = 0, product = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double x = u[static_cast<size_t>(r * channels)];
      first += x;
      product += x * v[static_cast<size_t>(r * channels)];
    }
    CHECK(sums[0][0] == doctest::Approx(first).epsilon(1e-12));
    CHECK(sums[0][static_cast<size_t>(channels)] == doctest::Approx(product).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace meshtrain::cpu
