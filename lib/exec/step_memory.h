// StepMemory: memory that is in use only while a step runs. The programs of a model never run at
// the same time, so they share blocks. When the largest program takes first, it decides the total.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace meshtrain {

class StepMemory {
 public:
  using Allocate = std::function<std::shared_ptr<std::byte>(int64_t bytes)>;
  // `allocate` throws when it fails; it aligns to at least 64 bytes.
  explicit StepMemory(Allocate allocate) : allocate_(std::move(allocate)) {}

  // The blocks that one program took; each block at most once. A copy begins with the blocks of the
  // original; later, both may take the same block.
  class Share {
   public:
    explicit Share(StepMemory& from) : from_(&from) {}
    // Returns the smallest free block of at least `bytes`, or a new one, with undefined content. It
    // lives as long as the StepMemory.
    std::byte* take(int64_t bytes);

   private:
    StepMemory* from_;
    std::vector<bool> has_;  // by block
  };

  std::vector<int64_t> block_bytes() const;
  // Adds blocks up to these sizes. `bytes` begins with the sizes of the existing blocks.
  void extend(const std::vector<int64_t>& bytes);

 private:
  struct Block {
    std::shared_ptr<std::byte> data;
    int64_t bytes = 0;
  };
  void add(int64_t bytes);

  Allocate allocate_;
  std::vector<Block> blocks_;
};

}  // namespace meshtrain
