#include "data/transforms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/text.h"

namespace meshtrain {
namespace {

// Calls `function` with a value of the stored type; false for the 16-bit floats, which have none.
template <class F>
bool with_type(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return function(uint8_t{}), true;
    case DType::kInt8:
      return function(int8_t{}), true;
    case DType::kInt16:
      return function(int16_t{}), true;
    case DType::kUInt16:
      return function(uint16_t{}), true;
    case DType::kInt32:
      return function(int32_t{}), true;
    case DType::kUInt32:
      return function(uint32_t{}), true;
    case DType::kInt64:
      return function(int64_t{}), true;
    case DType::kUInt64:
      return function(uint64_t{}), true;
    case DType::kFloat32:
      return function(float{}), true;
    case DType::kFloat64:
      return function(double{}), true;
    default:
      return false;
  }
}

// One end of a slice; nullopt where it cannot be read.
std::optional<int64_t> slice_end(std::string_view text, int64_t size, int64_t if_empty) {
  text = trim(text);
  if (text.empty()) {
    return if_empty;
  }
  const bool percent = text.back() == '%';
  if (percent) {
    text = trim(text.substr(0, text.size() - 1));
  }
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size()) {
    return std::nullopt;
  }
  if (percent) {
    if (value < -100 || value > 100) {
      return std::nullopt;
    }
    const __int128 share = static_cast<__int128>(size) * std::abs(value) / 100;
    value = value < 0 ? -static_cast<int64_t>(share) : static_cast<int64_t>(share);
    return value < 0 ? size + value : value;
  }
  return std::clamp<int64_t>(value < 0 ? std::max<int64_t>(value, -size) + size : value, 0, size);
}

std::vector<double> numbers_of(const ConfigValue& value) {
  return value.is_list() ? value.numbers() : std::vector<double>{value.number()};
}

template <class T, class Out>
void rescale(const T* from, Out* to, int64_t count, const std::vector<double>& scale,
             const std::vector<double>& offset) {
  const size_t channels = std::max(scale.size(), offset.size());
  for (size_t c = 0; c < channels; ++c) {
    const Out factor = static_cast<Out>(scale[c % scale.size()]);
    const Out shift = static_cast<Out>(offset[c % offset.size()]);
    for (int64_t i = static_cast<int64_t>(c); i < count; i += static_cast<int64_t>(channels)) {
      to[i] = static_cast<Out>(from[i]) * factor + shift;
    }
  }
}

HostTensor rescaled(const ConfigObject& transform, const HostTensor& tensor,
                    const std::string& name) {
  const std::vector<double> scale = numbers_of(transform.arg("scale"));
  const std::vector<double> offset = numbers_of(transform.arg("offset"));
  const size_t channels =
      tensor.shape().size() > 1 ? static_cast<size_t>(tensor.shape().back()) : 1;
  for (const auto& [values, arg] : {std::pair(&scale, "scale"), std::pair(&offset, "offset")}) {
    if (values->size() != 1 && values->size() != channels) {
      throw ConfigError(
          "E304", transform.loc_of(arg),
          fmt::format("`{}` has {} numbers; the last dimension of `{}` {} has {}", arg,
                      values->size(), name, shape_string(tensor.shape()), channels));
    }
  }
  if (tensor.dtype() == DType::kFloat64) {
    HostTensor out(DType::kFloat64, tensor.shape());
    rescale(tensor.data<double>(), out.data<double>(), tensor.size(), scale, offset);
    return out;
  }
  HostTensor out(DType::kFloat32, tensor.shape());
  const auto convert = [&](const HostTensor& from) {
    return with_type(from.dtype(), [&](auto tag) {
      rescale(from.data<decltype(tag)>(), out.data<float>(), from.size(), scale, offset);
    });
  };
  if (!convert(tensor)) {
    convert(tensor.cast(DType::kFloat32));
  }
  return out;
}

HostTensor reshaped(const ConfigObject& transform, HostTensor tensor, const std::string& name) {
  Shape shape = transform.arg("target_shape").integers();
  const int64_t samples = tensor.shape()[0];
  const Shape old_sample(tensor.shape().begin() + 1, tensor.shape().end());
  const int64_t elements = num_elements(old_sample);
  int64_t known = 1;
  int64_t* unknown = nullptr;
  bool fits = true;
  for (int64_t& size : shape) {
    if (size == kUnknownDim) {
      fits = fits && unknown == nullptr;
      unknown = &size;
    } else {
      fits = fits && size >= 0 && !__builtin_mul_overflow(known, size, &known);
    }
  }
  if (fits && unknown != nullptr) {
    fits = known > 0 && elements % known == 0;
    *unknown = fits ? elements / known : kUnknownDim;
  } else {
    fits = fits && known == elements;
  }
  if (!fits) {
    throw ConfigError("E304", transform.loc_of("target_shape"),
                      fmt::format("samples of `{}` are {}, {} elements; they cannot become {}",
                                  name, shape_string(old_sample), elements, shape_string(shape)));
  }
  shape.insert(shape.begin(), samples);
  tensor.reshape(std::move(shape));
  return tensor;
}

}  // namespace

