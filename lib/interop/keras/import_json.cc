#include "interop/keras/import_json.h"

#include "base/printable.h"

namespace meshtrain {

Json parse_keras_json(const std::string& text, const std::string& file) {
  constexpr int kMaxDepth = 512;  // a model nested in a model takes twelve
  // A value takes up to 100 bytes of memory, whatever few bytes it is written in; the largest
  // models that Keras brings have 60,000.
  constexpr int64_t kMaxValues = 200000;
  int64_t values = 0;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("E405", {}, fmt::format("`{}`: {}", file, why));
  };
  const Json out = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        if (depth > kMaxDepth) {
          refuse(fmt::format("nested deeper than {}", kMaxDepth));
        }
        if (++values > kMaxValues) {
          refuse(fmt::format("more than {} values", kMaxValues));
        }
        return true;
      },
      false);
  if (out.is_discarded()) {
    refuse("not valid JSON: truncated?");
  }
  return out;
}

const Json* find_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

void KerasJson::malformed(const std::string& what) const {
  throw_if_refused();  // what is not here may be the reason
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
