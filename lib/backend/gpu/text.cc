#include "backend/gpu/text.h"

#include <fmt/format.h>

#include <cstdlib>

namespace meshtrain::gpu {

std::string type_line(std::string_view name, std::string_view type) {
  return fmt::format("typedef {} {};\n", type, name);
}

std::string constant_line(std::string_view type, std::string_view name, int64_t value) {
  return fmt::format("constexpr {} {} = {};\n", type, name, value);
}

std::string index_types(int64_t reach) {
  constexpr int64_t kFits = int64_t{1} << 31;
  return reach < kFits ? "typedef unsigned U; typedef int I;\n"
                       : "typedef unsigned long long U; typedef long long I;\n";
}

std::string offset_line(std::string_view name, const Shape& sizes,
                        const std::vector<int64_t>& strides) {
  std::string terms = "0";
  int64_t inner = 1;  // elements of the dimensions behind d
  for (size_t d = sizes.size(); d-- > 0;) {
    const std::string index = inner == 1 ? "i" : fmt::format("i / {}u", inner);
    if (strides[d] != 0 && sizes[d] > 1) {
      terms += d == 0 ? fmt::format(" + (I)({}) * ({})", index, strides[d])
                      : fmt::format(" + (I)({} % {}u) * ({})", index, sizes[d], strides[d]);
    }
    inner *= sizes[d];
  }
  return fmt::format("auto {} = [](U i) -> I {{ return {}; }};\n", name, terms);
}

int64_t reach_of(const Shape& sizes, const std::vector<int64_t>& strides) {
  int64_t reach = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    reach += (sizes[d] - 1) * std::abs(strides[d]);
  return reach;
}

std::string fused_line(DType dtype) {
  const std::string_view value = !is_floating(dtype)        ? "mt::add(mt::mul(x, y), z)"
                                 : dtype == DType::kFloat64 ? "fma(x, y, z)"
                                                            : "fmaf(x, y, z)";
  return fmt::format("auto fused = [](A x, A y, A z) -> A {{ return {}; }};\n", value);
}

DType compute_dtype(DType dtype) {
  return is_floating(dtype) && dtype != DType::kFloat64 ? DType::kFloat32 : dtype;
}

}  // namespace meshtrain::gpu
