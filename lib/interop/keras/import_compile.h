// What a Keras model was compiled with, as the section of a config.
#pragma once

#include <string>
#include <vector>

#include "interop/keras/import_graph.h"

namespace meshtrain {

// The lines of `compile`, with an empty line before them; "" where there is nothing. `names`: of
// the model's calls. What is not here goes to `dropped`.
std::string imported_compile(const KerasModel& model, const std::vector<std::string>& names,
                             std::vector<std::string>& dropped);

}  // namespace meshtrain
