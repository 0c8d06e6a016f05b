// JSON from an untrusted disk: read with limits, every key once.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "engine/step_runner.h"

namespace meshtrain {

using Json = nlohmann::json;

// Reading a manifest takes about twice its size. The largest meshes have long texts: 16384 devices
// and 200 tensors that are split over all of them are 600 MiB.
inline constexpr size_t kMaxManifest = size_t{1} << 30;
inline constexpr size_t kMaxCheckpointText = size_t{16} << 20;  // of most other texts
// Returns the size limit of a text of a checkpoint; data.json has that of a manifest.
size_t max_text_bytes(std::string_view name);

inline constexpr size_t kSumDigits = 32;  // of a checksum, hexadecimal

// A list whose entries are handed over one by one instead of stored, for lists of any length.
struct EntryList {
  std::string_view list;    // a key of the outermost object: "tensors"
  std::string_view within;  // the list is at this key of each entry of `list`; empty: `list` itself
  // May be null. When the list is an object, `name` is the key of the entry, and only entries that
  // are objects are handed over.
  std::function<void(const std::string& name, const Json& entry)> take;
};

// Throws ConfigError E402: no JSON, longer than kMaxManifest, deeper than 32 levels, a key twice,
// or more than 100,000 stored values. An entry that was handed over counts only by its name, if
// any.
Json parse_bounded_json(std::string_view text, const std::string& path,
                        std::span<const EntryList> lists = {});

// Returns the text of an object, one readable line for each key. Its last lines are a checksum of
// all bytes before them.
std::string sealed_json(const Json& object);
// Throws ConfigError E402 when the text has no such checksum, E403 when the checksum differs.
// `what` names the kind of file for the message.
void check_seal(std::string_view text, const std::string& path, const char* what);

// Reads the fields of an object. A missing field or another type throws ConfigError E402.
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
