// A model in the form of Hugging Face's transformers: config.json and model.safetensors, or shards.
#pragma once

#include <string>
#include <vector>

#include "engine/setup.h"
#include "interop/huggingface/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Above this size of its tensors a file is split into shards; transformers' own value.
inline constexpr int64_t kHuggingFaceShardBytes = 5'000'000'000;

// Whether transformers reads weights from a file of this name. An export writes such files, and
// removes those of an earlier one.
bool is_huggingface_weights(const std::string& name);

// Writes the files into `folder` and returns their names. `weights` are all of the model's, by
// path; each tensor keeps its dtype. A model is exported when the config that an import of the
// written files gives has the same graph. The weights of an earlier export in `folder` are removed
// once the new files are complete. Throws ConfigError E417 (exit 6) for any other model,
// FileError (exit 74).
// `extras` are written as they are; E417 when `class_names` are not those of all classes.
std::vector<std::string> export_huggingface(const Setup& setup,
                                            const std::vector<NamedTensor>& weights,
                                            const std::string& folder,
                                            int64_t shard_bytes = kHuggingFaceShardBytes,
                                            const HuggingFaceExtras& extras = {});

}  // namespace meshtrain
