#include "train/replica_check.h"

#include <algorithm>
#include <limits>

#include "base/diagnostic.h"
#include "checkpoint/replicas.h"
#include "checkpoint/writer.h"

namespace meshtrain {

int64_t ReplicaCheck::steps_until_due(int64_t step) const {
  return every_ > 0 ? every_ - step % every_ : std::numeric_limits<int64_t>::max();
}

void ReplicaCheck::compare(VariableStore& store, int64_t step, int64_t last_saved) {
  record(replica_difference(store,
                            coordinator_.all_gather("comparing replicas", replica_hashes(store))),
         step, last_saved);
}

void ReplicaCheck::record(const std::string& difference, int64_t step, int64_t last_saved) {
  if (difference.empty()) {
    equal_at_ = std::max(equal_at_, step);  // a save may end after a later comparison
    return;
  }
  throw ConfigError(
      "E510", {},
      fmt::format("{}, found after step {}: the same was computed there", difference, step))
      .note(equal_at_ < 0 ? std::string("it was not compared before")
                          : fmt::format("at step {} they were equal", equal_at_))
      .note("the last good checkpoint is " + checkpoint_name_or_none(last_saved))
      .help("memory or processor of one of these hosts are likely at fault; resume without it");
}

}  // namespace meshtrain
