// Merges commands into calls: equal independent launches become one launch, and runs of tiny
// launches become one block that computes them in order. Generates the text of one module for all
// kernels.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

// Launches of at most so many blocks, and so many elements in all, are merged into one block. A
// node of a CUDA graph takes about 2 us, a block with little work about 0.5 us.
constexpr int64_t kTinyBlocks = 4;
constexpr int64_t kTinyWork = 16384;

// Words of parameters that every CUDA version and device passes to a kernel (4 KB).
constexpr size_t kMaxParams = 512;

// One launch of a __global__ function of the module: kThreads threads a block, one parameter, a
// struct of `params` by value.
struct KernelCall {
  std::string kernel;
  unsigned grid = 1;
  unsigned shared_bytes = 0;
  bool has_barriers = false;
  std::vector<LaunchArg> params;
};

struct Call {
  std::variant<KernelCall, Matmul, Conv, Attention, ExchangeSpec, AllReduceSpec, AllGatherSpec,
               ReduceScatterSpec>
      what;
  std::vector<int> after;     // earlier calls that must be complete
  std::vector<int> commands;  // the commands it computes, as indices into the argument
  std::string path;           // of the steps, for messages
};

struct MergedLaunches {
  std::string module;  // CUDA C++: preamble, bodies, __global__ functions
  std::vector<Call> calls;
};

MergedLaunches merge_launches(const std::vector<Command>& commands);

}  // namespace meshtrain::gpu
