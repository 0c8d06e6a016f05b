// The four layouts of every variable, by the user's layouts and the ZeRO level.
//
//   level  storage  gradient  optimizer state   known as
//   0      L        L         L                 plain
//   1, 2   L        Z         Z                 ZeRO-1, ZeRO-2
//   3      Z        Z         Z                 ZeRO-3, FSDP; HSDP when Z leaves out a batch axis
//
// L is the user's layout without the batch axes, Z adds the zero axes to it; the compute layout is
// always L. A user layout that names a batch axis itself requests FSDP of that variable: then Z is
// the user's layout as written. The dimension of experts is the exception: its axes stay in every
// layout, and Z adds the zero axes that are left. Level 1 reduces gradients when the update needs
// them. Level 2 reduces them as soon as they exist, so that fewer are alive at once.
#pragma once

#include "ir/graph.h"

namespace meshtrain {

struct LayoutOptions {
  AxisMask batch_axes = 0;
  int zero = 0;
  AxisList zero_axes;
  // Beside the variables: the dimension that counts experts, kNone or left out for others.
  std::vector<int> expert_dims = {};
};

// `layouts[i]` is the resolved user layout of variables[i] (weights; ignored for others).
// Slots follow their weight's state layout; metrics and scalars are replicated.
void assign_layouts(std::span<Variable> variables, std::span<const Sharding> layouts,
                    const LayoutOptions& options, const DeviceMesh& mesh);

// Returns `base` with `axes` appended to the largest whole dimension that they divide. Returns
// `base` itself when there is none, or when an axis is used already.
Sharding add_zero_axes(const Sharding& base, const Shape& shape, const AxisList& axes,
                       const DeviceMesh& mesh);

}  // namespace meshtrain
