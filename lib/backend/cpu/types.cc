#include "backend/cpu/types.h"

#include <algorithm>
#include <cstring>

#include "tensor/host_tensor.h"

namespace meshtrain::cpu {

TypeIndex type_index(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return kTypeBool;
    case DType::kUInt8:
      return kTypeU8;
    case DType::kInt32:
      return kTypeI32;
    case DType::kUInt32:
      return kTypeU32;
    case DType::kInt64:
      return kTypeI64;
    case DType::kFloat32:
      return kTypeF32;
    case DType::kFloat64:
      return kTypeF64;
    case DType::kBFloat16:
      return kTypeBF16;
    case DType::kFloat16:
      return kTypeF16;
    default:
      throw InternalError("the CPU backend has no kernels for " + std::string(dtype_name(dtype)));
  }
}

void store_value(void* place, DType dtype, double value) {
  if (is_half(dtype)) {
    HostTensor element(dtype, {1});
    element.set(0, value);
    std::memcpy(place, element.bytes(), 2);
    return;
  }
  dispatch_compute(dtype, [&]<class T>(T) {
    const T converted = dtype == DType::kBool ? static_cast<T>(value != 0) : static_cast<T>(value);
    std::memcpy(place, &converted, sizeof(T));
  });
}

namespace {

// The first elements one by one, the others as copies of twice as many each time: memcpy has wider
// stores than this file may use.
template <class T>
void fill_typed(std::byte* out, const std::byte* value, int64_t count) {
  constexpr int64_t kFirst = 64 / sizeof(T);
  T element;
  std::memcpy(&element, value, sizeof(T));
  T* const first = reinterpret_cast<T*>(out);
  int64_t filled = std::min(count, kFirst);
  std::fill(first, first + filled, element);
  for (; filled < count; filled *= 2) {
    std::memcpy(first + filled, first,
                static_cast<size_t>(std::min(filled, count - filled)) * sizeof(T));
  }
}

}  // namespace

void fill_elements(std::byte* out, const std::byte* value, int64_t item_size, int64_t count) {
  switch (item_size) {
    case 1:
      std::memset(out, std::to_integer<int>(*value), static_cast<size_t>(count));
      return;
    case 2:
      fill_typed<uint16_t>(out, value, count);
      return;
    case 4:
      fill_typed<uint32_t>(out, value, count);
      return;
    case 8:
      fill_typed<uint64_t>(out, value, count);
      return;
    default:
      throw InternalError("no fill for this element size");
  }
}

}  // namespace meshtrain::cpu
