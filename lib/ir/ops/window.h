// Sliding windows of convolutions and pools over the spatial dimensions of x (N, spatial..., C).
//
//   cell(i, j) = i * stride + j * dilation - pad_before        (of output i and window cell j)
//   outputs    = floor((input + pad_before + pad_after - reach) / stride) + 1
//   reach      = (cells - 1) * dilation + 1
//
// Attributes of the ops: strides, dilations, pads_before, pads_after (ints, one per spatial
// dimension).
#pragma once

#include "ir/builder.h"
#include "ir/graph.h"

namespace meshtrain {

Window window_of(const Attrs& attrs);
void set_window(Attrs& attrs, const Window& window);

// Number of cells from the first to the last of a window, with what dilation leaves out.
int64_t window_reach(const Window& window, size_t dim, int64_t cells);
// Number of outputs of spatial dimension `dim`; zero or less when the window does not fit.
int64_t window_outputs(const Window& window, size_t dim, int64_t input, int64_t cells);

}  // namespace meshtrain
