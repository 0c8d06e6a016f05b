// Launches of device/rnn.cuh.
#include <fmt/format.h>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

std::string sizes_text(const RnnShape& n, const RnnArrays& a) {
  return fmt::format(
      "RnnSizes{{(RnnCell){}, (RnnActivation){}, (RnnActivation){}, {}, {}, {}, {}, {}, {}, "
      "{{{}}}, {{{}}}}}",
      static_cast<int>(n.cell), static_cast<int>(n.activation), static_cast<int>(n.recurrent),
      n.batch, n.steps, n.units, a.mask != nullptr ? "true" : "false",
      a.drop != nullptr ? "true" : "false", a.gates != nullptr ? "true" : "false",
      fmt::join(n.space, ", "), fmt::join(n.window, ", "));
}

// How a block computes an item (device/rnn.cuh).
struct BlockPlan {
  int64_t pack = 1;  // elements of an access to the kernel
  int64_t scratch_bytes = 0, parts_bytes = 0;
  bool in_shared = false;  // the scratch

  BlockPlan(const RnnShape& n, const std::byte* kernel) {
    constexpr int64_t kAccess = 16, kMostShared = 48 * 1024;
    const auto item = static_cast<int64_t>(dtype_size(n.dtype));
    const auto value = static_cast<int64_t>(dtype_size(compute_dtype(n.dtype)));
    while (2 * pack * value <= kAccess && n.units % (2 * pack) == 0 &&
           is_aligned(kernel, 2 * pack * item))
      pack *= 2;
    scratch_bytes = n.pixels() * (n.columns() + 4 * n.units) * value;
    parts_bytes = kThreads * pack * value;
    in_shared = parts_bytes + scratch_bytes <= kMostShared;
  }
  unsigned shared_bytes() const {
    return static_cast<unsigned>(parts_bytes + (in_shared ? scratch_bytes : 0));
  }
  std::string text(bool is_gradient) const {
    return fmt::format("RnnBlock{{{}, {}, {}}}", pack, in_shared, is_gradient);
  }
};

}  // namespace

void GpuLowering::make(const ScanRnnSpec& spec) {
  const RnnShape& n = spec.shape;
  MESHTRAIN_CHECK(is_floating(n.dtype), "{}", dtype_name(n.dtype));
  if (n.state_elements() == 0)
    return;
  const RnnArrays& a = spec.arrays;
  const auto item = static_cast<int64_t>(dtype_size(n.dtype));
  const int64_t states = n.state_elements() * item, sequence = states * n.steps;
  const int64_t columns = n.columns(), rows = n.batch * n.pixels();
  const int64_t products = rows * n.steps * columns * item;
  const BlockPlan plan(n, a.kernel);
  const int64_t scratch_bytes = n.batch * plan.scratch_bytes;
  std::byte* const memory = plan.in_shared ? nullptr : scratch(scratch_bytes);
  const bool is_gradient = spec.is_gradient;
  const std::vector<Use> arrays = {
      {a.x, products, false},
      {a.kernel, n.kernel_elements() * item, false},
      {a.h0, states, false},
      {a.c0, states, false},
      {a.bias, columns * item, false},
      {a.mask, n.batch * n.steps, false},
      {a.h, sequence, !is_gradient},
      {a.c, sequence, !is_gradient},
      {a.dh, sequence, false},
      {a.dc, sequence, false},
      {a.dx, products, true},
      {a.dh0, states, true},
      {a.dc0, states, true},
      {a.extra, n.cell == RnnCell::kGru ? sequence : products, true},
      {memory, scratch_bytes, true},
      {a.drop, rows * columns * item, false},
      {a.gates, rows * n.steps * n.gate_columns() * item, !is_gradient}};
  Launch launch;
  launch.blocks = static_cast<uint64_t>(n.batch);
  launch.work = rows * n.steps * (n.kernel_elements() + 5 * columns);
  std::vector<Use> uses;
  for (const Use& use : arrays) {
    launch.args.push_back(address(use.data));
    if (use.data != nullptr)
      uses.push_back(use);
  }
  launch.body = make_body(
      "scan_rnn",
      call_text("scan_rnn",
                {sizes_text(n, a), std::string(type_name(n.dtype)), plan.text(is_gradient)}, true),
      plan.shared_bytes(), true, "rnn", true);
  add(std::move(launch), uses);
}

}  // namespace meshtrain::gpu
