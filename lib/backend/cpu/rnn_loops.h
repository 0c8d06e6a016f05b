// The inner loops of simd/rnn.cc, for each level of the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernel_table.h"

namespace meshtrain::cpu {

// Batch items `first` to `first + count` of a recurrent cell over all steps (ir/ops/rnn.cc). Arrays
// have all `batch` items; null: absent. Cell and activations are numbers of mt::RnnCell and
// mt::RnnActivation.
struct RnnBlock {
  int cell = 0, activation = 0, recurrent = 0;
  int64_t batch = 0, steps = 0, units = 0;
  int64_t space[3] = {1, 1, 1}, window[3] = {1, 1, 1};
  int64_t first = 0, count = 0;  // one item where there are images
  const void *x = nullptr, *kernel = nullptr, *h0 = nullptr, *c0 = nullptr, *bias = nullptr;
  const uint8_t* mask = nullptr;
  const void* drop = nullptr;
  void *h = nullptr, *c = nullptr, *gates = nullptr;  // results; operands of the gradient
  const void *dh = nullptr, *dc = nullptr;
  void *dx = nullptr, *dh0 = nullptr, *dc0 = nullptr, *extra = nullptr;
};
using RnnLoop = void (*)(const RnnBlock& block, void* scratch);

struct RnnLoops {
  RnnLoop forward[kNumTypes] = {}, gradient[kNumTypes] = {};       // float32 and float64
  size_t (*scratch_bytes[kNumTypes])(const RnnBlock&, bool) = {};  // whether of the gradient
};

// Those for this processor.
const RnnLoops& rnn_loops();

}  // namespace meshtrain::cpu
