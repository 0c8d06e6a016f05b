// Dependencies between commands, derived from the memory that they read and write.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/view.h"

namespace meshtrain::gpu {

// Memory as ranges of bytes with the same last writer and the same readers since then.
class MemoryOrder {
 public:
  // Adds the next command, numbered from 0. Returns the earlier commands that it depends on,
  // ascending. A writer is omitted when its readers are in the list.
  std::vector<int> add(const std::vector<Access>& accesses);
  // Ranges and readers visited so far.
  int64_t steps() const { return steps_; }

 private:
  struct Range {
    const std::byte* end = nullptr;
    int writer = -1;
    std::vector<int> readers;
  };
  using Ranges = std::map<const std::byte*, Range>;

  // Splits the range that contains `at` there. Returns the first range that begins at or after
  // `at`.
  Ranges::iterator cut(const std::byte* at);
  void read(const Access& access, std::vector<int>& out);
  void write(const Access& access, std::vector<int>& out);

  Ranges ranges_;
  int next_ = 0;
  int64_t steps_ = 0;
};

// Transitive reduction of dependencies, for nodes in order. It looks back kReach nodes;
// dependencies further away are kept.
class PathReduction {
 public:
  static constexpr int kReach = 16384;

  // Adds the next node, numbered from 0. Returns `after` (ascending) without nodes that other nodes
  // of `after` depend on.
  std::vector<int> add(const std::vector<int>& after);

 private:
  static constexpr int kWord = 64;
  // All nodes that node v depends on, as bits from word first_word(v) on.
  static int first_word(int node);

  std::vector<std::vector<uint64_t>> reached_;
};

}  // namespace meshtrain::gpu
