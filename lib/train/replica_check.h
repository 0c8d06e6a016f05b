// ReplicaCheck: whether processes that hold copies of the same values hold the same bits. It
// compares every run.check_replicas steps, and records what saves compared.
#pragma once

#include <cstdint>
#include <string>

#include "engine/coordinator.h"
#include "exec/executor.h"

namespace meshtrain {

class ReplicaCheck {
 public:
  // `every`: steps between comparisons; 0: none but those of saves.
  ReplicaCheck(const Coordinator& coordinator, int64_t every)
      : coordinator_(coordinator), every_(coordinator.is_alone() ? 0 : every) {}

  int64_t steps_until_due(int64_t step) const;
  bool is_due(int64_t step) const { return every_ > 0 && step % every_ == 0; }
  // Compares the variables as they are after `step`. Collective. Throws as record() does.
  void compare(VariableStore& store, int64_t step, int64_t last_saved);
  // Records the result of a comparison at `step`. Throws ConfigError E510 where there is a
  // difference; its note names the checkpoint of step `last_saved`.
  void record(const std::string& difference, int64_t step, int64_t last_saved);

 private:
  const Coordinator& coordinator_;
  const int64_t every_;
  int64_t equal_at_ = -1;  // last step at which all were equal
};

}  // namespace meshtrain
