// Layer weights by Keras path: which a model has, and which of a file fit it.
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

// What does not fit, one note each, cut after 50.
void note_each(Diagnostic& diagnostic, const std::vector<std::string>& lines);

// The wanted weights out of `given`, in their dtypes. Throws ConfigError E410 (exit 6) with every
// weight that is missing, has another shape, or is there in excess; `path` is for messages. With
// `unfit` these are listed there instead, and only a file of which nothing fits is an error.
std::vector<NamedTensor> fitting_weights(std::vector<NamedTensor> given,
                                         const std::vector<WantedWeight>& wanted,
                                         const std::string& path, const SourceLoc& loc,
                                         std::vector<std::string>* unfit = nullptr);

// All layer weights, whole, each in its own dtype; replaces `path` whole or not at all. Collective:
// rank 0 writes. Throws FileError (exit 74; RuntimeFailure where another process failed).
void save_weights(const StepRunner& runner, const std::string& path,
                  const Coordinator& coordinator = Coordinator());

}  // namespace meshtrain
