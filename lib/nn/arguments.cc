#include "nn/arguments.h"

#include <array>
#include <map>

#include "base/error.h"
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

const ClassSpec* class_of_key(Category category, std::string_view key) {
  using Keys = std::map<std::string, const ClassSpec*, std::less<>>;
  static const std::array<Keys, kNumCategories> kKeys = [] {
    std::array<Keys, kNumCategories> all;
    for (int c = 0; c < kNumCategories; ++c) {
      for (const ClassSpec& spec : classes(static_cast<Category>(c))) {
        all[c].emplace(name_key(spec.name), &spec);
        for (const std::string& alias : spec.aliases) {
          all[c].emplace(name_key(alias), &spec);
        }
      }
    }
    return all;
  }();
  const Keys& keys = kKeys[static_cast<size_t>(category)];
  const auto found = keys.find(key);
  return found == keys.end() ? nullptr : found->second;
}

ConfigObject all_arguments(Category category, std::string_view key, const ConfigObject* given) {
  const ClassSpec* const spec = class_of_key(category, key);
  MESHTRAIN_CHECK(spec != nullptr, "no {} {}", category_name(category), key);
  ConfigObject out = default_object(category, spec->name);
  if (given != nullptr) {
    for (const auto& [name, value] : given->args) {
      if (const auto argument = out.args.find(name); argument != out.args.end()) {
        argument->second = value;
      }
    }
  }
  return out;
}

double number_or(const ConfigObject& object, std::string_view name, double otherwise) {
  return object.has(name) ? object.number(name) : otherwise;
}

int64_t integer_or(const ConfigObject& object, std::string_view name, int64_t otherwise) {
  return object.has(name) ? object.integer(name) : otherwise;
}

bool boolean_or(const ConfigObject& object, std::string_view name, bool otherwise) {
  return object.has(name) ? object.boolean(name) : otherwise;
}

std::string string_or(const ConfigObject& object, std::string_view name,
                      std::string_view otherwise) {
  return object.has(name) ? object.string(name) : std::string(otherwise);
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
