// Keras' table of layers, with the layouts of their weights and outputs.
#pragma once

#include <string>

#include "engine/setup.h"

namespace meshtrain {

// As model.summary() of Keras prints it, with a column of layouts where there are several devices.
std::string model_summary(const Setup& setup);

}  // namespace meshtrain
