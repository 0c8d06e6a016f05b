// Elementwise steps that the product before them computes along with it.
#include <algorithm>

#include "backend/gpu/epilogue.h"
#include "backend/gpu/lowering.h"

namespace meshtrain::gpu {
namespace {

bool touches(const Command& command, const Access& memory) {
  return std::any_of(command.accesses.begin(), command.accesses.end(),
                     [&](const Access& access) { return overlaps(access, memory); });
}

bool writes(const Command& command, const Access& memory) {
  return std::any_of(command.accesses.begin(), command.accesses.end(), [&](const Access& access) {
    return access.is_write && overlaps(access, memory);
  });
}

// Whether the product writes all of `view`, row after row and batch after batch, and nothing else.
bool fills(const Matmul& product, const View& view) {
  const MatmulSpec& s = product.spec;
  return !s.accumulate && s.c == view.data && s.dtype == view.dtype &&
         (s.m == 1 || s.c_row == s.n) && (product.batch == 1 || product.c_step == s.m * s.n) &&
         product.batch * s.m * s.n == num_elements(view.shape);
}

}  // namespace

// The command that made all of `memory`, where nothing else has touched it since.
std::optional<size_t> GpuLowering::producer_of(const Access& memory) const {
  for (size_t i = commands_.size() - 1; i-- > 0;) {
    if (touches(commands_[i], memory))
      return i;
  }
  return std::nullopt;
}

// The product moves to the place of the tape, so what it reads must still be there, and must not be
// where the tape writes.
void GpuLowering::fuse_into_product(const TapeSpec& spec) {
  const auto& [shape, operands, tape, results] = spec;
  const std::optional<EpilogueTape> found = epilogue_tape(operands, tape, results);
  if (!found)
    return;
  const View& view = operands[found->product];
  const Access stored = whole_access(view, false);
  const bool is_last =
      std::any_of(last_reads_.begin(), last_reads_.end(), [&](const Access& memory) {
        return memory.begin <= stored.begin && stored.end <= memory.end;
      });
  const std::optional<size_t> place = is_last ? producer_of(stored) : std::nullopt;
  if (!place)
    return;
  Command& before = commands_[*place];
  auto* product = std::get_if<Matmul>(&before.what);
  if (product == nullptr || product->epilogue || !fills(*product, view) || product->spec.n == 1)
    return;
  const View* bias = found->bias ? &operands[*found->bias] : nullptr;
  const View& result = results[0].view;
  const Access written = whole_access(result, true);
  if (bias != nullptr) {
    // It must be there before the product, and until it has been added.
    const Access added = whole_access(*bias, false);
    if (!repeats_rows(shape, bias->strides, product->spec.n) || overlaps(added, stored) ||
        overlaps(added, written))
      return;
  }
  for (const Access& access : before.accesses) {
    if (access.is_write)
      continue;
    if (overlaps(access, written))
      return;
    for (size_t i = *place + 1; i + 1 < commands_.size(); ++i) {
      if (writes(commands_[i], access))
        return;
    }
  }

  Command apart = std::move(commands_.back());
  commands_.pop_back();
  Command fused = std::move(before);
  commands_.erase(commands_.begin() + static_cast<std::ptrdiff_t>(*place));
  if (bias != nullptr)
    fused.accesses.push_back(whole_access(*bias, false));
  fused.accesses.push_back(written);
  std::get<Matmul>(fused.what).epilogue =
      Epilogue{bias == nullptr ? nullptr : bias->data, found->activation, result.data,
               std::make_shared<const Command>(std::move(apart))};
  commands_.push_back(std::move(fused));
}

}  // namespace meshtrain::gpu
