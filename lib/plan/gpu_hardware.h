// The entry of the table of hardware for a GPU by the name that its driver gives it.
#pragma once

#include <string_view>
#include <vector>

#include "plan/hardware.h"

namespace meshtrain {

// "NVIDIA A100-SXM4-80GB" is A100, "NVIDIA GeForce RTX 4090" is RTX4090: an entry's name is a word
// of the driver's, or two that follow each other. Null when there is none.
const Hardware* hardware_of_gpu(const std::vector<Hardware>& table, std::string_view driver_name);

}  // namespace meshtrain
