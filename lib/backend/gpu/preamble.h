// What every generated kernel can rely on: the text in front of all bodies of a module.
#pragma once

#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace meshtrain::gpu {

// CUDA C++ without includes: kThreads, type names (mt_f16 and mt_bf16 are structs of 16 bits),
// mt_load / mt_store conversions, Philox, block and warp reductions. It compiles with NVRTC and,
// behind tests/support's shim, with GCC.
std::string_view preamble();

// "float", "double", "mt_bf16", "int", "long long", "unsigned char", ...
std::string_view type_name(DType dtype);
// The type that arithmetic on `dtype` is done in: float for 16-bit floats, else type_name.
std::string_view compute_type(DType dtype);
// A literal of `compute_type(dtype)` that reads back exactly the value; NaN and infinity included.
std::string literal(double value, DType dtype);
// Expressions that read pointer[index] as compute_type and that write it, rounded to nearest even.
std::string load(DType dtype, std::string_view pointer, std::string_view index);
std::string store(DType dtype, std::string_view pointer, std::string_view index,
                  std::string_view value);

}  // namespace meshtrain::gpu
