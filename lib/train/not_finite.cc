#include "train/not_finite.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace meshtrain {
namespace {

template <class T>
NotFinite count(std::span<const std::byte> bytes) {
  const T* values = reinterpret_cast<const T*>(bytes.data());
  const size_t size = bytes.size() / sizeof(T);
  // An exponent of ones means NaN or infinity. Integers, so that the loop becomes vector code.
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits kExponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  const Bits* bits = reinterpret_cast<const Bits*>(bytes.data());
  Bits found = 0;
  for (size_t i = 0; i < size; ++i) {
    found |= static_cast<Bits>((bits[i] & kExponent) == kExponent);
  }
  NotFinite out;
  for (size_t i = 0; i < size && found != 0; ++i) {
    out.nan += std::isnan(values[i]) ? 1 : 0;
    out.infinite += std::isinf(values[i]) ? 1 : 0;
  }
  return out;
}

}  // namespace

NotFinite& NotFinite::operator+=(const NotFinite& other) {
  nan += other.nan;
  infinite += other.infinite;
  return *this;
}

NotFinite not_finite(const CheckpointTensor& tensor, std::span<const std::byte> bytes) {
  if (tensor.kind == TensorKind::kMetric) {
    return {};
  }
  return tensor.dtype == DType::kFloat32   ? count<float>(bytes)
         : tensor.dtype == DType::kFloat64 ? count<double>(bytes)
                                           : NotFinite{};
}

std::string in_words(const NotFinite& found) {
  std::string out = found.nan > 0 ? fmt::format("{} NaN", found.nan) : "";
  out += found.nan > 0 && found.infinite > 0 ? " and " : "";
  return out + (found.infinite > 0 ? fmt::format("{} infinite", found.infinite) : "");
}

}  // namespace meshtrain
