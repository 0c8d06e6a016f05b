// From DType to the columns of the kernel table.
#pragma once

#include "backend/cpu/kernel_table.h"
#include "tensor/dtype.h"

namespace meshtrain::cpu {

// bfloat16 or float16: kept in 16 bits, computed with as float32.
inline bool is_half(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}
// Throws InternalError for the types that graphs do not compute with (int8, uint64, ...).
TypeIndex type_index(DType dtype);
// Stores `value`, converted to the dtype, at `place`.
void store_value(void* place, DType dtype, double value);
// count elements of `dtype` at `out` become the element at `value`.
void fill_elements(std::byte* out, const std::byte* value, int64_t item_size, int64_t count);

}  // namespace meshtrain::cpu
