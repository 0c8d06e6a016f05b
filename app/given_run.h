// What evaluate, predict and export act on: configs with --weights, or a run or a checkpoint, which
// has both.
#pragma once

#include "cli.h"
#include "data/learned.h"

namespace meshtrain {

struct GivenRun {
  LoadOptions options;
  std::string weights;  // --weights, else the run's or the checkpoint's; may be ""
  std::string run;      // folder of the run or the checkpoint; "" for a config
};

// Throws ConfigError: E140 a run with a config or --profile, E100 a run without its config, E400
// and the like for a checkpoint, or for a folder that is neither.
GivenRun given_run(const Arguments& arguments, bool require_data);

// Returns the path of the weights: given.weights, else fit.initial_weights, else "".
const std::string& weights_of(const GivenRun& given, const Config& config);

// Returns what was learned from the training data, as stored beside these weights, else in the run.
// Null when nothing is stored. Throws as learned_beside().
LearnedPtr learned_for(const GivenRun& given, const Config& config);

// given.weights, else fit.initial_weights, else E140 unless the model has no weights. Says which it
// took of a run, unless --quiet.
void load_given_weights(Engine& engine, const GivenRun& given, const Config& config,
                        const Arguments& arguments, const Coordinator& coordinator);

}  // namespace meshtrain
