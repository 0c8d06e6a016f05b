// Runs the blocks of a kernel on the host: threads one after the other, as fibers where they meet
// at barriers or shuffles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/gpu_emulator/module_abi.h"

namespace meshtrain::gpu {

struct Grid {
  const EmulatorModule* module = nullptr;
  const EmulatorKernel* kernel = nullptr;
  const void* params = nullptr;
  unsigned blocks = 1;
  unsigned shared_bytes = 0;
  bool has_barriers = false;
  // 0: blocks and threads in their order; otherwise an order of its own for each number.
  uint64_t seed = 0;
};

// Shared memory holds garbage when a block begins. Returns what the kernel did wrong, or "":
// threads that wait where others have ended or wait elsewhere, barriers in a kernel that is said to
// have none, shared memory written beyond `shared_bytes`.
std::string run_grid(const Grid& grid);

// A permutation of 0 .. n - 1; the identity for seed 0.
std::vector<unsigned> order_of(unsigned n, uint64_t seed);

}  // namespace meshtrain::gpu
