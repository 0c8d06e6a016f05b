// Child processes one after another, some at a time: the runs of a sweep.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "comm/child_processes.h"

namespace meshtrain {

struct ChildQueue {
  int slots = 1;  // children at a time
  // Returns the command for a free slot; nothing when none is left.
  std::function<std::optional<ChildCommand>(int slot)> next;
  std::function<void(int slot, int pid)> started = [](int, int) {};
  // 128 + N when signal N ended it.
  std::function<void(int slot, int exit_code)> ended;
  // Whether a signal asks to stop: no more children are started then.
  std::function<bool(int number)> stops = [](int) { return true; };
  // Called every 100 ms: the slots whose children are asked to stop (SIGTERM, once each).
  std::function<std::vector<int>()> to_stop = [] { return std::vector<int>(); };
};

// Runs until no child is left. Signals are passed to all children; after one that stops, no more
// are started. Each child leads a process group and dies with this process (SIGKILL). Returns the
// number of the first signal that asked to stop; 0: none. Throws RuntimeFailure (exit 8) when a
// child cannot be started, when the others have ended after SIGTERM.
int run_child_queue(const ChildQueue& queue);

}  // namespace meshtrain
