#include "config/object.h"

#include <algorithm>
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

bool is_same(const ConfigObject& a, const ConfigObject& b) {
  const auto are_same = [](const auto& x, const auto& y) {
    return x.first == y.first && is_same(x.second, y.second);
  };
  return a.class_name == b.class_name &&
         std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(), are_same);
}

bool is_same(const ConfigValue& a, const ConfigValue& b) {
  if (a.data.index() != b.data.index()) {
    return false;
  }
  if (a.is_list()) {
    return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(),
                      [](const ConfigValue& x, const ConfigValue& y) { return is_same(x, y); });
  }
  if (a.is_dict()) {
    return std::equal(a.dict().begin(), a.dict().end(), b.dict().begin(), b.dict().end(),
                      [](const auto& x, const auto& y) {
                        return x.first == y.first && is_same(x.second, y.second);
                      });
  }
  if (a.is_object()) {
    return is_same(a.object(), b.object());
  }
  return a.is_null() || (a.is_bool() && a.boolean() == b.boolean()) ||
         (a.is_number() && a.number() == b.number()) || (a.is_string() && a.string() == b.string());
}

}  // namespace meshtrain
