// Which build of the program this is.
#pragma once

#include <string>

namespace meshtrain {

// Of the program that runs, as its linker marked it: equal for equal code and data. Hexadecimal;
// empty where the linker left no mark.
std::string build_id();

}  // namespace meshtrain
