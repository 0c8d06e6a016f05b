#include "exec/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace meshtrain {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Arena::Arena(int64_t bytes) {
  size_ = std::max<size_t>(static_cast<size_t>(bytes), 64);
  const bool is_large = size_ >= kHugePage;
  if (is_large)
    size_ = (size_ + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw RuntimeFailure(
        ExitCode::kMesh,
        fmt::format("cannot allocate {} bytes for activations: {}", size_, std::strerror(errno)));
  }
  if (is_large)
    madvise(memory, size_, MADV_HUGEPAGE);  // only a hint
  std::memset(memory, 0, size_);
  data_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() {
  munmap(data_, size_);
}

void StepScratch::begin_step() {
  for (Block& block : blocks_)
    block.is_used = false;
}

std::byte* StepScratch::take(int64_t bytes) {
  Block* best = nullptr;
  for (Block& block : blocks_) {
    const bool fits = !block.is_used && block.memory.size() >= bytes;
    if (fits && (best == nullptr || block.memory.size() < best->memory.size()))
      best = &block;
  }
  if (best == nullptr) {
    blocks_.push_back({HostTensor(DType::kUInt8, {std::max<int64_t>(bytes, 64)}), false});
    best = &blocks_.back();
  }
  best->is_used = true;
  return best->memory.bytes();
}

}  // namespace meshtrain
