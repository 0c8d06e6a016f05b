// Which convolutions are cuDNN's.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// float32 and 16-bit floats, with channels last, any strides, dilations and padding before and
// behind. Not: float64, and one channel a group, where a library made for matrix products reads
// most of its operands in vain.
bool library_takes(const ConvShape& shape, ConvOp op);

}  // namespace meshtrain::gpu
