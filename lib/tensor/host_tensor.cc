#include "tensor/host_tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "tensor/half.h"

namespace meshtrain {
namespace {

constexpr size_t kAlignment = 64;

// Calls `function` with a null pointer of the stored type; half types are passed as uint16_t*.
template <class F>
decltype(auto) with_stored_type(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return function(uint8_t{});
    case DType::kInt8:
      return function(int8_t{});
    case DType::kInt16:
      return function(int16_t{});
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return function(uint16_t{});
    case DType::kInt32:
      return function(int32_t{});
    case DType::kUInt32:
      return function(uint32_t{});
    case DType::kInt64:
      return function(int64_t{});
    case DType::kUInt64:
      return function(uint64_t{});
    case DType::kFloat32:
      return function(float{});
    default:
      return function(double{});
  }
}

// By way of double, as HostTensor::set, where that is not the same: whole numbers of 64 bits, which
// only the other type of 64 bits holds.
template <class From, class To>
void convert(const From* from, int64_t count, To* to) {
  constexpr bool kIsLong = std::is_integral_v<From> && sizeof(From) == 8;
  constexpr bool kBothLong = kIsLong && std::is_integral_v<To> && sizeof(To) == 8;
  using Step = std::conditional_t<kIsLong && !kBothLong, double, From>;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<To>(static_cast<Step>(from[i]));
  }
}

}  // namespace

void HostTensor::Free::operator()(std::byte* pointer) const {
  std::free(pointer);
}

HostTensor::HostTensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(std::move(shape)), size_(num_elements(shape_)) {
  const size_t rounded = (num_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory =
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, std::max(rounded, kAlignment)));
  if (memory == nullptr) {
    throw RuntimeFailure(ExitCode::kMesh, fmt::format("cannot allocate {} bytes for a tensor {}",
                                                      num_bytes(), shape_string(shape_)));
  }
  std::memset(memory, 0, std::max(rounded, kAlignment));
  data_.reset(memory);
}

HostTensor HostTensor::clone() const {
  HostTensor copy(dtype_, shape_);
  if (num_bytes() > 0) {
    std::memcpy(copy.bytes(), bytes(), num_bytes());
  }
  return copy;
}

HostTensor HostTensor::resized(Shape shape) const {
  MESHTRAIN_CHECK(shape.size() == shape_.size() && !shape.empty(), "{} to {}", shape_string(shape_),
                  shape_string(shape));
  HostTensor out(dtype_, std::move(shape));
  const std::vector<int64_t> from = row_major_strides(shape_), to = row_major_strides(out.shape_);
  Shape both = shape_;
  for (size_t d = 0; d < both.size(); ++d)
    both[d] = std::min(both[d], out.shape_[d]);
  const size_t item = dtype_size(dtype_), run = static_cast<size_t>(both.back()) * item;
  both.back() = 1;
  const int64_t runs = run == 0 ? 0 : num_elements(both);
  for (int64_t i = 0; i < runs; ++i) {
    size_t source = 0, target = 0;
    int64_t rest = i;
    for (size_t d = both.size(); d-- > 0; rest /= both[d]) {
      source += static_cast<size_t>(rest % both[d] * from[d]);
      target += static_cast<size_t>(rest % both[d] * to[d]);
    }
    std::memcpy(out.bytes() + target * item, bytes() + source * item, run);
  }
  return out;
}

double HostTensor::at(int64_t index) const {
  if (dtype_ == DType::kFloat16) {
    return half_to_float(data<uint16_t>()[index]);
  }
  if (dtype_ == DType::kBFloat16) {
    return bfloat16_to_float(data<uint16_t>()[index]);
  }
  return with_stored_type(
      dtype_, [&](auto tag) { return static_cast<double>(data<decltype(tag)>()[index]); });
}

void HostTensor::set(int64_t index, double value) {
  if (dtype_ == DType::kFloat16) {
    data<uint16_t>()[index] = float_to_half(static_cast<float>(value));
  } else if (dtype_ == DType::kBFloat16) {
    data<uint16_t>()[index] = float_to_bfloat16(static_cast<float>(value));
  } else if (dtype_ == DType::kBool) {
    data<uint8_t>()[index] = value != 0;
  } else {
    with_stored_type(dtype_, [&](auto tag) {
      data<decltype(tag)>()[index] = static_cast<decltype(tag)>(value);
    });
  }
}

HostTensor HostTensor::cast(DType dtype) const {
  if (dtype == dtype_) {
    return clone();
  }
  HostTensor out(dtype, shape_);
  const auto is_simple = [](DType type) {  // stored as the numbers they are
    return type != DType::kFloat16 && type != DType::kBFloat16 && type != DType::kBool;
  };
  if (is_simple(dtype_) && is_simple(dtype)) {  // every batch of images comes this way
    with_stored_type(dtype_, [&](auto from) {
      with_stored_type(dtype, [&](auto to) {
        convert(data<decltype(from)>(), size_, out.data<decltype(to)>());
      });
    });
    return out;
  }
  for (int64_t i = 0; i < size_; ++i) {
    out.set(i, at(i));
  }
  return out;
}

void HostTensor::reshape(Shape shape) {
  MESHTRAIN_CHECK(num_elements(shape) == size_, "{} to {}", shape_string(shape_),
                  shape_string(shape));
  shape_ = std::move(shape);
}

}  // namespace meshtrain
