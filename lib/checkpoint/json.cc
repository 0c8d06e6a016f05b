#include "checkpoint/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "base/checksum.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/run_files.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

// The last lines of a sealed text; the checksum is over all bytes before them.
constexpr std::string_view kSealKey = ",\n\"self_xxh3_128\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr int kMaxDepth = 32;
// At once: a value takes up to 160 bytes of memory, whatever few bytes it is written in.
constexpr int64_t kMaxValues = 100000;

// Checks the events of the parser before anything is stored. Depth 0 is the outermost object, 2 an
// entry of one of its lists, 4 an entry of a list in such an entry.
class Watch {
 public:
  using Event = Json::parse_event_t;

  Watch(const std::string& path, std::span<const EntryList> lists) : path_(path), lists_(lists) {}

  // Whether `parsed` is kept.
  bool operator()(int depth, Event event, const Json& parsed) {
    if (depth > kMaxDepth) {
      read_error("E402", path_, "nested deeper than {}", kMaxDepth);
    }
    if (event == Event::key) {
      see_key(depth, parsed.get_ref<const std::string&>());
      return true;
    }
    const bool is_start = event == Event::object_start || event == Event::array_start;
    const bool is_value = event == Event::value;
    Level& level = levels_[static_cast<size_t>(depth)];
    if (is_start) {
      level.is_object = event == Event::object_start;
      level.values_before = values_;
    }
    if ((is_start || is_value) && ++values_ > kMaxValues) {
      read_error("E402", path_, "more than {} values", kMaxValues);
    }
    if (event == Event::object_start) {
      keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    }
    if (is_start || level.list == nullptr) {
      return true;
    }
    const bool has_name = levels_[static_cast<size_t>(depth - 1)].is_object;
    if (has_name && event != Event::object_end) {
      return true;  // the parser would keep its name for ever
    }
    if (level.list->take) {
      level.list->take(has_name ? level.key : "", parsed);
    }
    values_ = (is_value ? values_ - 1 : level.values_before) + (has_name ? 1 : 0);
    return false;
  }

 private:
  struct Level {
    bool is_object = false;
    int64_t values_before = 0;        // of the value that is open here
    std::string key;                  // the last one
    const EntryList* list = nullptr;  // that values here are entries of
  };

  void see_key(int depth, const std::string& key) {
    if (!keys_.back().insert(key).second) {
      read_error("E402", path_, "the key `{}` twice", printable(key));
    }
    levels_[static_cast<size_t>(depth)].key = key;
    if (depth == 1) {
      levels_[2].list = list_at("");
      levels_[4].list = nullptr;
    } else if (depth == 3) {
      levels_[4].list = list_at(key);
    }
  }

  const EntryList* list_at(std::string_view within) const {
    const auto found = std::find_if(lists_.begin(), lists_.end(), [&](const EntryList& list) {
      return list.list == levels_[1].key && list.within == within;
    });
    return found == lists_.end() ? nullptr : &*found;
  }

  const std::string& path_;
  std::span<const EntryList> lists_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::array<Level, kMaxDepth + 2> levels_;
  int64_t values_ = 0;  // that are kept, and those of the entry that is open
};

}  // namespace

size_t max_text_bytes(std::string_view name) {
  return name == run_files::kLearned ? kMaxManifest : kMaxCheckpointText;
}

std::string sealed_json(const Json& object) {
  std::string text = "{";
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("{}\n\"{}\": {}", text.size() > 1 ? "," : "", key, json_text(value));
  }
  const std::string sum = checksum128(std::as_bytes(std::span(text)));
  return text.append(kSealKey).append(sum).append(kSealEnd);
}

