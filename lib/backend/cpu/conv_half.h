// Convolutions of 16-bit floats where oneDNN has none: float32 ones of widened operands, rounded
// once.
#pragma once

#include "backend/cpu/conv_primitive.h"

namespace meshtrain::cpu {

// `kind`: kForward or kDgrad.
KernelList make_half_conv(const ConvShape& shape, ConvKind kind, const std::vector<ConvJob>& jobs,
                          ScratchAllocator& scratch);
KernelList make_half_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
