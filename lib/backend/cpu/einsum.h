// Sums of products over named dimensions, lowered to matrix products.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// A view whose dimension i is called labels[i]; no label twice.
struct LabelledView {
  View view;
  std::vector<int> labels;
};

// out[labels] = sum over the labels that it lacks of the product of the one or two operands. Labels
// of the operands that `out` has must be of its sizes; every label of `out` is in an operand.
// Intermediate results take memory from `scratch`.
KernelList make_einsum(const std::vector<LabelledView>& operands, const LabelledView& out,
                       ScratchAllocator& scratch);

}  // namespace meshtrain::cpu
