// Weight files by Keras path, to and from a model.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "nn/model.h"
#include "tensor/host_tensor.h"
#include "train/agreement.h"
#include "train/step_runner.h"

namespace meshtrain {

struct WantedWeight {
  std::string path;
  Shape shape;
  DType dtype;
};
std::vector<WantedWeight> wanted_weights(const Model& model);
int64_t weight_bytes(const Model& model);  // of all of them

// What does not fit, one note each, cut after 50.
void note_each(Diagnostic& diagnostic, const std::vector<std::string>& lines);

// The wanted weights out of `given`, in their dtypes. Throws ConfigError E410 (exit 6) with every
// weight that is missing, has another shape, or is there in excess; `path` is for messages. With
// `unfit` these are listed there instead, and only a file of which nothing fits is an error.
std::vector<NamedTensor> fitting_weights(std::vector<NamedTensor> given,
                                         const std::vector<WantedWeight>& wanted,
                                         const std::string& path, const SourceLoc& loc,
                                         std::vector<std::string>* unfit = nullptr);

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
                  const Agreement& agreement = Agreement());

// All layer weights, whole, each in its own dtype; replaces `path` whole or not at all. Collective:
// rank 0 writes. Throws FileError (exit 74; RuntimeFailure where another process failed).
void save_weights(const StepRunner& runner, const std::string& path,
                  const Agreement& agreement = Agreement());

}  // namespace meshtrain
