// What the JSON of a model of Keras Hub says: its class and hyperparameters.
#pragma once

#include <string>
#include <vector>

#include "interop/huggingface/model.h"
#include "interop/keras/import.h"
#include "interop/keras/import_json.h"

namespace meshtrain {

struct HubConfig {
  HuggingFaceModel model;            // its `architecture` is Hub's class: "GPT2CausalLM"
  std::string dtype_policy;          // empty: float32
  std::vector<std::string> dropped;  // what is not taken over, line by line
};

// Reads the config of a backbone, or of a task with its backbone. `options.weights`, where they are
// at hand, tell whether a Llama is tied. Throws ConfigError (exit 6): E405 for a class that is not
// read and for JSON without its parts, E416 with every argument that is not supported. Time is that
// of the JSON's size and of the number of `options.weights`.
HubConfig read_hub_config(const Json& json, const ImportOptions& options);

}  // namespace meshtrain
