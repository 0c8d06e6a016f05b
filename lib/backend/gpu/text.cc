#include "backend/gpu/text.h"

#include <fmt/format.h>

#include <cstdlib>

namespace meshtrain::gpu {

std::string constant_line(std::string_view type, std::string_view name, int64_t value) {
  return fmt::format("constexpr {} {} = {};\n", type, name, value);
}

Field::Field(std::string_view name, int64_t value) : name(name), text(std::to_string(value)) {}
Field::Field(std::string_view name, double value) : name(name), text(fmt::format("{:a}", value)) {}
Field::Field(std::string_view name, const std::array<int64_t, 3>& values)
    : name(name), text(fmt::format("{{{}}}", fmt::join(values, ", "))) {}

std::string struct_text(std::string_view type, std::initializer_list<Field> fields) {
  std::string text;
  for (const Field& field : fields)
    text += fmt::format("{}.{} = {}", text.empty() ? "" : ", ", field.name, field.text);
  return fmt::format("{}{{{}}}", type, text);
}

std::string loop_text(const Shape& sizes, const std::vector<int64_t>& strides) {
  if (sizes.empty())
    return "Loop<1>{{1}, {0}}";
  return fmt::format("Loop<{}>{{{{{}}}, {{{}}}}}", sizes.size(), fmt::join(sizes, ", "),
                     fmt::join(strides, ", "));
}

std::string call_text(std::string_view function, std::initializer_list<std::string> of,
                      bool uses_shared, std::string_view more) {
  return fmt::format("{}<{}>(arg, block{}{}{});\n", function, fmt::join(of, ",\n"),
                     uses_shared ? ", shared" : "", more.empty() ? "" : ", ", more);
}

std::string index_type(int64_t reach) {
  constexpr int64_t kFits = int64_t{1} << 31;
  return reach < kFits ? "Index32" : "Index64";
}

std::string index_types(int64_t reach) {
  return fmt::format("using X = {};\nusing U = X::U;\nusing I = X::I;\n", index_type(reach));
}

std::string offset_line(std::string_view name, const Shape& sizes,
                        const std::vector<int64_t>& strides) {
  return fmt::format("auto {} = [](U i) -> I {{ return offset<X, {}>(i); }};\n", name,
                     loop_text(sizes, strides));
}

int64_t reach_of(const Shape& sizes, const std::vector<int64_t>& strides) {
  int64_t reach = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    reach += (sizes[d] - 1) * std::abs(strides[d]);
  return reach;
}

DType compute_dtype(DType dtype) {
  return is_floating(dtype) && dtype != DType::kFloat64 ? DType::kFloat32 : dtype;
}

}  // namespace meshtrain::gpu
