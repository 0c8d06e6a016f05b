// Convolutions in float32 by the code that oneDNN generates for a shape.
//
// Adjacent images that share a kernel are a run; each run is split into chunks, and each chunk is a
// call of one primitive. The size of chunks depends on shapes only. Kernels are rearranged to the
// blocks of the primitive before, gradients of kernels after.
#pragma once

#include "backend/cpu/conv_primitive.h"

namespace meshtrain::cpu {

// All of these return no kernel when conv.cc must use its loops: for another type, too few images
// to divide, a shape without generated code, or a case that measured slower.
KernelList make_dnnl_conv(const ConvShape& shape, ConvKind kind, const std::vector<ConvJob>& jobs,
                          ScratchAllocator& scratch);
KernelList make_dnnl_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
