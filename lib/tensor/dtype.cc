#include "tensor/dtype.h"

#include <iterator>

namespace meshtrain {
namespace {

struct Info {
  std::string_view name;
  size_t size;
};
// In the order of the enumerators.
constexpr Info kInfo[] = {{"bool", 1},   {"uint8", 1},   {"int8", 1},     {"int16", 2},
                          {"uint16", 2}, {"int32", 4},   {"uint32", 4},   {"int64", 8},
                          {"uint64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4},
                          {"float64", 8}};

}  // namespace

size_t dtype_size(DType dtype) {
  return kInfo[static_cast<int>(dtype)].size;
}
std::string_view dtype_name(DType dtype) {
  return kInfo[static_cast<int>(dtype)].name;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kInfo); ++i) {
    if (kInfo[i].name == name) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

bool is_floating(DType dtype) {
  return dtype >= DType::kFloat16;
}
bool is_integer(DType dtype) {
  return dtype > DType::kBool && dtype < DType::kFloat16;
}

}  // namespace meshtrain
