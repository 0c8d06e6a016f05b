// Memory of the emulated device, and a check of what a call does to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backend/view.h"

namespace meshtrain::gpu {

class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t total_bytes) : total_bytes_(total_bytes) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Zeroed, aligned to 256 bytes, between pages that nobody may touch, where nothing was allocated
  // before. nullptr: there is not so much left.
  std::byte* allocate(int64_t bytes);
  // False where no allocation begins at `memory`.
  bool free(std::byte* memory);
  // Whether the range lies in one live allocation. Empty ranges lie everywhere.
  bool contains(const std::byte* begin, const std::byte* end) const;
  // Whether the byte was in an allocation that has been freed.
  bool was_freed(const std::byte* byte) const { return find(freed_, byte, byte + 1); }
  int64_t free_bytes() const { return total_bytes_ - used_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  // For whoever touches the memory or this, where several threads do.
  std::mutex& mutex() const { return mutex_; }

  struct Block {
    int64_t bytes = 0;
    std::byte* mapped = nullptr;  // with the pages around it
    size_t mapped_bytes = 0;
  };
  const std::map<std::byte*, Block>& blocks() const { return blocks_; }

 private:
  int64_t total_bytes_, used_bytes_ = 0;
  mutable std::mutex mutex_;
  using Blocks = std::map<std::byte*, Block>;  // by their beginning
  static bool find(const Blocks& blocks, const std::byte* begin, const std::byte* end);
  Blocks blocks_, freed_;
};

// Holds everything outside of what a call may touch while it runs: there it reads garbage, and what
// it writes where it must not is found afterwards.
class Watch {
 public:
  Watch(const DeviceMemory& memory, const std::vector<Access>& accesses);
  // Puts the memory back. Returns where something was written that must not be, or "".
  std::string end();

 private:
  struct Range {
    std::byte *begin, *end;
    bool is_hidden;  // else only read
  };
  std::vector<Range> ranges_;    // everything that must stay as it is
  std::vector<std::byte> kept_;  // of the ranges, one after the other
};

}  // namespace meshtrain::gpu
