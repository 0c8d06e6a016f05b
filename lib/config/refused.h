// Arguments that the reader refused, so that checks of several arguments do not speak of them
// again.
#pragma once

#include <string_view>

#include "base/diagnostic.h"
#include "config/object.h"

namespace meshtrain {

// Whether `problems` has an error at the place of this argument, or at that of the class where the
// argument is missing. Its value then stands in for the one that was refused.
bool is_refused(const Diagnostics& problems, const ConfigObject& object, std::string_view argument);

}  // namespace meshtrain
