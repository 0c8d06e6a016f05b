#include "interop/huggingface/fields.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/text.h"
#include "interop/huggingface/model.h"

namespace meshtrain {

const nlohmann::json* ConfigFields::find(const char* key) const {
  asked_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

int64_t ConfigFields::size(const char* key, int64_t otherwise, int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > most) {
    wrong(key, *value, fmt::format("a whole number from 1 to {}", most));
    return otherwise;
  }
  return value->get<int64_t>();
}

double ConfigFields::number(const char* key, double otherwise, double least) {
  const Json* value = find(key);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_number() || !(value->get<double>() >= least)) {
    wrong(key, *value, fmt::format("a number of at least {}", least));
    return otherwise;
  }
  return value->get<double>();
}

double ConfigFields::rate(const char* key, double otherwise) {
  const double rate = number(key, otherwise);
  if (rate >= 1) {
    wrong(key, json_.at(key), "a rate below 1");
    return otherwise;
  }
  return rate;
}

bool ConfigFields::flag(const char* key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_boolean()) {
    wrong(key, *value, "true or false");
    return otherwise;
  }
  return value->get<bool>();
}

std::string ConfigFields::word(const char* key, const char* otherwise) {
  const Json* value = find(key);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_string()) {
    wrong(key, *value, "a text");
    return otherwise;
  }
  return value->get<std::string>();
}

std::string ConfigFields::activation(const char* key, const char* otherwise) {
  const std::string name = word(key, otherwise);
  if (activation_text(name).empty()) {
    std::vector<std::string> known;
    for (const auto& [theirs, ours] : activation_names()) {
      known.push_back(theirs);
    }
    wrong(key, Json(name), fmt::format("one of {}", join(known, ", ")));
    return otherwise;
  }
  return name;
}

void ConfigFields::only(const char* key, const Json& allowed) {
  const Json* value = find(key);
  if (value != nullptr && *value != allowed) {
    wrong(key, *value, fmt::format("{}, which alone is supported", allowed.dump()));
  }
}

std::vector<std::string> ConfigFields::unread() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : json_.items()) {
    const bool is_neutral = value.is_null() || value == false || value.empty();
    if (!asked_.contains(key) && !is_neutral) {
      out.push_back(key);
    }
  }
  return out;
}

void ConfigFields::wrong(const char* key, const Json& value, const std::string& wanted) {
  problems_.push_back(
      fmt::format("`{}{}` is {}, not {}", prefix_, key,
                  printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)), wanted));
}

}  // namespace meshtrain
