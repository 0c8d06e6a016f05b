// TrainingRun: one run from its config to its end, new or resumed from a checkpoint, with all files
// in its folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/coordinator.h"
#include "engine/engine.h"
#include "engine/make_plan.h"
#include "engine/run_data.h"
#include "record/console.h"
#include "record/run_info.h"
#include "train/callbacks/callback_list.h"
#include "train/checkpointer.h"
#include "train/initial_state.h"
#include "train/replay_stop.h"
#include "train/resume_target.h"
#include "train/run_request.h"
#include "train/trainer.h"

namespace meshtrain {

class RunWriter;

// The name of a new run's folder, from the process that started this one and may start it again.
inline constexpr const char* kNewFolderVariable = "MESHTRAIN_NEW_FOLDER";

class TrainingRun {
 public:
  // Throws ConfigError with every problem of the config.
  explicit TrainingRun(RunRequest request);

  const Config& config() const { return config_; }
  const Coordinator& coordinator() const { return coordinator_; }
  // Removes the callbacks that write files: a replay must not touch files of the run.
  void drop_outside_callbacks();
  // Sets `started` before it writes the run's files. Throws the error that ends the run, and
  // ReplayEnded.
  int run(ResumeTarget target, bool& started, const std::optional<ReplayStop>& stop = {});

 private:
  struct Parts;

  void begin(const ResumeTarget& target);
  RunData read_data(const ResumeTarget& target);
  std::unique_ptr<Engine> compile(RunData& data) const;
  void begin_or_resume(const Parts& parts, const ResumeTarget& target) const;
  void train(const Parts& parts, bool is_resumed, const std::optional<ReplayStop>& stop);
  RunDir make_run_dir(const RunDirOptions& options, int64_t weights, Console& console);
  RunInfo describe(Engine& engine, const PlanSummary& plan, const RunData& data, const RunDir& run,
                   const ResumeTarget& target) const;
  CallbackContext callback_context(Engine& engine, const RunData& data, const RunDir& run,
                                   RunWriter& record, const ResumeTarget& target) const;
  CheckpointerOptions checkpointer_options(const ResumeTarget& target, RunDir& run,
                                           CallbackList& callbacks, RunWriter& record);
  void write_run_files(const RunDir& run, const PlanSummary& plan, Engine& engine) const;
  void show_start(const RunInfo& info, const PlanSummary& plan, const Engine& engine) const;

  const RunRequest request_;
  Config config_;
  Coordinator coordinator_;        // with the other processes of this run
  double started_at_;              // of rank 0
  std::string written_;            // the config as the user wrote it
  std::string portable_;           // the config as checkpoints keep it
  std::string learned_;            // text of data.json; "" when the source learns nothing
  DataCursor cursor_;              // of the training data
  std::vector<bool> sees_folder_;  // of the run: by rank
  Diagnostics data_warnings_;
  InitialState initial_;
};

// Returns the folder for results: `run_dir`, the value of -o, else that of the config.
RunDirOptions run_dir_options(const std::string& run_dir, const Config& config);
// True when hosts that do not see a run's folder send their files to rank 0 and receive copies.
bool gathers(const Config& config);

}  // namespace meshtrain
