// Warnings of what a model does with its data that its author may not want.
#pragma once

#include <string_view>

#include "engine/step_graph.h"

namespace meshtrain {

// Where the config has the layer, or the Call, of that name; nowhere for any other name.
SourceLoc place_of_layer(const ModelConfig& model, std::string_view name);

// W125: it sees the ids that it is to predict. W126: attention stores its scores. W630: the logits
// of padding count.
void warn_of_model(const Config& config, const Model& model, const DataSpec& data,
                   Diagnostics& diagnostics);

}  // namespace meshtrain
