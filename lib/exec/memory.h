// Memory of the host for steps: arenas for the planned buffers, and what kernels need besides.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cpu/kernel.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Zeroed memory in huge pages where the system has them, touched when it is made.
class Arena {
 public:
  // Throws RuntimeFailure (exit 4) when the memory cannot be had.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Intermediate results of one step at a time: begin_step() makes all blocks free again.
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
