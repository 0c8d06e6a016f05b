// The class of the catalogue that an object is one of.
#pragma once

#include "config/catalogue.h"
#include "config/object.h"

namespace meshtrain {

// nullptr for an object that is of no class. An object does not say its category: where one
// spelling is of several, the first with its arguments.
const ClassSpec* spec_of(const ConfigObject& object);

}  // namespace meshtrain
