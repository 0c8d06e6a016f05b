#include "backend/gpu/maker.h"

#include <algorithm>

namespace meshtrain::gpu {

GpuMaker::GpuMaker(std::function<std::byte*(int64_t bytes)> allocate)
    : allocate_(std::move(allocate)) {}

void GpuMaker::begin_step(std::string_view path) {
  path_ = path;
  for (Block& block : blocks_)
    block.is_used = false;
}

std::byte* GpuMaker::scratch(int64_t bytes) {
  Block* best = nullptr;
  for (Block& block : blocks_) {
    const bool fits = !block.is_used && block.bytes >= bytes;
    if (fits && (best == nullptr || block.bytes < best->bytes))
      best = &block;
  }
  if (best == nullptr) {
    const int64_t size = std::max<int64_t>(bytes, 256);
    blocks_.push_back({allocate_(size), size, false});
    best = &blocks_.back();
  }
  best->is_used = true;
  return best->memory;
}

void GpuMaker::add(Launch launch, const std::vector<Use>& uses) {
  std::vector<Access> accesses;
  for (const Use& use : uses)
    accesses.push_back({use.data, use.data + use.bytes, use.is_write});
  add(std::move(launch), std::move(accesses));
}

void GpuMaker::add(Launch launch, std::vector<Access> accesses) {
  commands_.push_back({std::move(launch), std::move(accesses), path_});
}

}  // namespace meshtrain::gpu
