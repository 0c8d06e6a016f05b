// Mesh and resolved layouts in the words of keras.distribution.
#pragma once

#include "engine/setup.h"
#include "interop/keras/export_python.h"

namespace meshtrain {

KerasDistribution keras_distribution(const Setup& setup);

}  // namespace meshtrain
