// One optimizer step on a contiguous range of a variable (formulas: ir/ops/optimizer.cc).
#pragma once

#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_table.h"

namespace meshtrain::cpu {

KernelPtr make_optimizer(const OptimizerSpec& spec);

}  // namespace meshtrain::cpu
