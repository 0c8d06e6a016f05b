// Weights to begin with: of a file, a run or a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "engine/coordinator.h"
#include "engine/step_runner.h"
#include "nn/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Where the weights are that `path` means: itself; of a run its last ones, or the newest checkpoint
// that verifies where it has not come to its end. `warnings` receives what is wrong with newer
// checkpoints, which were skipped. Throws ConfigError E400 (exit 6).
std::string weights_in(const std::string& path, std::vector<std::string>* warnings = nullptr);
// True when weights_in(path) was `taken`, a checkpoint that is gone now: a run in progress deletes
// its old ones.
bool is_pruned(const std::string& path, const std::string& taken);

// The weights of weights_in(path), by path; of what is no checkpoint `model` says which are whose.
// Throws as load_weights does for the file.
std::vector<NamedTensor> read_weights_in(const std::string& path, const Model* model,
                                         std::vector<std::string>* warnings = nullptr);

// Fills every layer weight from weights_in(path): a .safetensors, .npz, .weights.h5 or .keras file
// (the last two need the model, whose layers give their tensors paths), or a checkpoint; element
// types are converted. Throws ConfigError (exit 6) E404..E406, E415 for the file, and E410 with
// every weight that the file lacks, has in another shape, or has in excess; nothing is written
// then. `loc`: where the path was given. `unfit` receives what does not fit, which is no error
// then; these weights stay as they are. With `fills_model` only weights in excess may not fit.
// `warnings` as above. Collective: each process reads the file.
void load_weights(StepRunner& runner, const std::string& path, const SourceLoc& loc,
                  const Model* model = nullptr, std::vector<std::string>* unfit = nullptr,
                  const Coordinator& coordinator = Coordinator(),
                  std::vector<std::string>* warnings = nullptr, bool fills_model = false);

}  // namespace meshtrain
