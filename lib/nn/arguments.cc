#include "nn/arguments.h"

#include "base/text.h"

namespace meshtrain {

std::string name_key(std::string_view name) {
  std::string key = to_lower(name);
  std::erase(key, '_');
  return key;
}

NamedValue named_value(const ConfigValue& value) {
  if (value.is_null()) {
    return {};
  }
  if (value.is_string()) {
    return {name_key(value.string()), value.string(), nullptr};
  }
  const ConfigObject& object = value.object();
  return {name_key(object.class_name), object.class_name, &object};
}

double number_or(const ConfigObject* object, std::string_view name, double otherwise) {
  return object != nullptr && object->has(name) ? object->number(name) : otherwise;
}

int64_t integer_or(const ConfigObject* object, std::string_view name, int64_t otherwise) {
  return object != nullptr && object->has(name) ? object->integer(name) : otherwise;
}

bool boolean_or(const ConfigObject* object, std::string_view name, bool otherwise) {
  return object != nullptr && object->has(name) ? object->boolean(name) : otherwise;
}

std::string string_or(const ConfigObject* object, std::string_view name,
                      std::string_view otherwise) {
  return object != nullptr && object->has(name) ? object->string(name) : std::string(otherwise);
}

std::vector<double> numbers_of(const ConfigValue& value) {
  if (!value.is_list()) {
    return {value.number()};
  }
  std::vector<double> out;
  for (const ConfigValue& entry : value.list()) {
    const std::vector<double> inner = numbers_of(entry);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

std::vector<int64_t> integers_of(const ConfigValue& value) {
  if (value.is_null()) {
    return {};
  }
  return value.is_list() ? value.integers() : std::vector<int64_t>{value.integer()};
}

const ConfigValue& value_or_null(const ConfigObject& object, std::string_view name) {
  static const ConfigValue kNull;
  const auto found = object.args.find(name);
  return found == object.args.end() ? kNull : found->second;
}

}  // namespace meshtrain
