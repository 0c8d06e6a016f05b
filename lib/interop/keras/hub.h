// Models of Keras Hub. Its classes save their hyperparameters and not their layers; the layers are
// those of the Hugging Face models of the same families, by the same names.
// Source: Keras Hub 0.32, keras_hub/src/models.
#pragma once

#include <string>
#include <vector>

#include "interop/keras/import.h"
#include "interop/keras/import_json.h"

namespace meshtrain {

// Whether Keras' JSON is of a class of Keras Hub: "registered_name": "keras_hub>GPT2Backbone".
bool is_hub_model(const Json& json);

// The config of a backbone or task. Its inputs are `token_ids` and `padding_mask` (batch, steps),
// BERT's `segment_ids` (batch, steps) and `mask_positions` (batch, masks), too; ViT's are `images`
// (batch, height, width, channels). Throws ConfigError (exit 6): E405 for a class that is not read,
// and for JSON without its parts, E416 with every argument that is not supported. E140 (exit 2): a
// shape of the options fits no input. Time is that of read_hub_config() and of the tokenizer.
ImportedModel import_hub(const Json& json, const ImportOptions& options);

// The groups of the layers of an imported model in a file of a backbone or task. Empty for another
// model, and for another file. Names alone count: weights of another shape are for the caller to
// find. Time is the number of layers times that of datasets.
std::vector<KerasGroup> hub_groups(const Model& model, const H5File& file);

// Gives the blocks of Hub's ViT the groups that TransformerEncoder has. Other names stay.
void rename_vit_blocks(H5File& file);

}  // namespace meshtrain
