// What config.json would say about a model of ours.
#pragma once

#include <map>
#include <string>

#include "engine/setup.h"
#include "interop/huggingface/model.h"

namespace meshtrain {

// The description of the model of `setup`. Throws ConfigError E417 (exit 6), naming the part, for a
// model that is none of the families, or whose graph is not that of the description.
HuggingFaceModel describe_for_huggingface(const Setup& setup);

// The paths that tensor_rules() uses, of weights that have another name in a config written by
// hand: {"layer_norm/scale", "sequence_output_layernorm/scale"}.
std::string rule_path(const std::string& path, HuggingFaceFamily family);

}  // namespace meshtrain
