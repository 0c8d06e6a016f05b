// The preamble: declarations for all kernel bodies of a module.
#pragma once

#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace meshtrain::gpu {

// CUDA C++ without includes. It compiles with NVRTC and, behind tests/support's shim, with GCC.
//
//   kThreads; mt_f16, mt_bf16: structs of 16 bits; mt_compute<T>: what a T is computed in
//   mt_load(p), mt_store(p, x), and on values mt_get(x), mt_put<T>(x)
//   mt_rounded<T>(x): x after rounding to T and back
//   mt_pack<T, N>; mt_read(out, p, i, n), mt_write(p, i, n, x): N neighbours in one access
//   mt_NAME(...) for every elementwise op, on mt_compute types
//   mt_block_scan(x, all, shared): running sums over the threads of a block
//   mt_philox(block, stream, step, key low, key high).v[0..3]; mt_philox_lane(result, lane)
//   mt_float_of(bits), mt_bits_of(x), mt_double_of(bits); mt_mul_rn, mt_add_rn on doubles
std::string_view preamble();

// "float", "double", "mt_bf16", "int", "long long", "unsigned char", ...
std::string_view type_name(DType dtype);
// The type that arithmetic on `dtype` is done in: float for 16-bit floats, else type_name.
std::string_view compute_type(DType dtype);
// A literal of `compute_type(dtype)` that reads back exactly the value; NaN and infinity included.
std::string literal(double value, DType dtype);

}  // namespace meshtrain::gpu
