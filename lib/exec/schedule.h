// Schedule: which worker computes which units of each kernel, and where workers wait for each
// other. It is built once; a training step only iterates over these lists.
#pragma once

#include <vector>

#include "backend/cpu/kernel.h"

namespace meshtrain {

struct KernelSlice {
  const cpu::Kernel* kernel = nullptr;  // null: wait for all workers
  int64_t begin = 0, end = 0;           // units
  // Of a kernel that is shared: its number. A worker takes `chunk` units after the other of its
  // own, and then of others that have some left.
  int shared = -1;
  int64_t chunk = 0;
};

struct Schedule {
  std::vector<std::vector<KernelSlice>> workers;  // the list of each
  int num_barriers = 0, num_shared = 0;
  bool is_serial = true;  // only worker 0 has work
};

// The units of a kernel that are worker w's own.
inline KernelSlice slice_of(const cpu::Kernel& kernel, int worker, int num_workers) {
  const int64_t units = kernel.units();
  return {&kernel, units * worker / num_workers, units * (worker + 1) / num_workers};
}

// Every worker gets the same fraction of the units of a kernel, so that a kernel mostly reads what
// its own worker wrote. A barrier precedes a kernel only when it accesses memory that another
// worker accessed since the last barrier. Kernels that take long are shared, between barriers:
// workers that are done take units of one that other programs slow down.
Schedule make_schedule(const cpu::KernelList& kernels, int num_workers);

}  // namespace meshtrain
