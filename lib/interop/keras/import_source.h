// The files of a model that Keras saved.
#pragma once

#include <optional>
#include <string>

#include "interop/keras/weights.h"

namespace meshtrain {

// What `meshtrain import` takes, for its help and its messages.
inline constexpr const char* kImportedModels =
    "a model.keras, a model.h5, a model.json that model.to_json() wrote, or the folder of a GPT-2, "
    "Llama, Mistral, BERT or ViT of transformers or of a preset of Keras Hub";

struct KerasSource {
  std::string path, json, version;
  std::optional<H5File> weights;
  std::string weights_path;  // the file that `weights` are of
  // Of a preset with a tokenizer: the text of a tokenizer.json, or why there is none here.
  std::string tokenizer, tokenizer_problem;
};

// Whether Keras Hub's save_to_preset() wrote this folder, damaged or not.
bool is_hub_preset(const std::string& folder);

// Reads `model`: a .keras, a whole model as .h5, or a .json with `weights`, or with the .weights.h5
// beside it, or a preset of Keras Hub. Throws ConfigError E140 for another kind of file, E404 and
// E405 for one that cannot be read.
KerasSource read_keras_source(const std::string& model, const std::string& weights);

}  // namespace meshtrain
