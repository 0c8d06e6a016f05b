// What generated texts call types and numbers.
#pragma once

#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace meshtrain::gpu {

// What every body may use: device/elementwise.cuh with all that it includes.
std::string_view preamble();

// "float", "double", "mt::bf16", "int", "long long", "unsigned char", ...
std::string_view type_name(DType dtype);
// The type that arithmetic on `dtype` is done in: float for 16-bit floats, else type_name.
std::string_view compute_type(DType dtype);
// A literal of `compute_type(dtype)` that reads back exactly the value; NaN and infinity included.
std::string literal(double value, DType dtype);

}  // namespace meshtrain::gpu
