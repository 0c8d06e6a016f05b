// The state that a run begins with: its first weights, or all that a checkpoint has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config_changes.h"
#include "data/learned.h"
#include "engine/coordinator.h"
#include "engine/engine.h"
#include "engine/run_data.h"
#include "train/resume_target.h"
#include "train/run_request.h"

namespace meshtrain {

struct InitialState {
  TrainPosition position;
  std::vector<ConfigChange> changes;  // since the checkpoint
  std::vector<std::string> warnings;
  std::string began_from;  // a model of an earlier run
};

// What a run knows when it reads its state.
struct StateSources {
  const RunRequest& request;
  const Config& config;
  const Coordinator& coordinator;
  const DataCursor& cursor;     // of the training data
  const std::string& portable;  // the config as checkpoints keep it
};

// Reads the first weights from the checkpoint, a ModelCheckpoint or fit.initial_weights. Drawn ones
// need the statistics of the data alone.
InitialState initial_state(Engine& engine, const RunData& data, const ResumeTarget& target,
                           const StateSources& run);

// Returns what the resumed run learned; null for a new run, and with --partial, which learns anew.
LearnedPtr learned_before(const ResumeTarget& target, bool partial,
                          const std::optional<ConfigObject>& train, Diagnostics& warnings);

}  // namespace meshtrain
