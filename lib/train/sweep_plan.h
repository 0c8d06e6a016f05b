// SweepPlan: the runs of a sweep, from a file or from flags.
//
//   config: mlp.yaml                    # or a list of files, as `train` takes them
//   method: grid                        # grid | zip | random | list
//   parameters:                         # grid: every combination; zip: the first of each, ...
//     mesh: [8x1, 4x2]                  # mesh, devices, batch_size, epochs: as the flags of train
//     compile.optimizer.learning_rate: [1e-2, 1e-3]
//   fixed: {fit.epochs: 2}              # for all runs
//   parallel: 2
//
// random: `trials: 20`, `seed: 0`; a parameter is a list, or {min: 1e-4, max: 1e-1, scale: log},
// {min: 16, max: 256, integer: true}. list: `runs: [{mesh: 8x1, seed: 1}, {mesh: 4x2}]`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "train/sweep_file.h"

namespace meshtrain {

struct SweepPlan {
  LoadOptions base;  // files and overrides of all runs
  std::string method = "grid";
  std::vector<SweepValues> members;
  int64_t repeated = 0;  // members that were left out because others have the same values
  int64_t parallel = 1;  // runs at a time
  std::optional<MedianRule> early_stop;
};

// What the command line says beside the config.
struct SweepFlags {
  std::vector<std::string> grid, zip, random;  // "KEY=VALUE,VALUE"
  int64_t trials = 0, parallel = 0;            // 0: not given
  std::optional<int64_t> seed;
  bool early_stop = false;
};

// `load`: the words of the command line. A file with the key `config` describes the sweep; the
// words and flags add to it. Throws ConfigError with every problem: E100 to E114 for the file, E140
// for flags that do not fit together, and whatever is wrong with the config of any run.
SweepPlan make_sweep_plan(LoadOptions load, const SweepFlags& flags);

// The options to load the config of a run with. A key is set before its parts are, whichever was
// given first.
LoadOptions member_options(const SweepPlan& plan, const SweepValues& values);
// "mesh=4x2 learning_rate=0.01": the last words of the keys where these are different.
std::string values_text(const SweepValues& values);
// The last words of keys, as many as make them different.
std::vector<std::string> short_keys(const std::vector<std::string>& keys);

}  // namespace meshtrain
