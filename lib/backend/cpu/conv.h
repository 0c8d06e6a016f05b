// Convolutions over images with channels last, float32 and float64.
//
// float32 uses the code that oneDNN generates for a shape (conv_dnnl.h; measured 5 to 50% faster at
// nearly every shape, bench_conv shows it). The loops of simd/conv.cc compute float64 and the few
// cases where they are faster. They also compute shapes without such code in oneDNN, and batches of
// so few images that each must be split among workers. They read operands in place; only images
// that need padding are copied, one at a time, into the scratch of a worker.
#pragma once

#include <array>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// from: images of x, to: of y.
KernelList make_conv(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                     ScratchAllocator& scratch);
// The transpose. from: images of y's gradient, to: of x's.
KernelList make_conv_dgrad(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                           ScratchAllocator& scratch);

// All jobs have the same number of images.
KernelList make_conv_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
