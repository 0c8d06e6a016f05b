#include "ir/text_form.h"

#include <cctype>

#include "base/error.h"

namespace meshtrain {
namespace {

constexpr std::pair<DType, std::string_view> kDTypes[] = {
    {DType::kBool, "bool"},   {DType::kUInt8, "u8"},      {DType::kInt8, "i8"},
    {DType::kInt16, "i16"},   {DType::kUInt16, "u16"},    {DType::kInt32, "i32"},
    {DType::kUInt32, "u32"},  {DType::kInt64, "i64"},     {DType::kUInt64, "u64"},
    {DType::kFloat16, "f16"}, {DType::kBFloat16, "bf16"}, {DType::kFloat32, "f32"},
    {DType::kFloat64, "f64"},
};

constexpr std::pair<VariableRole, std::string_view> kRoles[] = {
    {VariableRole::kWeight, "weight"},
    {VariableRole::kSlot, "slot"},
    {VariableRole::kMetric, "metric"},
    {VariableRole::kScalar, "scalar"},
};

template <class T, size_t N>
std::string_view name_in(const std::pair<T, std::string_view> (&table)[N], T value) {
  for (const auto& [entry, name] : table) {
    if (entry == value) {
      return name;
    }
  }
  throw InternalError("a value that the text form has no name for");
}

template <class T, size_t N>
std::optional<T> value_in(const std::pair<T, std::string_view> (&table)[N], std::string_view text) {
  for (const auto& [entry, name] : table) {
    if (name == text) {
      return entry;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view short_dtype(DType dtype) {
  return name_in(kDTypes, dtype);
}

std::optional<DType> parse_short_dtype(std::string_view text) {
  return value_in(kDTypes, text);
}

std::string_view role_name(VariableRole role) {
  return name_in(kRoles, role);
}

std::optional<VariableRole> parse_role(std::string_view text) {
  return value_in(kRoles, text);
}

std::optional<Phase> parse_phase(std::string_view text) {
  for (Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate}) {
    if (phase_name(phase) == text) {
      return phase;
    }
  }
  return std::nullopt;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + '"';
}

bool is_plain_path(std::string_view path) {
  for (char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("_/-.:").find(c) != std::string_view::npos;
    if (!plain) {
      return false;
    }
  }
  return !path.empty();
}

}  // namespace meshtrain
