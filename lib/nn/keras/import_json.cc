#include "nn/keras/import_json.h"

#include "tensor/npy_header.h"

namespace meshtrain {

Json parse_keras_json(const std::string& text, const std::string& file) {
  constexpr int kMaxDepth = 512;  // a model nested in a model takes twelve
  bool too_deep = false;
  Json out = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      false);
  if (too_deep) {
    throw ConfigError("E405", {}, fmt::format("`{}`: nested deeper than {}", file, kMaxDepth));
  }
  if (out.is_discarded()) {
    throw ConfigError("E405", {}, fmt::format("`{}`: not valid JSON: truncated?", file));
  }
  return out;
}

const Json* find_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

void KerasJson::malformed(const std::string& what) const {
  throw ConfigError("E405", {}, fmt::format("`{}`: {}", file_, what));
}

const Json& KerasJson::need(const Json& object, const char* key, const std::string& owner) const {
  const Json* found = object.is_object() ? find_member(object, key) : nullptr;
  if (found == nullptr) {
    malformed(fmt::format("{} has no `{}`", printable(owner), key));
  }
  return *found;
}

std::string KerasJson::need_text(const Json& object, const char* key,
                                 const std::string& owner) const {
  const Json& value = need(object, key, owner);
  if (!value.is_string()) {
    malformed(fmt::format("`{}` of {} is no text", key, printable(owner)));
  }
  return value.get<std::string>();
}

void KerasJson::refuse(const std::string& layer, const std::string& class_name,
                       const std::string& what, const char* code) {
  problems_.error(code, {},
                  fmt::format("`{}`: layer `{}` ({}) {}", file_, printable(layer),
                              printable(class_name), what));
}

}  // namespace meshtrain
