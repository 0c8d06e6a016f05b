#include "config/object.h"

#include <utility>

#include "base/error.h"
#include "tensor/shape.h"

namespace meshtrain {
namespace {

constexpr const char* kKinds[] = {"null", "a boolean", "an integer", "a number",
                                  "text", "a list",    "a map",      "an object"};

[[noreturn]] void wrong_kind(const ConfigValue& value, const char* wanted) {
  throw InternalError(
      fmt::format("config value{} is {}; asked for as {}",
                  value.loc ? fmt::format(" at {}", value.loc.to_string()) : std::string(),
                  kKinds[value.data.index()], wanted));
}

template <class T>
const T& get(const ConfigValue& value, const char* wanted) {
  const T* found = std::get_if<T>(&value.data);
  if (found == nullptr) {
    wrong_kind(value, wanted);
  }
  return *found;
}

}  // namespace

bool ConfigValue::boolean() const {
  return get<bool>(*this, "a boolean");
}
int64_t ConfigValue::integer() const {
  return get<int64_t>(*this, "an integer");
}

double ConfigValue::number() const {
  return is_int() ? static_cast<double>(std::get<int64_t>(data)) : get<double>(*this, "a number");
}

const std::string& ConfigValue::string() const {
  return get<std::string>(*this, "text");
}
const ConfigValue::List& ConfigValue::list() const {
  return get<List>(*this, "a list");
}
const ConfigValue::Dict& ConfigValue::dict() const {
  return get<Dict>(*this, "a map");
}

const ConfigObject& ConfigValue::object() const {
  return *get<std::shared_ptr<ConfigObject>>(*this, "an object");
}

std::vector<int64_t> ConfigValue::integers() const {
  std::vector<int64_t> out;
  for (const ConfigValue& entry : list()) {
    out.push_back(entry.is_null() ? kUnknownDim : entry.integer());
  }
  return out;
}

std::vector<double> ConfigValue::numbers() const {
  std::vector<double> out;
  for (const ConfigValue& entry : list()) {
    out.push_back(entry.number());
  }
  return out;
}

std::vector<std::string> ConfigValue::strings() const {
  std::vector<std::string> out;
  for (const ConfigValue& entry : list()) {
    out.push_back(entry.string());
  }
  return out;
}

const ConfigValue& ConfigValue::field(std::string_view name) const {
  for (const auto& [key, value] : dict()) {
    if (key == name) {
      return value;
    }
  }
  throw InternalError(fmt::format("the schema has no field {}", name));
}

ConfigValue& ConfigValue::field(std::string_view name) {
  return const_cast<ConfigValue&>(std::as_const(*this).field(name));
}

const ConfigValue& ConfigObject::arg(std::string_view name) const {
  const auto found = args.find(name);
  if (found == args.end()) {
    throw InternalError(fmt::format("{} has no argument {}", class_name, name));
  }
  return found->second;
}

bool ConfigObject::has(std::string_view name) const {
  const auto found = args.find(name);
  return found != args.end() && !found->second.is_null();
}

}  // namespace meshtrain
