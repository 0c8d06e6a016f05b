// Values of a config as Python expressions that call Keras.
#pragma once

#include <string>
#include <string_view>

#include "config/catalogue.h"
#include "config/object.h"

namespace meshtrain {

std::string python_text(std::string_view text);  // in quotes
std::string python_value(const ConfigValue& value, const Spec& spec);
// The value of a keyword: of what Keras takes as a list alone, a number is a list of one.
std::string python_argument(const ConfigValue& value, const Spec& spec);
// "keras.losses.Huber(delta=2.0)"
std::string python_object(const ConfigObject& object, Category category);
// `name` with what Python does not accept in an identifier replaced; never a keyword.
std::string python_identifier(std::string_view name);

}  // namespace meshtrain
