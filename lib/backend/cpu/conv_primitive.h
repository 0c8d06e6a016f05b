// oneDNN's primitives for convolutions of float32 and bfloat16, made by shape. Gradients of kernels
// are float32.
#pragma once

#include "backend/cpu/conv.h"
#include "backend/cpu/primitive.h"

namespace meshtrain::cpu {

enum class ConvKind { kForward, kDgrad, kWgrad };

// For a fixed number of images side by side, channels last.
struct ConvPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc x, kernel, y;
  dnnl::memory::desc scratch;
};

// The kernel as a model has it: (cells..., channels / groups, filters).
dnnl::memory::desc plain_kernel(const ConvShape& shape, DType dtype);

// Nothing where oneDNN has but reference loops or copies into matrix products, or no primitive at
// all. Kernels have the layout `kernel`, or the best one for the primitive. oneDNN caches the code
// for a shape: the second primitive of a kind costs some 10 us, the first some 200.
std::optional<ConvPrimitive> make_conv_primitive(const ConvShape& shape, ConvKind kind,
                                                 int64_t images, const dnnl::memory::desc* kernel);

}  // namespace meshtrain::cpu