std::pair<int64_t, int64_t> parse_slice(const std::string& text, int64_t size,
                                        const SourceLoc& loc) {
  std::string_view body = trim(text);
  if (body.size() >= 2 && body.front() == '[' && body.back() == ']') {
    body = body.substr(1, body.size() - 2);
    const size_t colon = body.find(':');
    if (colon != std::string_view::npos) {
      const auto begin = slice_end(body.substr(0, colon), size, 0);
      const auto end = slice_end(body.substr(colon + 1), size, size);
      if (begin && end) {
        return {*begin, std::max(*begin, *end)};
      }
    }
  }
  Diagnostics findings;
  findings.error("E113", loc, fmt::format("cannot read the slice `{}`", text))
      .help(
          "write \"[begin:end]\" as in Python: \"[9000:]\", \"[:-100]\", \"[:90%]\"; without "
          "steps");
  throw ConfigError(std::move(findings));
}

HostTensor take_rows(const HostTensor& tensor, int64_t begin, int64_t end) {
  Shape shape = tensor.shape();
  MESHTRAIN_CHECK(!shape.empty() && 0 <= begin && begin <= end && end <= shape[0],
                  "rows {} to {} of {}", begin, end, shape_string(shape));
  const size_t row_bytes = shape[0] == 0 ? 0 : tensor.num_bytes() / static_cast<size_t>(shape[0]);
  shape[0] = end - begin;
  HostTensor rows(tensor.dtype(), shape);
  if (rows.num_bytes() > 0) {
    std::memcpy(rows.bytes(), tensor.bytes() + static_cast<size_t>(begin) * row_bytes,
                rows.num_bytes());
  }
  return rows;
}

HostTensor apply_transform(const ConfigObject& transform, HostTensor tensor,
                           const std::string& name) {
  if (transform.class_name == "Rescaling") {
    return rescaled(transform, tensor, name);
  }
  MESHTRAIN_CHECK(transform.class_name == "Reshape", "no transform {}", transform.class_name);
  return reshaped(transform, std::move(tensor), name);
}

void check_label_range(const HostTensor& labels, int64_t num_classes, const std::string& name,
                       const SourceLoc& loc) {
  int64_t first = -1;
  int64_t count = 0;
  const auto check = [&](int64_t i, double label) {
    // Written so that NaN is out of range, too.
    if (!(label >= 0 && label < static_cast<double>(num_classes) && label == std::floor(label))) {
      first = first < 0 ? i : first;
      ++count;
    }
  };
  const bool typed = with_type(labels.dtype(), [&](auto tag) {
    const auto* values = labels.data<decltype(tag)>();
    for (int64_t i = 0; i < labels.size(); ++i) {
      check(i, static_cast<double>(values[i]));
    }
  });
  for (int64_t i = 0; !typed && i < labels.size(); ++i) {
    check(i, labels.at(i));
  }
  if (first < 0) {
    return;
  }
  const int64_t row = labels.size() / labels.shape()[0];
  const double label = labels.at(first);
  Diagnostics findings;
  Diagnostic& problem = findings.error(
      "E312", loc,
      fmt::format("`{}`: sample {} has the label {}; the {} classes are the whole numbers 0..{}",
                  name, first / row, format_shortest(label), num_classes, num_classes - 1));
  if (count > 1) {
    problem.note(fmt::format("{} more labels are no classes", format_thousands(count - 1)));
  }
  if (label == static_cast<double>(num_classes)) {
    problem.help("labels count from 0; are these counted from 1?");
  }
  throw ConfigError(std::move(findings));
}

HostTensor one_hot(const HostTensor& labels, int64_t num_classes, const std::string& name,
                   const SourceLoc& loc) {
  const Shape& shape = labels.shape();
  if (shape.size() > 2 || (shape.size() == 2 && shape[1] != 1)) {
    throw ConfigError("E304", loc,
                      fmt::format("`label.one_hot` needs one label a sample; `{}` has the shape {}",
                                  name, shape_string(shape)));
  }
  check_label_range(labels, num_classes, name, loc);
  HostTensor out(DType::kFloat32, {shape[0], num_classes});
  for (int64_t i = 0; i < shape[0]; ++i) {
    out.data<float>()[i * num_classes + static_cast<int64_t>(labels.at(i))] = 1.0F;
  }
  return out;
}

namespace {

// A number is NaN or infinite when all bits of its exponent are set. Blocks of fixed length without
// branches, which compilers vectorize.
template <class Bits>
int64_t first_with_exponent(const Bits* values, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 1024;
  const auto find = [&](int64_t begin, int64_t end) -> int64_t {
    for (int64_t i = begin; i < end; ++i) {
      if ((values[i] & exponent) == exponent) {
        return i;
      }
    }
    return -1;
  };
  int64_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    Bits any = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
      any |= static_cast<Bits>(-static_cast<Bits>((values[begin + i] & exponent) == exponent));
    }
    if (any != 0) {
      return find(begin, begin + kBlock);
    }
  }
  return find(begin, count);
}

}  // namespace

int64_t first_nonfinite(const HostTensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat16:
      return first_with_exponent<uint16_t>(tensor.data<uint16_t>(), tensor.size(), 0x7c00);
    case DType::kBFloat16:
      return first_with_exponent<uint16_t>(tensor.data<uint16_t>(), tensor.size(), 0x7f80);
    case DType::kFloat32:
      return first_with_exponent<uint32_t>(tensor.data<uint32_t>(), tensor.size(), 0x7f800000);
    case DType::kFloat64:
      return first_with_exponent<uint64_t>(tensor.data<uint64_t>(), tensor.size(),
                                           0x7ff0000000000000);
    default:
      return -1;
  }
}

}  // namespace meshtrain
