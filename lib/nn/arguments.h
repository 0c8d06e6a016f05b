// Reading config values that name a function or class ("relu", {ReLU: {max_value: 6}}), and
// arguments that may be absent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/object.h"

namespace meshtrain {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

// A function or class by name, with its arguments when they were given.
struct NamedValue {
  std::string key;                       // lower case without '_': "leakyrelu"; "" for null
  std::string spelled;                   // as written
  const ConfigObject* object = nullptr;  // null: by name alone
};

// "Leaky_ReLU" -> "leakyrelu": class names and function names meet there.
std::string name_key(std::string_view name);
NamedValue named_value(const ConfigValue& value);

// The argument, or `otherwise` when the object is null, the class does not know it, or it is null.
double number_or(const ConfigObject* object, std::string_view name, double otherwise);
int64_t integer_or(const ConfigObject* object, std::string_view name, int64_t otherwise);
bool boolean_or(const ConfigObject* object, std::string_view name, bool otherwise);
std::string string_or(const ConfigObject* object, std::string_view name,
                      std::string_view otherwise);
// One number as a list of one; nested lists flattened in order.
std::vector<double> numbers_of(const ConfigValue& value);
// One integer as a list of one; null as none.
std::vector<int64_t> integers_of(const ConfigValue& value);
// The argument's value, or null.
const ConfigValue& value_or_null(const ConfigObject& object, std::string_view name);

}  // namespace meshtrain
