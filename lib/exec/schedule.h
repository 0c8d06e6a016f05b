// Schedule: which worker computes which units of each kernel, and where workers wait for each
// other. It is built once; a training step only iterates over these lists.
#pragma once

#include <vector>

#include "backend/cpu/kernel.h"

namespace meshtrain {

struct KernelSlice {
  const cpu::Kernel* kernel = nullptr;  // null: wait for all workers
  int64_t begin = 0, end = 0;           // units
};

struct Schedule {
  std::vector<std::vector<KernelSlice>> workers;  // the list of each
  int num_barriers = 0;
  bool is_serial = true;  // only worker 0 has work
};

// Every worker gets the same fraction of the units of each kernel, so that a kernel mostly reads
// what its own worker wrote. A barrier precedes a kernel only when it accesses memory that another
// worker accessed since the last barrier.
Schedule make_schedule(const cpu::KernelList& kernels, int num_workers);

}  // namespace meshtrain
