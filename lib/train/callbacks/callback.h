// Callback: what acts on training at its landmarks (Keras 3 callbacks/callback.py).
//
// To add one:
//   1. its arguments, a struct with its declaration: lib/config/callback_classes.h (checks that
//      need nothing but the config: lib/config/catalogue_callbacks.cc);
//   2. a class here, in a file pair of its own, that takes that struct and overrides the landmarks
//      it needs;
//   3. a line in the table of make_callbacks.cc (checks that need the model: check_callbacks.cc);
//   4. a row in configs/KERAS.md.
//
// What it knows about the epochs so far (best value, patience, how long its file is) must be in
// save_state(): a killed run resumes from a checkpoint, maybe in the middle of an epoch, as
// if nothing had happened. Files that grow must forget what was written after that checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/callback_classes.h"
#include "config/config.h"
#include "data/learned.h"
#include "engine/hook.h"
#include "record/run_summary.h"  // find_log

namespace meshtrain {

class Engine;

// A checkpoint of everything, in a folder of its own.
struct StateSave {
  std::string path;
  std::function<void(const std::string& error)> done;  // error: why it was not saved, or empty
};

// What a callback can see and do. One for all callbacks of a run.
struct CallbackContext {
  StepRunner& runner;    // weights, running logs, learning rate, iterations
  const Config& config;  // of the run
  std::string run_dir;   // relative paths begin here
  Clock now;             // seconds
  std::function<void(const std::string& text)> print;  // as Keras prints it, to the record (stdout)
  std::function<void(const std::string& text)> warn;
  // Whether larger values of a log ("val_accuracy") are better.
  std::function<bool(const std::string& log)> larger_is_better;
  // Writes the model as it is to a .keras, .weights.h5 or .safetensors file, whole or not at all;
  // makes the folder. Throws RuntimeFailure (exit 74).
  std::function<void(const std::string& path)> save_model;
  // Of several processes all have the same callbacks, which do the same; rank 0's write files.
  bool writes = true;
  Clock shared_now = now;  // seconds, the same on all of them: what decides
  // A state that is loaded is of this run, not of another one whose checkpoint it begins from.
  bool same_run = true;
  // In the folder of an attempt that saved nothing, whose files are still there.
  bool begins_again = false;
  // Of a run; none where callbacks are tested alone.
  Engine* engine = nullptr;
  LearnedPtr learned = nullptr;  // from the training data
  // While the result lives, other processes wait so many seconds for this one.
  std::function<std::shared_ptr<void>(const char* what, double seconds)> announce =
      [](const char*, double) { return nullptr; };
  // Validates between two steps, in `steps` batches; 0: as many as after an epoch. Metrics are then
  // those of the validation.
  std::function<void(const TrainPosition& at, int64_t steps)> validate = nullptr;

  // Checkpoints of everything that callbacks ask for. Saved when all hooks have had the landmark,
  // so that the state of each is in it.
  std::vector<StateSave> state_saves = {};

  // `path` itself when absolute, else within the run's folder.
  std::string resolve(const std::string& path) const;
  // The same for a file to write; where others write, nowhere.
  std::string output(const std::string& path) const;
};

// Whether a path of a callback is within the run's folder, where no other run writes.
bool is_within_run(const std::string& path);

// Epochs and batches count from 0, as in Keras' callbacks.
class Callback : public Hook {
 public:
  Callback(CallbackContext& context, std::string state_name)
      : context_(context), state_name_(std::move(state_name)) {}

  std::string state_name() const override { return state_name_; }

 protected:
  CallbackContext& context() const { return context_; }

 private:
  CallbackContext& context_;
  std::string state_name_;
};

// Changes a log, or adds it as the last one.
void set_log(Logs& logs, const std::string& name, double value);

}  // namespace meshtrain
