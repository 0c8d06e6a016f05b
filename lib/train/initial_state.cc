#include "train/initial_state.h"

#include <fmt/format.h>

#include <optional>

#include "checkpoint/restore.h"
#include "config/run_files.h"
#include "engine/adapt.h"
#include "engine/data_warnings.h"
#include "interop/save_model.h"
#include "train/callbacks/make_callbacks.h"
#include "train/callbacks/model_checkpoint.h"
#include "train/learned_file.h"
#include "train/load_weights.h"
#include "train/training_run.h"

namespace meshtrain {
namespace {

class StateReader {
 public:
  StateReader(const StateSources& run, InitialState& out) : run_(run), out_(out) {}

  void read(Engine& engine, const RunData& data, const ResumeTarget& target) {
    out_.warnings = target.warnings;
    const auto announced = run_.coordinator.announce("reading the weights");
    if (target.reader) {
      if (run_.request.restore.partial) {
        adapt_to_data(engine.model(), *data.train, engine);
      }
      run_.coordinator.on_all_ranks("reading the checkpoint", [&] {
        out_.changes = changes_since(*target.reader, run_.portable);
        out_.position = restore(engine, *target.reader, run_.cursor, out_.changes,
                                run_.request.restore, out_.warnings);
      });
    } else if (begin_from_newest(engine)) {
      return;
    } else if (!run_.config.fit.initial_weights.value.empty()) {
      std::vector<std::string> unfit;
      const bool is_partial = run_.request.restore.partial || run_.config.fit.partial_weights;
      if (is_partial) {
        adapt_to_data(engine.model(), *data.train, engine);
      }
      load_weights(engine, run_.config.fit.initial_weights, run_.config.fit.initial_weights.loc,
                   &engine.model(), is_partial ? &unfit : nullptr, run_.coordinator,
                   &out_.warnings);
      for (const std::string& line : unfit) {
        out_.warnings.push_back(fmt::format("{}: {}", run_.config.fit.initial_weights.value, line));
      }
    } else {
      adapt_to_data(engine.model(), *data.train, engine);
    }
  }

 private:
  // Begins from the newest model of a ModelCheckpoint with `restore`. Epochs count from 0, as in
  // Keras when a script loads a model before fit. Returns false when there is no such model.
  bool begin_from_newest(Engine& engine) {
    for (const ConfigObject& callback : run_.config.callbacks) {
      const auto options = options_if<ModelCheckpointOptions>(callback);
      if (!options || !options->restore) {
        continue;
      }
      const std::string newest = run_.coordinator.broadcast("looking for the newest model", [&] {
        return newest_model(callback,
                            runs_folder(run_dir_options(run_.request.run_dir, run_.config)))
            .value_or(std::string());
      });
      if (!newest.empty()) {
        begin_from(engine, newest, options->filepath.loc);
        return true;
      }
    }
    return false;
  }

  // Reads the weights of a model file, or weights and optimizer state of a checkpoint.
  void begin_from(Engine& engine, const std::string& newest, const SourceLoc& loc) {
    const bool is_model = model_format(newest) != ModelFormat::kNone;
    if (!is_model) {
      run_.coordinator.on_rank_zero("verifying a checkpoint",
                                    [&] { CheckpointReader(newest).verify(); });
    }
    std::optional<Mirror> copy;
    if (gathers(run_.config)) {
      copy.emplace(run_.coordinator, newest, true);
    }
    const std::string path = copy ? copy->path() : newest;
    if (is_model) {
      std::vector<std::string> unfit;
      load_weights(engine, path, loc, &engine.model(),
                   run_.request.restore.partial ? &unfit : nullptr, run_.coordinator);
      out_.warnings.insert(out_.warnings.end(), unfit.begin(), unfit.end());
      out_.began_from = newest + ": its weights";
      return;
    }
    run_.coordinator.on_all_ranks("reading the checkpoint", [&] {
      const CheckpointReader reader(path);
      RestoreOptions options = run_.request.restore;
      options.reset_cursor = true;
      restore(engine, reader, run_.cursor, changes_since(reader, run_.portable), options,
              out_.warnings);
      for (const auto& [name, state] : reader.state().callbacks) {
        undo_callback(name, state, engine);  // the callbacks of this run begin anew
      }
    });
    out_.began_from = newest + ": weights and optimizer";
  }

  const StateSources& run_;
  InitialState& out_;
};

}  // namespace

LearnedPtr learned_before(const ResumeTarget& target, bool partial,
                          const std::optional<ConfigObject>& train, Diagnostics& warnings) {
  if (!target.reader || partial) {
    return nullptr;
  }
  const std::string& path = target.reader->path();
  const std::string text = target.reader->text(run_files::kLearned);
  if (text.empty()) {
    if (train) {
      warn_of_nothing_learned(*train, path, warnings);
    }
    return nullptr;
  }
  return parse_learned(text, path + "/" + run_files::kLearned);
}

InitialState initial_state(Engine& engine, const RunData& data, const ResumeTarget& target,
                           const StateSources& run) {
  InitialState out;
  StateReader(run, out).read(engine, data, target);
  return out;
}

}  // namespace meshtrain
