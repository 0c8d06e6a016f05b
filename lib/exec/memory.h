// Memory of the host for steps: arenas for the planned buffers, and scratch for kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cpu/kernel.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Of the places of buffers within one allocation, on the host and on devices, and of their sizes.
inline constexpr int64_t kBufferAlignment = 256;
constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Zeroed memory, in huge pages where the system has them. Pages are touched on allocation.
class Arena {
 public:
  // Throws RuntimeFailure (exit 4) when allocation fails.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Scratch of one step at a time: begin_step() frees all blocks.
class StepScratch final : public cpu::ScratchAllocator {
 public:
  void begin_step() override;
  std::byte* take(int64_t bytes) override;

 private:
  struct Block {
    HostTensor memory;
    bool is_used = false;
  };
  std::vector<Block> blocks_;
};

}  // namespace meshtrain
