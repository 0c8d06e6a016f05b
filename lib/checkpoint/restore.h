// Restores a model from a checkpoint, on any mesh, and checks what may have changed since.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/data_cursor.h"
#include "checkpoint/reader.h"
#include "config/config_changes.h"
#include "engine/engine.h"
#include "exec/executor.h"

namespace meshtrain {

// Returns the changes since a checkpoint was written. A key that is newer had its default.
std::vector<ConfigChange> changes_since(const CheckpointReader& reader, std::string_view now);

// Reads this process's shards of a variable from a tensor of the same shape and type. Reads only
// the parts of the files that overlap these shards.
void read_shards(const CheckpointReader& reader, const CheckpointTensor& tensor,
                 VariableStore& store, int variable);

struct RestoreOptions {
  std::vector<std::string> allow;  // keys that may have changed
  bool reset_optimizer = false;    // weights only
  bool reset_cursor = false;       // restart the epoch
  bool partial = false;            // accept another model; restore the weights that fit
};

// Throws ConfigError E140 for a key of `allow` that restore() never checks.
void check_allowed_keys(const std::vector<std::string>& allow);

// Returns whether the checkpoint has exactly the weights of the model, with their shapes and types.
bool has_same_weights(Engine& engine, const CheckpointReader& reader);

// Fills every variable of the engine and sets its counters. Returns the position where training
// resumes. A learning rate that a callback set is kept unless the config's own has changed. With
// `partial`, weights that do not fit keep their values, with a warning each. Throws ConfigError
// before anything is written: E410 weights that do not fit, E411 another model or loss, E412
// another optimizer, E413 other data or another order.
TrainPosition restore(Engine& engine, const CheckpointReader& reader, const DataCursor& cursor,
                      const std::vector<ConfigChange>& changes, const RestoreOptions& options,
                      std::vector<std::string>& warnings);

}  // namespace meshtrain
