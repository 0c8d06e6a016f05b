#include "from_golden.h"

#include "support/splitmix.h"

namespace meshtrain::testing {

ConfigValue value_from_json(const nlohmann::json& json) {
  ConfigValue value;
  if (json.is_boolean()) {
    value.data = json.get<bool>();
  } else if (json.is_number_integer()) {
    value.data = json.get<int64_t>();
  } else if (json.is_number()) {
    value.data = json.get<double>();
  } else if (json.is_string()) {
    value.data = json.get<std::string>();
  } else if (json.is_array()) {
    ConfigValue::List list;
    for (const nlohmann::json& entry : json) {
      list.push_back(value_from_json(entry));
    }
    value.data = std::move(list);
  } else if (json.contains("class_name")) {
    const std::string name = json["class_name"];
    const bool is_optimizer = find_class(Category::kOptimizer, name) != nullptr;
    value.data = std::make_shared<ConfigObject>(object_from_json(
        is_optimizer ? Category::kOptimizer : Category::kSchedule, name, json["config"]));
  } else if (json.is_object()) {  // optimizers by pattern
    ConfigValue::Dict dict;
    for (const auto& [key, entry] : json.items()) {
      dict.emplace_back(key, value_from_json(entry));
    }
    value.data = std::move(dict);
  }
  return value;
}

ConfigObject object_from_json(Category category, const std::string& name,
                              const nlohmann::json& config) {
  ConfigObject object = make_object(category, name);
  for (const auto& [key, value] : config.items()) {
    REQUIRE_MESSAGE(object.args.contains(key), name << " has no argument " << key);
    object.args[key] = value_from_json(value);
  }
  return object;
}

HostTensor signed_doubles(uint64_t seed, const Shape& shape, float scale) {
  HostTensor out(DType::kFloat64, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, test::splitmix_signed(seed, static_cast<uint64_t>(i), scale));
  }
  return out;
}

}  // namespace meshtrain::testing
