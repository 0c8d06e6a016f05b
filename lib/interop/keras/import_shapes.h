// Sizes of inputs that a Keras model leaves open: `Input((None, 3))`.
#pragma once

#include <string>
#include <vector>

#include "interop/keras/import.h"
#include "interop/keras/import_graph.h"

namespace meshtrain {

// Writes the sizes into the `batch_shape` of the model's Inputs. Throws ConfigError E140 when an
// Input is unknown or given twice, or when the sizes differ from those in the model.
void set_input_shapes(KerasModel& model, const std::vector<InputShape>& shapes);

// One "INPUT=SIZE,3" for each Input with an unknown size beside the batch.
std::vector<std::string> open_input_shapes(const KerasModel& model);

}  // namespace meshtrain
