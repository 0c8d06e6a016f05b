// Numbers as Python writes them, for texts and files that must be Keras' byte for byte.
#pragma once

#include <string>

namespace meshtrain {

// repr(float): "0.1", "1.0", "1e-05", "nan".
std::string python_float(double value);

}  // namespace meshtrain
