// CPU kernels for collectives between devices and between processes.
#pragma once

#include "backend/cpu/lowering.h"
#include "comm/process_group.h"

namespace meshtrain {

cpu::CpuLowering::MakeCollective collectives_of(Processes processes);

}  // namespace meshtrain
