// Schedule: which worker computes which units of each kernel, and where workers must wait for each
// other. Decided once; a step of training only walks through these lists.
#pragma once

#include <vector>

#include "backend/cpu/kernel.h"

namespace meshtrain {

struct KernelSlice {
  const cpu::Kernel* kernel = nullptr;  // null: wait for all workers
  int64_t begin = 0, end = 0;           // units
};

struct Schedule {
  std::vector<std::vector<KernelSlice>> workers;  // beside each other
  int num_barriers = 0;
  bool is_serial = true;  // only worker 0 has something to do
};

// Every worker gets its share of the units of each kernel, the same fraction every time, so that
// what follows a kernel mostly reads what its own worker wrote. A barrier stands only before a
// kernel that touches what another worker touched since the last one.
Schedule make_schedule(const cpu::KernelList& kernels, int num_workers);

}  // namespace meshtrain
