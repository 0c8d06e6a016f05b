// Values as YAML in flow style, on one line.
#pragma once

#include <string>
#include <string_view>

#include "config/object.h"

namespace meshtrain {

struct Spec;

// Text in double quotes, with escapes.
std::string yaml_quoted(std::string_view text);
// Text as it may stand as a value: in quotes where it would mean something else without. What would
// be an expression is written as one that gives this text: "=\"=1+1\"".
std::string yaml_text(std::string_view text);
// The same as a key, which is never an expression.
std::string yaml_key(std::string_view text);

// Whether a value says what its default says: a config that is read again has forgotten who wrote
// it. Without a spec only a value that nobody wrote does.
bool says_default(const ConfigValue& value, const Spec* spec);
// Whether an argument of the object differs from its default.
bool has_given_arguments(const ConfigObject& object);

// "{Adam: {learning_rate: 0.01}}": arguments that are defaults are left out, and an object without
// others is its name as spelled.
std::string yaml_flow(const ConfigValue& value);
// The same of an argument of a class: a learning rate keeps its point, without which it could not
// be read again, and a function is an expression.
std::string yaml_argument(std::string_view name, const ConfigValue& value);

}  // namespace meshtrain
