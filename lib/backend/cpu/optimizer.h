// One optimizer step on a contiguous range of a variable (formulas: ir/ops/optimizer.cc).
#pragma once

#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_table.h"

namespace meshtrain::cpu {

struct OptimizerSpec {
  OptimizerRule rule = OptimizerRule::kSgd;
  DType dtype = DType::kFloat32;
  int64_t num_elements = 0;
  OptimizerArgs args;                // pointers and fixed scalars
  const std::byte* rate = nullptr;   // scalars of `dtype`, read at every run
  const std::byte* decay = nullptr;  // may be absent
};

KernelPtr make_optimizer(const OptimizerSpec& spec);

}  // namespace meshtrain::cpu
