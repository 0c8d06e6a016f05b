// A model in the files of others, by the end of the name.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "engine/coordinator.h"
#include "engine/engine.h"
#include "nn/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

enum class ModelFormat { kNone, kH5, kKeras, kNpz, kSafetensors };
// By ".weights.h5", ".keras", ".npz" or ".safetensors".
ModelFormat model_format(const std::string& path);

// Replaces `path` whole or not at all. `weights` are all of the model's, by path; `saved` is the
// time for a .keras archive, in seconds since 1970. Throws FileError (exit 74), ConfigError E417
// (exit 6) for what Keras cannot say.
void write_model(const std::string& path, const Config& config, const Model& model,
                 const std::vector<NamedTensor>& weights, int64_t saved);

// The engine's model as it is now; the folder is made. Collective: rank 0 writes. Throws as above
// (RuntimeFailure where another process failed), and ConfigError E501 (exit 5) for weights that are
// not finite.
void save_model(const Engine& engine, const std::string& path,
                const Coordinator& coordinator = Coordinator());

}  // namespace meshtrain
