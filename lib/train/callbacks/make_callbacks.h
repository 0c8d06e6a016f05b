// From the config's `callbacks` to CallbackList.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "engine/setup.h"
#include "train/callbacks/callback_list.h"

namespace meshtrain {

struct CallbackType {
  std::string_view class_name;
  // Null: one that is no hook, but says how the run's checkpoints are made and used.
  std::unique_ptr<Callback> (*make)(const ConfigObject&, CallbackContext&,
                                    std::string state_name) = nullptr;
  bool writes_files = false;        // of its own
  bool adds_learning_rate = false;  // to the logs of an epoch
  // Undoes what the callback of this saved state did to the runner; null: nothing. For a run that
  // is resumed without the callback.
  void (*undo)(const std::string& state, StepRunner& runner) = nullptr;
};
// All classes: a new one is a line here, and its file.
std::span<const CallbackType> callback_types();
// Throws InternalError for a name that is none.
const CallbackType& callback_type(std::string_view class_name);

// Undoes what a callback did whose state was saved under this name.
void undo_callback(std::string_view state_name, const std::string& state, StepRunner& runner);

// What can be said before anything is made: E113 for a log or a placeholder that there is not,
// with a list of those there are; E142 (exit 74) for a place that cannot be written to.
void check_callbacks(const Setup& setup, bool validates, Diagnostics& diagnostics);

// Adds E113 for a file of a callback that would replace one that the run reads. Relative paths
// begin at `run_dir`, and are left out where that is not known: "".
void check_outputs(const Config& config, const std::string& run_dir, Diagnostics& diagnostics);

// Adds those of the config, in its order, and one that writes metrics.csv unless one does already.
void add_callbacks(CallbackList& list);

}  // namespace meshtrain
