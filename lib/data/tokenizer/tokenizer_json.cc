#include "data/tokenizer/tokenizer_json.h"

#include "base/json.h"

namespace meshtrain {
namespace {

constexpr int64_t kMaxId = (int64_t{1} << 24) - 1;  // a table of tokens has one more entry

const nlohmann::json& null_json() {
  static const nlohmann::json null;
  return null;
}

}  // namespace

nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& path) {
  nlohmann::json json = parse_json(text);
  if (json.is_discarded() || !json.is_object()) {
    read_error("E318", path, "no JSON object; cut off?");
  }
  return json;
}

TokenizerField TokenizerField::operator[](const char* key) const {
  if (!value_.is_object() && !value_.is_null()) {
    wrong("an object");
  }
  const auto found = value_.is_object() ? value_.find(key) : value_.end();
  return {value_.is_object() && found != value_.end() ? *found : null_json(),
          where_.empty() ? key : where_ + "." + key, path_};
}

TokenizerField TokenizerField::operator[](size_t index) const {
  return {value_.at(index), fmt::format("{}[{}]", where_, index), path_};
}

size_t TokenizerField::list_size() const {
  if (!value_.is_array() && !value_.is_null()) {
    wrong("a list");
  }
  return value_.size();
}

std::string TokenizerField::text() const {
  if (!value_.is_string()) {
    wrong("a text");
  }
  return value_.get<std::string>();
}

bool TokenizerField::flag(bool otherwise) const {
  if (value_.is_null()) {
    return otherwise;
  }
  if (!value_.is_boolean()) {
    wrong("true or false");
  }
  return value_.get<bool>();
}

int32_t TokenizerField::id() const {
  if (!value_.is_number_integer() || value_.get<int64_t>() < 0 || value_.get<int64_t>() > kMaxId) {
    wrong("an id from 0 to 16777215");
  }
  return value_.get<int32_t>();
}

void TokenizerField::wrong(const char* expected) const {
  read_error("E318", path_, "`{}` must be {}{}", where_, expected,
             is_null() ? "; it is missing" : "");
}

void TokenizerField::unsupported(const std::string& what) const {
  read_error("E327", path_, "`{}` is {}, which is not read", where_, what);
}

void TokenizerField::needs(const char* library, const char* debian_package) const {
  read_error("E327", path_,
             "`{}` is `{}`, which needs {}, and this program was built without it; install {} and "
             "build again",
             where_, text(), library, debian_package);
}

}  // namespace meshtrain
