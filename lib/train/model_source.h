// The model that a command acts on: configs with --weights, or a run or a checkpoint, which has
// both.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"
#include "data/learned.h"
#include "engine/coordinator.h"

namespace meshtrain {

class Engine;

struct ModelSource {
  LoadOptions load;
  std::string weights;  // --weights, else the run's or the checkpoint's; may be ""
  std::string run;      // folder of the run or the checkpoint; "" for a config
};

// Throws ConfigError E140 where there is no file, or something else in a file's place. `resumes`:
// --resume was given.
void check_config_files(const std::vector<std::string>& files, bool resumes);

// `load` has what the command line says, `weights` what --weights says. Throws ConfigError: E140 a
// run with a config or --profile, E100 a run without its config, E400 and the like for a
// checkpoint, or for a folder that is neither.
ModelSource model_source(LoadOptions load, std::string weights);

// Throws ConfigError E140 for --profile: the config of a run or a checkpoint has none.
void refuse_profile(const std::string& profile, const std::string& run);

// Leaves out what predictions do not depend on: metrics, and the state of the optimizer.
void drop_training(CompileConfig& compile);
// Leaves out losses and metrics that are expressions: what a model predicts does not depend on
// them, and what they take of targets is not known without these. Returns whether there were any.
bool drop_expressions(CompileConfig& compile);

// Leaves out `pad_to` of layers: other programs take weights of their own size. A layout may need
// it.
void drop_padding(ModelConfig& model);

// Returns the path of the weights: source.weights, else fit.initial_weights, else "".
const std::string& weights_of(const ModelSource& source, const Config& config);

// Returns what was learned from the training data, as stored beside these weights, else in the run.
// Null when nothing is stored. Throws as learned_beside().
LearnedPtr learned_for(const ModelSource& source, const Config& config);

// Returns a line that names the training files that changed since the run's last start; "" when
// none did, or when the source is no run.
std::string changed_files_note(const ModelSource& source);

// Calls `show` with the line that says which weights were taken of a run.
using ShowText = std::function<void(std::string_view)>;

// A line that names weights of a file that the model does not have; "" when there are none.
std::string left_out_note(const std::string& path, const std::vector<std::string>& unfit);
// source.weights, else fit.initial_weights, else E140 unless the model has no weights. With
// fit.partial_weights the file may have more weights than the model, which `show` says.
void load_source_weights(Engine& engine, const ModelSource& source, const Config& config,
                         const Coordinator& coordinator, const ShowText& show);
// The path of the file that those are read from; "" when none are given.
std::string weights_file(const ModelSource& source, const Config& config, const ShowText& show);

}  // namespace meshtrain
