#include "specs.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "support/splitmix.h"
#include "tensor/host_tensor.h"

namespace meshtrain::test {
namespace {

double special_number(uint64_t seed, uint64_t i) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static const double kNumbers[] = {0.0,  -0.0,  1,    -1,  kInfinity, -kInfinity, std::nan(""),
                                    0.5,  -0.5,  1.5,  2.5, -2.5,      1e-3,       -1e-3,
                                    17.5, -17.5, 1000, 2,   -87,       60000,      -3e-5};
  constexpr uint64_t kCount = sizeof(kNumbers) / sizeof(kNumbers[0]);
  return i < kCount ? kNumbers[i] : kNumbers[splitmix_below(seed, i, kCount)];
}

double value_of(const SpecArray& array, uint64_t seed, uint64_t i) {
  const double number = splitmix_signed(seed, i, 2.0F);
  const bool has_sign =
      is_floating(array.dtype) || array.dtype == DType::kInt32 || array.dtype == DType::kInt64;
  switch (array.values) {
    case Values::kPositive:
      return std::abs(number) + 0.1;
    case Values::kUnit:
      return std::abs(number) / 2;
    case Values::kSpecial:
      return special_number(seed, i);
    case Values::kSmallIntegers:
      return static_cast<double>(splitmix_below(seed, i, 9)) - (has_sign ? 4 : 0);
    case Values::kIds:
      return static_cast<double>(splitmix_below(seed, i, 15)) - 2;
    case Values::kBool:
      return number > 0 ? 1 : 0;
    case Values::kStep:
      return 7;
    case Values::kFewValues:
      return 0.5 * static_cast<double>(splitmix_below(seed, i, 5));
    default:
      return number;
  }
}

}  // namespace

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 1e-5;
    case DType::kFloat64:
      return 1e-12;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat16:
      return 0x1p-10;
    default:
      return 0;
  }
}

void fill_array(const SpecArray& array, uint64_t seed, std::byte* memory) {
  if (array.size == 0)
    return;
  const size_t bytes = static_cast<size_t>(array.size) * dtype_size(array.dtype);
  if (array.values == Values::kResult) {
    std::memset(memory, 0xA5, bytes);
    return;
  }
  HostTensor numbers(array.dtype, {array.size});
  for (int64_t i = 0; i < array.size; ++i)
    numbers.set(i, value_of(array, seed, static_cast<uint64_t>(i)));
  std::memcpy(memory, numbers.bytes(), bytes);
}

std::vector<DType> float_dtypes() {
  return {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};
}

const std::vector<SpecFamily>& spec_families() {
  static const std::vector<SpecFamily> families = {{"tape", tape_specs},
                                                   {"cast", cast_specs},
                                                   {"copy", copy_specs},
                                                   {"reduce", reduce_specs},
                                                   {"matmul", matmul_specs},
                                                   {"scan", scan_specs},
                                                   {"conv", conv_specs},
                                                   {"pool", pool_specs},
                                                   {"lookup", lookup_specs},
                                                   {"random", random_specs},
                                                   {"warp", warp_specs},
                                                   {"optimizer", optimizer_specs},
                                                   {"attention", attention_specs},
                                                   {"combine", combine_specs},
                                                   {"view", view_specs},
                                                   {"rows", row_specs},
                                                   {"rnn", rnn_specs},
                                                   {"head", head_specs}};
  return families;
}

}  // namespace meshtrain::test
