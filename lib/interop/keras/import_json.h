// Members of Keras' JSON, and what is said of a model that cannot be read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/diagnostic.h"

namespace meshtrain {

using Json = nlohmann::json;

// Throws ConfigError E405 (exit 6): no JSON, or nested too deeply. `file` is for messages.
Json parse_keras_json(const std::string& text, const std::string& file);

// The member, or nullptr.
const Json* find_member(const Json& object, const char* key);

class KerasJson {
 public:
  explicit KerasJson(std::string file) : file_(std::move(file)) {}
  const std::string& file() const { return file_; }

  // Throws ConfigError E405: this is not what Keras writes.
  [[noreturn]] void malformed(const std::string& what) const;
  // Members that Keras always writes; `owner` has none: malformed.
  const Json& need(const Json& object, const char* key, const std::string& owner) const;
  std::string need_text(const Json& object, const char* key, const std::string& owner) const;

  // Notes something in the model that there is not here; throw_if_refused() says it all.
  void refuse(const std::string& layer, const std::string& class_name, const std::string& what,
              const char* code = "E416");
  void throw_if_refused() const { problems_.throw_if_errors(); }

 private:
  std::string file_;
  Diagnostics problems_;
};

}  // namespace meshtrain
