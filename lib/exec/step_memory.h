// Memory that holds something only while a step runs. The programs of a model never run at the same
// time, so all of them take theirs from the same blocks, and the largest, where it
// takes first, decides how much there is.
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
  // `allocate` throws where there is no memory; what it gives is aligned to 64 bytes at least.
  explicit StepMemory(Allocate allocate) : allocate_(std::move(allocate)) {}

  // What one program has of it: each block once. A copy takes what the original has not taken, and
  // both may take the same from then on.
  class Share {
   public:
    explicit Share(StepMemory& from) : from_(&from) {}
    // At least so many bytes that hold anything: the smallest block that is large enough, or a new
    // one. They stay as long as the StepMemory.
    std::byte* take(int64_t bytes);

   private:
    StepMemory* from_;
    std::vector<bool> has_;  // by block
  };

  std::vector<int64_t> block_bytes() const;
  // Makes blocks of these sizes behind those that are there; `bytes` begins with theirs.
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
