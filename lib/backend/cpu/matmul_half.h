// Matrix products of bfloat16 and float16, summed in float32 and rounded once.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

KernelPtr make_half_matmul(const MatmulSpec& spec);

}  // namespace meshtrain::cpu
