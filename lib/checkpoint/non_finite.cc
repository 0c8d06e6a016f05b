#include "checkpoint/non_finite.h"

#include <cstdint>

namespace meshtrain {
namespace {

// An exponent of ones means NaN or infinity, the latter where the rest is zero.
template <class Bits>
NonFinite count(std::span<const std::byte> bytes, Bits exponent) {
  const Bits* bits = reinterpret_cast<const Bits*>(bytes.data());
  const size_t size = bytes.size() / sizeof(Bits);
  Bits found = 0;  // gathered first, so that the loop becomes vector code
  for (size_t i = 0; i < size; ++i) {
    found |= static_cast<Bits>((bits[i] & exponent) == exponent);
  }
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  NonFinite out;
  for (size_t i = 0; i < size && found != 0; ++i) {
    if ((bits[i] & exponent) == exponent) {
      ((bits[i] & ~sign) == exponent ? out.infinite : out.nan) += 1;
    }
  }
  return out;
}

}  // namespace

NonFinite& NonFinite::operator+=(const NonFinite& other) {
  nan += other.nan;
  infinite += other.infinite;
  return *this;
}

NonFinite non_finite(const CheckpointTensor& tensor, std::span<const std::byte> bytes) {
  if (tensor.kind == TensorKind::kMetric) {
    return {};
  }
  switch (tensor.dtype) {
    case DType::kFloat16:
      return count<uint16_t>(bytes, 0x7c00);
    case DType::kBFloat16:
      return count<uint16_t>(bytes, 0x7f80);
    case DType::kFloat32:
      return count<uint32_t>(bytes, 0x7f800000);
    case DType::kFloat64:
      return count<uint64_t>(bytes, 0x7ff0000000000000);
    default:
      return {};
  }
}

std::string in_words(const NonFinite& count) {
  std::string out = count.nan > 0 ? fmt::format("{} NaN", count.nan) : "";
  out += count.nan > 0 && count.infinite > 0 ? " and " : "";
  return out + (count.infinite > 0 ? fmt::format("{} infinite", count.infinite) : "");
}

}  // namespace meshtrain
