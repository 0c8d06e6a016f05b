// Layer weights by Keras path: those of a model, and those of a file that fit it.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "engine/coordinator.h"
#include "engine/step_runner.h"
#include "nn/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

struct WantedWeight {
  std::string path;
  Shape shape;
  DType dtype;
};
std::vector<WantedWeight> wanted_weights(const Model& model);
std::vector<WantedWeight> wanted_weights(const StepRunner& runner);  // as they are now
int64_t weight_bytes(const Model& model);                            // of all of them

// Adds one note for each line, at most 50.
void note_each(Diagnostic& diagnostic, const std::vector<std::string>& lines);

inline constexpr const char* kTakePartial =
    "`train --partial`, or `fit: {partial_weights: true}`, takes those that fit";

// Returns the wanted weights from `given`, in their dtypes. Throws ConfigError E410 (exit 6) with
// all weights that are missing, superfluous, or of another shape; `path` is for messages. With
// `unfit`, they are listed there, and only a file without any fitting weight is an error; with
// `fills_model` also one that does not fill the model, which then computes without training. `help`
// is the advice where some weights fit.
std::vector<NamedTensor> fitting_weights(std::vector<NamedTensor> given,
                                         const std::vector<WantedWeight>& wanted,
                                         const std::string& path, const SourceLoc& loc,
                                         std::vector<std::string>* unfit = nullptr,
                                         const std::string& help = kTakePartial,
                                         bool fills_model = false);

// Writes all layer weights, whole, each in its own dtype, with their checksum, and replaces `path`
// atomically.
// Collective: rank 0 writes. Throws FileError (exit 74), or RuntimeFailure when another process
// failed.
void save_weights(const StepRunner& runner, const std::string& path,
                  const Coordinator& coordinator = Coordinator());

}  // namespace meshtrain
