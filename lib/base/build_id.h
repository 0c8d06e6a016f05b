// Which build of the program this is.
#pragma once

#include <string>

namespace meshtrain {

// Returns the linker's build id of the running program: equal for equal code and data. Hexadecimal;
// empty when the linker wrote none.
std::string build_id();

}  // namespace meshtrain
