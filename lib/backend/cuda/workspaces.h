// Scratch memory of library calls: which of them may share it, and the memory itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/cuda/core.h"

namespace meshtrain::cuda {

// Calls that share a workspace must never run at the same time.
struct WorkspaceShares {
  std::vector<int> workspace;           // by call; -1: needs none
  std::vector<std::vector<int>> after;  // by call: as given, and what sharing adds
};

// `after`: by call, earlier calls that must have ended; `bytes`: what each call needs. A call gets
// the workspace of one that it comes after anyway, else a new one, else (`most` are there) waits
// for the last that used one.
WorkspaceShares share_workspaces(const std::vector<std::vector<int>>& after,
                                 const std::vector<size_t>& bytes, int most);

// The memory, shared by all plans of a device since these run one after the other.
class Workspaces {
 public:
  explicit Workspaces(const Core& core) : core_(core) {}
  ~Workspaces();
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;

  // At least so many bytes; null where there is no memory. What was given out before stays valid.
  std::byte* memory(int workspace, size_t bytes);

 private:
  struct Block {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  const Core& core_;
  std::vector<Block> current_;
  std::vector<std::byte*> all_;
};

}  // namespace meshtrain::cuda
