// Processes: what a run over several processes talks with. One process has none.
#pragma once

#include <memory>

#include "comm/process_group.h"

namespace meshtrain {

class ControlChannel;

struct Processes {
  std::shared_ptr<ProcessGroup> group;      // null: the only process
  std::shared_ptr<ControlChannel> control;  // null together with it, and in tests without faults

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int size() const { return group == nullptr ? 1 : group->size(); }
  // The one that prints, writes the run's files and decides about what is not computed.
  bool is_first() const { return rank() == 0; }
};

}  // namespace meshtrain
