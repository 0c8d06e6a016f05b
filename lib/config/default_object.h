// Objects that no config names, for what the command line says in place of one.
#pragma once

#include <string_view>

#include "config/catalogue.h"
#include "config/object.h"

namespace meshtrain {

// A class of the catalogue with the defaults of all arguments; required ones are empty. Throws
// InternalError when there is no such class.
ConfigObject default_object(Category category, std::string_view class_name);

}  // namespace meshtrain
