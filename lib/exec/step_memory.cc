#include "exec/step_memory.h"

#include <algorithm>

#include "exec/memory.h"

namespace meshtrain {

std::byte* StepMemory::Share::take(int64_t bytes) {
  std::vector<Block>& blocks = from_->blocks_;
  has_.resize(blocks.size());
  size_t best = blocks.size();
  for (size_t b = 0; b < blocks.size(); ++b) {
    const bool fits = !has_[b] && blocks[b].bytes >= bytes;
    if (fits && (best == blocks.size() || blocks[b].bytes < blocks[best].bytes))
      best = b;
  }
  if (best == blocks.size()) {
    from_->add(bytes);
    has_.push_back(false);
  }
  has_[best] = true;
  return blocks[best].data.get();
}

std::vector<int64_t> StepMemory::block_bytes() const {
  std::vector<int64_t> out;
  for (const Block& block : blocks_)
    out.push_back(block.bytes);
  return out;
}

void StepMemory::extend(const std::vector<int64_t>& bytes) {
  for (size_t b = blocks_.size(); b < bytes.size(); ++b)
    add(bytes[b]);
}

void StepMemory::add(int64_t bytes) {
  const int64_t size = aligned_bytes(std::max<int64_t>(bytes, 1));
  blocks_.push_back({allocate_(size), size});
}

}  // namespace meshtrain
