// Which commands must wait for which, from the memory that they read and write.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/view.h"

namespace meshtrain::gpu {

// Memory as ranges in which every byte has the same last writer and the same readers since then.
class MemoryOrder {
 public:
  // The next command, numbered from 0: earlier ones that it must wait for, ascending. A writer is
  // left out where its readers are in the list.
  std::vector<int> add(const std::vector<Access>& accesses);
  // Ranges and readers looked at so far.
  int64_t steps() const { return steps_; }

 private:
  struct Range {
    const std::byte* end = nullptr;
    int writer = -1;
    std::vector<int> readers;
  };
  using Ranges = std::map<const std::byte*, Range>;

  // Cuts the range that contains `at` there; the first range that begins at `at` or behind it.
  Ranges::iterator cut(const std::byte* at);
  void read(const Access& access, std::vector<int>& out);
  void write(const Access& access, std::vector<int>& out);

  Ranges ranges_;
  int next_ = 0;
  int64_t steps_ = 0;
};

// Drops dependencies that follow from others, for nodes that come in order. Looks back kReach
// nodes; those further away are kept.
class PathReduction {
 public:
  static constexpr int kReach = 16384;

  // Of the next node, numbered from 0: `after`, ascending, without those that others of it wait
  // for.
  std::vector<int> add(const std::vector<int>& after);

 private:
  static constexpr int kWord = 64;
  // All that node v waits for, from word first_word(v) on.
  static int first_word(int node);

  std::vector<std::vector<uint64_t>> reached_;
};

}  // namespace meshtrain::gpu
