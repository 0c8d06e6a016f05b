// Fields of a model's config.json, with their limits.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace meshtrain {

// Reads the fields of an object. Each reader returns `otherwise` for a field that is absent, null
// or wrong, and adds what is wrong to the problems; none throws. Each takes the time of a look-up.
// The object and the list of problems must outlive the reader.
class ConfigFields {
 public:
  using Json = nlohmann::json;
  static constexpr int64_t kMostLayers = 10000;

  // `prefix`: of the fields' names in messages, "rope_parameters.".
  ConfigFields(const Json& json, std::string prefix, std::vector<std::string>& problems)
      : json_(json), prefix_(std::move(prefix)), problems_(problems) {}

  // Null for a field that is absent or null.
  const Json* find(const char* key) const;
  // Whether the field is written, if only as null.
  bool has(const char* key) const { return json_.contains(key); }
  // The field is known, and not used.
  void ignore(const char* key) const { asked_.insert(key); }
  // From 1 to `most`.
  int64_t size(const char* key, int64_t otherwise,
               int64_t most = std::numeric_limits<int32_t>::max());
  double number(const char* key, double otherwise, double least = 0);
  double rate(const char* key, double otherwise);  // from 0 to below 1
  bool flag(const char* key, bool otherwise);
  std::string word(const char* key, const char* otherwise);
  // A name that activation_text() knows.
  std::string activation(const char* key, const char* otherwise);
  // Only `allowed` is supported.
  void only(const char* key, const Json& allowed);
  // "`num_heads` is 0, not a whole number": `wanted` is what it must be.
  void wrong(const char* key, const Json& value, const std::string& wanted);
  // Members that no reader has asked for and that say something: not null, false or empty.
  std::vector<std::string> unread() const;
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  std::vector<std::string>& problems() { return problems_; }

 private:
  const Json& json_;
  std::string prefix_;
  std::vector<std::string>& problems_;
  mutable std::set<std::string> asked_;
};

}  // namespace meshtrain
