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
// that verifies where it has not come to its end. Throws ConfigError E400 (exit 6).
std::string weights_in(const std::string& path);

// The weights of weights_in(path), by path; of what is no checkpoint `model` says which are whose.
// Throws as load_weights does for the file.
std::vector<NamedTensor> read_weights_in(const std::string& path, const Model* model);

// Fills every layer weight from weights_in(path): a .safetensors, .npz, .weights.h5 or .keras file
// (the last two need the model, whose layers give their tensors paths), or a checkpoint; element
// types are converted. Throws ConfigError (exit 6) E404..E406, E415 for the file, and E410 with
// every weight that the file lacks, has in another shape, or has in excess; nothing is written
// then. `loc`: where the path was given. `unfit` as above; what does not fit stays as it is.
// Collective: each process reads the file.
void load_weights(StepRunner& runner, const std::string& path, const SourceLoc& loc,
                  const Model* model = nullptr, std::vector<std::string>* unfit = nullptr,
                  const Coordinator& coordinator = Coordinator());

}  // namespace meshtrain
