// From a checkpoint into a model, on whatever mesh it is now: what may have changed since, and what
// may not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/reader.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "exec/executor.h"

namespace meshtrain {

// The samples as fit takes them and what decides their order. Of arrays beyond 64 MiB the checksum
// is of rows spread evenly over that many bytes: it costs no pass over the data, and a copy of them
// in another place is the same data: its bytes count, not its name, size or time.
DataCursor data_cursor(const Dataset& train, const Config& config);

// A key of the config that has another value than in the checkpoint.
struct ConfigChange {
  std::string key;            // "fit.epochs"
  std::string before, after;  // as YAML; empty when the key was or is not there
  // What the key is a part of and that was or is not there as a whole, such as
  // "callbacks.0.EarlyStopping"; else empty.
  std::string object = {};
};
// Of two resolved configs (show_config), in the order of the second.
std::vector<ConfigChange> config_changes(std::string_view before, std::string_view after);
// Since a checkpoint was written. A key that there was not yet had its default.
std::vector<ConfigChange> changes_since(const CheckpointReader& reader, std::string_view now);
// "fit.epochs  2 -> 4", a line for each key; for an object that came or went one for all of it.
std::string changes_text(const std::vector<ConfigChange>& changes);

// What this process holds of a variable, out of a tensor of the same shape and type. Of the files
// only the parts that have some of it are read.
void read_shards(const CheckpointReader& reader, const CheckpointTensor& tensor,
                 VariableStore& store, int variable);

// What keeps the place in the data that `was` has from being found where `now` counts; empty when
// nothing does. Within an epoch more matters than at its beginning.
struct CursorChange {
  std::string key;  // "fit.batch_size"
  std::string before, after;
};
std::vector<CursorChange> cursor_changes(const TrainState& was, const DataCursor& now);

struct RestoreOptions {
  std::vector<std::string> allow;  // keys that may have changed all the same
  bool reset_optimizer = false;    // weights only
  bool reset_cursor = false;       // begin the epoch anew
  bool partial = false;            // of another model the weights that fit
};

// Throws ConfigError E140 for a key of `allow` that restore() never asks for.
void check_allowed_keys(const std::vector<std::string>& allow);

// Whether the checkpoint has each weight of the model with its shape and type, and no others.
bool has_same_weights(Engine& engine, const CheckpointReader& reader);

// Fills every variable of the engine and sets its counters. A learning rate that a callback set
// goes on unless the config's own has changed. With `partial` weights that do not fit stay as they
// are, with a warning each. Returns where training goes on. Throws ConfigError, before anything is
// written: E410 weights that do not fit, E411 another model or loss, E412 another optimizer, E413
// other data or another order of them.
TrainPosition restore(Engine& engine, const CheckpointReader& reader, const DataCursor& cursor,
                      const std::vector<ConfigChange>& changes, const RestoreOptions& options,
                      std::vector<std::string>& warnings);

}  // namespace meshtrain
