// The JSON of a tokenizer's files, with messages that name the field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tensor/read_error.h"

namespace meshtrain {

// Throws ConfigError E318 for a text that is no JSON object.
nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& path);

// A field of an object, which is null when it is absent. `where` is for messages: "model.vocab".
class TokenizerField {
 public:
  TokenizerField(const nlohmann::json& value, std::string where, const std::string& path)
      : value_(value), where_(std::move(where)), path_(path) {}

  TokenizerField operator[](const char* key) const;
  TokenizerField operator[](size_t index) const;  // of a list

  const nlohmann::json& json() const { return value_; }
  const std::string& where() const { return where_; }
  bool is_null() const { return value_.is_null(); }
  size_t list_size() const;  // E318 when it is no list; 0 when it is null
  std::string text() const;
  std::string text_or(const char* otherwise) const { return is_null() ? otherwise : text(); }
  bool flag(bool otherwise) const;
  int32_t id() const;  // at least 0
  std::string type() const { return (*this)["type"].text(); }

  [[noreturn]] void wrong(const char* expected) const;
  // E327: what meshtrain does not do.
  [[noreturn]] void unsupported(const std::string& what) const;
  // E327: what this program was built without.
  [[noreturn]] void needs(const char* library, const char* debian_package) const;

 private:
  const nlohmann::json& value_;
  std::string where_;
  const std::string& path_;
};

}  // namespace meshtrain
