// Reading config values that name a function or class ("relu", {ReLU: {max_value: 6}}), and
// arguments that may be absent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/catalogue.h"

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

// The class of the catalogue with that name_key, or null.
const ClassSpec* class_of_key(Category category, std::string_view key);
// The arguments of that class: the given ones, where there are some, and else its defaults.
ConfigObject all_arguments(Category category, std::string_view key, const ConfigObject* given);

// The argument, or `otherwise` when the class does not know it, or it is null. Not for what the
// catalogue has a default of.
double number_or(const ConfigObject& object, std::string_view name, double otherwise);
int64_t integer_or(const ConfigObject& object, std::string_view name, int64_t otherwise);
bool boolean_or(const ConfigObject& object, std::string_view name, bool otherwise);
std::string string_or(const ConfigObject& object, std::string_view name,
                      std::string_view otherwise);
// One number as a list of one; nested lists flattened in order.
std::vector<double> numbers_of(const ConfigValue& value);
// One integer as a list of one; null as none.
std::vector<int64_t> integers_of(const ConfigValue& value);
// The argument's value, or null.
const ConfigValue& value_or_null(const ConfigObject& object, std::string_view name);

}  // namespace meshtrain
