// RunCheckpoints: the checkpoints of a run: what they say beside tensors, and their folder. Rank 0
// alone locks, links and deletes there; what cannot be linked or deleted is a warning.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "engine/coordinator.h"
#include "engine/engine.h"
#include "engine/hook.h"
#include "train/save_policy.h"

namespace meshtrain {

class RunCheckpoints {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Takes the lock and deletes what unfinished saves left. `notes`: what all checkpoints of the run
  // say; texts and the data's cursor of rank 0 at least. run_id is that of a resumed run, empty for
  // a new one. Collective. Throws ConfigError E455 (exit 6).
  RunCheckpoints(Engine& engine, const CheckpointConfig& config, const std::string& run_dir,
                 CheckpointNotes notes, const Coordinator& coordinator, Warn warn);

  const std::string& folder() const { return folder_; }
  std::string path(int64_t step) const;

  // A hook whose state goes into every checkpoint. Add before resume().
  void add_state(Hook& hook) { states_.push_back(&hook); }
  CheckpointNotes make_notes(const TrainPosition& at, const SavePolicy& policy) const;

  // Checks that the saves to come have room. Collective. Throws as check_checkpoint_folder() does.
  void check_room(int64_t num_bytes) const;
  // The engine was restored from this checkpoint, which is one of these where it is the run's
  // `own`. Hooks receive their states, the policy the best one and those that are kept; newer ones
  // (damaged, or of a past that is given up) are quarantined. Collective. Throws FileError.
  void resume(const CheckpointReader& reader, bool own, SavePolicy& policy) const;
  // `step` is saved: links its checkpoint where it is the best, and deletes those not kept.
  void update(const SavePolicy& policy, int64_t step) const;
  void link_best(int64_t step) const;

 private:
  void load_states(std::map<std::string, std::string> saved, bool same_model) const;
  void quarantine_newer(int64_t step, int64_t best) const;
  std::vector<int64_t> kept_steps(const SavePolicy& policy) const;

  Engine& engine_;
  const CheckpointConfig& config_;
  const std::string folder_;
  CheckpointNotes notes_;
  const Coordinator& coordinator_;
  const Warn warn_;
  std::vector<Hook*> states_;
  std::unique_ptr<CheckpointLock> lock_;
};

}  // namespace meshtrain
