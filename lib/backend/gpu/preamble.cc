#include "backend/gpu/preamble.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "backend/gpu/command.h"
#include "backend/gpu/device_text.h"

namespace meshtrain::gpu {
namespace {

struct Names {
  std::string_view type, compute;
};
// In the order of DType.
constexpr Names kNames[] = {{"unsigned char", "unsigned char"},
                            {"unsigned char", "unsigned char"},
                            {"signed char", "signed char"},
                            {"short", "short"},
                            {"unsigned short", "unsigned short"},
                            {"int", "int"},
                            {"unsigned", "unsigned"},
                            {"long long", "long long"},
                            {"unsigned long long", "unsigned long long"},
                            {"f16", "float"},
                            {"bf16", "float"},
                            {"float", "float"},
                            {"double", "double"}};

// The nearest T, where a conversion of a value out of its range would be undefined.
template <class T>
T saturated(double value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value))
    return 0;
  if (value <= static_cast<double>(Limits::min()))
    return Limits::min();
  return value >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(value);
}

std::string integer_literal(double value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return value != 0 ? "(unsigned char)1" : "(unsigned char)0";
    case DType::kUInt8:
      return fmt::format("(unsigned char){}", saturated<uint8_t>(value));
    case DType::kInt8:
      return fmt::format("(signed char){}", saturated<int8_t>(value));
    case DType::kInt16:
      return fmt::format("(short){}", saturated<int16_t>(value));
    case DType::kUInt16:
      return fmt::format("(unsigned short){}", saturated<uint16_t>(value));
    case DType::kUInt32:
      return fmt::format("{}u", saturated<uint32_t>(value));
    case DType::kUInt64:
      return fmt::format("{}ull", saturated<uint64_t>(value));
    default:
      break;
  }
  // The smallest numbers cannot be written with a minus sign in front.
  const bool is_long = dtype == DType::kInt64;
  const int64_t number = is_long ? saturated<int64_t>(value) : saturated<int32_t>(value);
  const std::string_view suffix = is_long ? "ll" : "";
  return number < 0 ? fmt::format("({}{} - 1)", number + 1, suffix)
                    : fmt::format("{}{}", number, suffix);
}

}  // namespace

std::string_view preamble() {
  static const std::string text = [] {
    DeviceText device;
    device.add(kElementwise);
    return device.take();
  }();
  return text;
}

std::string_view type_name(DType dtype) {
  return kNames[static_cast<int>(dtype)].type;
}

std::string_view compute_type(DType dtype) {
  return kNames[static_cast<int>(dtype)].compute;
}

std::string literal(double value, DType dtype) {
  if (!is_floating(dtype))
    return integer_literal(value, dtype);
  const bool is_double = dtype == DType::kFloat64;
  const double exact = is_double ? value : static_cast<double>(static_cast<float>(value));
  if (std::isnan(exact))
    return is_double ? "mt::double_of(0x7ff8000000000000ull)" : "mt::float_of(0x7fc00000u)";
  if (std::isinf(exact)) {
    return fmt::format(
        "{}{}", exact < 0 ? "-" : "",
        is_double ? "mt::double_of(0x7ff0000000000000ull)" : "mt::float_of(0x7f800000u)");
  }
  const std::string text = fmt::format("{:a}{}", exact, is_double ? "" : "f");
  return std::signbit(exact) ? "(" + text + ")" : text;
}

}  // namespace meshtrain::gpu
