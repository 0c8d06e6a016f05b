// Kernels of the processor for what devices or processes do together.
#pragma once

#include "backend/cpu/lowering.h"
#include "comm/process_group.h"

namespace meshtrain {

cpu::CpuLowering::MakeCollective collectives_of(Processes processes);

}  // namespace meshtrain