void check_seal(std::string_view text, const std::string& path, const char* what) {
  const size_t tail = kSealKey.size() + kSumDigits + kSealEnd.size();
  if (text.size() < tail || !ends_with(text, kSealEnd) ||
      text.substr(text.size() - tail, kSealKey.size()) != kSealKey) {
    read_error("E402", path, "does not end as a {} does: cut short or overwritten?", what);
  }
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view sum = text.substr(text.size() - kSealEnd.size() - kSumDigits, kSumDigits);
  if (checksum128(std::as_bytes(std::span(body))) != sum) {
    read_error("E403", path, "its checksum does not match: the {} was changed", what);
  }
}

Json parse_bounded_json(std::string_view text, const std::string& path,
                        std::span<const EntryList> lists) {
  if (text.size() > kMaxManifest) {
    read_error("E402", path, "{} bytes; at most {} are read", text.size(), kMaxManifest);
  }
  Watch watch(path, lists);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(watch));
  } catch (const Json::exception& error) {
    read_error("E402", path, "no JSON: cut short or overwritten?");
  }
}

JsonFields::JsonFields(const Json& object, const std::string& path) : object_(object), path_(path) {
  if (!object.is_object()) {
    read_error("E402", path, "a {} where an object is expected", object.type_name());
  }
}

void JsonFields::wrong(const char* key, const char* expected) const {
  read_error("E402", path_, "`{}` must be {}", key, expected);
}

bool JsonFields::has(const char* key) const {
  return object_.contains(key);
}

const Json& JsonFields::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) {
    read_error("E402", path_, "`{}` is missing", key);
  }
  return *found;
}

int64_t JsonFields::integer(const char* key) const {
  const uint64_t value = natural(key);
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    wrong(key, "a smaller number");
  }
  return static_cast<int64_t>(value);
}

uint64_t JsonFields::natural(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number_unsigned()) {
    wrong(key, "a whole number from 0");
  }
  return value.get<uint64_t>();
}

bool JsonFields::boolean(const char* key) const {
  const Json& value = at(key);
  if (!value.is_boolean()) {
    wrong(key, "true or false");
  }
  return value.get<bool>();
}

std::string JsonFields::text(const char* key) const {
  const Json& value = at(key);
  if (!value.is_string()) {
    wrong(key, "a text");
  }
  return value.get<std::string>();
}

double JsonFields::number(const char* key) const {
  const Json& value = at(key);
  if (value.is_number()) {
    return value.get<double>();
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value == "nan") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (value == "inf" || value == "-inf") {
    return value == "inf" ? kInfinity : -kInfinity;
  }
  wrong(key, "a number");
}

std::vector<int64_t> JsonFields::sizes(const char* key) const {
  const Json& value = at(key);
  std::vector<int64_t> out;
  if (!value.is_array()) {
    wrong(key, "a list of sizes");
  }
  for (const Json& entry : value) {
    // 2^53: beyond it other readers of JSON lose digits.
    if (!entry.is_number_unsigned() || entry.get<uint64_t>() > (uint64_t{1} << 53)) {
      wrong(key, "a list of sizes");
    }
    out.push_back(entry.get<int64_t>());
  }
  return out;
}

Json number_json(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  return value;
}

Json logs_json(const Logs& logs) {
  Json out = Json::object();
  for (const auto& [name, value] : logs) {
    out[name] = number_json(value);
  }
  return out;
}

Logs parse_logs(const Json& json, const std::string& path) {
  const JsonFields fields(json, path);
  Logs out;
  for (const auto& [name, value] : json.items()) {  // sorted by name, as logs are
    out.emplace_back(name, fields.number(name.c_str()));
  }
  return out;
}

Json lists_json(const LogLists& lists) {
  Json out = Json::object();
  for (const auto& [name, values] : lists) {
    Json& list = out[name] = Json::array();
    for (const double value : values) {
      list.push_back(number_json(value));
    }
  }
  return out;
}

LogLists parse_lists(const Json& json, const std::string& path) {
  LogLists out;
  for (const auto& [name, values] : JsonFields(json, path).object().items()) {
    for (const Json& value : values) {
      const Json holder = {{"value", value}};
      out[name].push_back(JsonFields(holder, path).number("value"));
    }
  }
  return out;
}

}  // namespace meshtrain
