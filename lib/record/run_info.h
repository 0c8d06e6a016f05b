// RunInfo: the description of a run before its first step, for the first screen and the "start"
// event.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "record/batch_work.h"

namespace meshtrain {

// A file or folder of the training data when the run began.
struct TrainingFile {
  std::string path;      // absolute
  int64_t bytes = 0;     // of a file
  int64_t modified = 0;  // seconds since 1970
};

struct RunInfo {
  std::string version;
  std::string config;  // the file, or files, as given
  std::string name;
  std::string run_dir;  // empty for subcommands without a run folder
  int64_t seed = 0;
  std::string dtype_policy;

  std::vector<int64_t> mesh_shape;
  std::vector<std::string> axis_names;
  std::string devices;  // "8 x cpu (virtual) on 2 threads"

  int64_t batch_size = 0;
  BatchWork work;            // of a step of that batch
  std::string batch_axis;    // empty on a mesh without axes
  int64_t batch_shards = 1;  // devices along it
  int64_t steps_per_epoch = 0;
  int64_t initial_epoch = 0;
  int64_t epochs = 0;
  int64_t samples = 0;
  int64_t validation_samples = 0;

  int64_t parameters = 0;       // weights, trainable or not
  int64_t parameter_bytes = 0;  // of one whole copy
  std::string saves;            // "every epoch, the newest 3 are kept"
  std::string began_from;       // another run's model: "ckpt/ckpt-2.keras: its weights"
  std::string resumed_from;     // the checkpoint's folder; empty for a run from the beginning
  std::string resumed_at;       // "epoch 2, step 31 (step 500 in all), from a mesh of 4 x 2"
  std::vector<std::array<std::string, 3>> changes;  // config key, before, after
  std::vector<TrainingFile> training_files;

  std::vector<std::string> overrides;  // "fit.epochs=2": keys and values of the command line
  std::string monitor;                 // the log whose best value makes an epoch the best
  bool larger_is_better = false;       // of that log

  int64_t bytes_per_device = 0;  // weights, optimizer state and metrics that one device holds
};

// Seven lines for people, and one more for a run resumed from a checkpoint:
//   meshtrain 0.1.0  mnist-mlp.yaml
//   mesh        2 x 4  data=2 model=4
//   devices     8 x cpu (virtual) on 2 threads
//   batch       128 = 64 on each of 2 along `data`; 469 steps an epoch
//   parameters  159,010 (621 KiB); 161 KiB of weights and optimizer state per device
//   saves       every epoch, the newest 3 are kept
//   run         runs/mlp/2026-01-05_14-03-22_7f3a
std::string first_screen(const RunInfo& info);

}  // namespace meshtrain
