// JSON from a disk that may have damaged it: read with limits, every key once.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "train/step_runner.h"

namespace meshtrain {

using Json = nlohmann::json;

inline constexpr size_t kMaxCheckpointJson = size_t{64} << 20;

using TakeEntry = std::function<void(const Json& entry)>;

// Throws ConfigError E402: no JSON, longer than kMaxCheckpointJson, deeper than 32, a key twice, or
// more than 100,000 values at once. The entries of `list`, a key of the outermost object, go to
// `take` one by one and are not in the result: there may be any number of them.
Json parse_bounded_json(std::string_view text, const std::string& path, std::string_view list = {},
                        const TakeEntry& take = {});

// Reads the fields of an object; what is missing or of another type throws ConfigError E402.
class JsonFields {
 public:
  JsonFields(const Json& object, const std::string& path);

  const Json& object() const { return object_; }
  const Json& at(const char* key) const;
  bool has(const char* key) const;
  int64_t integer(const char* key) const;  // not negative
  uint64_t natural(const char* key) const;
  bool boolean(const char* key) const;
  std::string text(const char* key) const;
  double number(const char* key) const;  // as number_json() wrote it
  std::vector<int64_t> sizes(const char* key) const;

 private:
  [[noreturn]] void wrong(const char* key, const char* expected) const;

  const Json& object_;
  const std::string& path_;
};

// A number that reads back the same; JSON has none for "nan", "inf" and "-inf".
Json number_json(double value);
Json logs_json(const Logs& logs);
Json lists_json(const LogLists& lists);
LogLists parse_lists(const Json& json, const std::string& path);
Logs parse_logs(const Json& json, const std::string& path);

}  // namespace meshtrain
