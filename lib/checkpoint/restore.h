// Restores a model from a checkpoint, on any mesh, and checks what may have changed since.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/reader.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "exec/executor.h"

namespace meshtrain {

// Returns the identity of the training samples and of their order. The checksum of an array above
// 64 MiB covers that many bytes in evenly spread rows, so that it needs no pass over the data. It
// depends on the bytes alone: a copy at another path is the same data.
DataCursor data_cursor(const Dataset& train, const Config& config);

// Returns the values of a resolved config by path, in file order. A list of scalars is one value.
std::vector<std::pair<std::string, std::string>> config_values(std::string_view text);

// A key of the config that has another value than in the checkpoint.
struct ConfigChange {
  std::string key;            // "fit.epochs"
  std::string before, after;  // as YAML; empty when the key was added or removed
  // The object around the key, when the whole object was added or removed:
  // "callbacks.0.EarlyStopping"; else empty.
  std::string object = {};
};
// Returns the changes between two resolved configs (show_config), in the order of the second.
std::vector<ConfigChange> config_changes(std::string_view before, std::string_view after);
// Returns the changes since a checkpoint was written. A key that is newer had its default.
std::vector<ConfigChange> changes_since(const CheckpointReader& reader, std::string_view now);
// Returns "fit.epochs  2 -> 4", a line for each key, and one for each added or removed object.
std::string changes_text(const std::vector<ConfigChange>& changes);

// Reads this process's shards of a variable from a tensor of the same shape and type. Reads only
// the parts of the files that overlap these shards.
void read_shards(const CheckpointReader& reader, const CheckpointTensor& tensor,
                 VariableStore& store, int variable);

// Returns the changes that invalidate the checkpoint's position in the data; empty when it is
// valid. More settings matter within an epoch than at its beginning.
struct CursorChange {
  std::string key;  // "fit.batch_size"
  std::string before, after;
};
std::vector<CursorChange> cursor_changes(const TrainState& was, const DataCursor& now);

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
