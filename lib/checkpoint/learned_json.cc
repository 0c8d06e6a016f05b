#include "checkpoint/learned_json.h"

#include <set>
#include <utility>

#include "base/parse_number.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "checkpoint/json.h"
#include "config/run_files.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr int64_t kVersion = 1;

const EntryList kLeftOut[] = {
    {"columns", "", nullptr},    {"columns", "written", nullptr},   {"columns", "names", nullptr},
    {"features", "", nullptr},   {"numbers", "", nullptr},          {"means", "", nullptr},
    {"categories", "", nullptr}, {"categories", "texts", nullptr},  {"class_names", "", nullptr},
    {"tables", "", nullptr},     {"tables", "vocabulary", nullptr}, {"tables", "weights", nullptr}};
// A list that older programs did not write.
constexpr std::string_view kTables = "tables";

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) {
      return false;
    }
    at += length;
  }
  return true;
}

// Tables and folders may have names in any bytes. A name that is no UTF-8 becomes {"hex": "..."}.
Json text_json(const std::string& text) {
  if (is_utf8(text)) {
    return text;
  }
  std::string digits;
  for (const char byte : text) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return {{"hex", std::move(digits)}};
}

std::string parse_text(const Json& json, const std::string& path) {
  if (json.is_string()) {
    return json.get<std::string>();
  }
  const std::string digits = JsonFields(json, path).text("hex");
  std::string text;
  for (size_t at = 0; at < digits.size(); at += 2) {
    const auto byte = parse_number<uint8_t>(digits.substr(at, 2), 16);
    if (!byte || digits.size() % 2 != 0) {
      read_error("E402", path, "`hex` must be two hexadecimal digits for each byte");
    }
    text += static_cast<char>(*byte);
  }
  return text;
}

template <class Texts>
Json texts_json(const Texts& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) {
    list.push_back(text_json(text));
  }
  return list;
}

Json tables_json(const std::map<std::string, ColumnTable>& tables) {
  Json out = Json::array();
  for (const auto& [column, table] : tables) {
    Json weights = Json::array(), boundaries = Json::array();
    for (const double weight : table.weights) {
      weights.push_back(number_json(weight));
    }
    for (const double boundary : table.boundaries) {
      boundaries.push_back(number_json(boundary));
    }
    out.push_back({{"column", text_json(column)},
                   {"vocabulary", texts_json(table.vocabulary)},
                   {"weights", std::move(weights)},
                   {"boundaries", std::move(boundaries)},
                   {"length", table.length}});
    if (!table.tokenizer.empty()) {
      out.back()["tokenizer"] = table.tokenizer;
    }
  }
  return out;
}

std::string utf8(const Vocabulary& characters) {
  std::string text;
  for (const char32_t character : characters) {
    append_utf8(character, text);
  }
  return text;
}

Vocabulary parse_characters(const std::string& text, const std::string& path) {
  if (text.empty()) {
    return {};
  }
  try {
    return vocabulary_of(text_in_memory(path, text));
  } catch (const ConfigError& error) {
    throw ConfigError("E402", {}, error.diagnostics().list().front().message);
  }
}

// Reads the lists, which may be long, entry by entry: no more than one is kept as JSON.
class Lists {
 public:
  Lists(LearnedData& out, const std::string& path) : out_(out), path_(path) {}

  // Returns what is none of them. Another format may have other lists.
  Json read(std::string_view text) {
    const Json head = parse_bounded_json(text, path_, kLeftOut);
    const JsonFields fields(head, path_);
    if (const int64_t version = fields.integer("learned_data"); version != kVersion) {
      read_error("E408", path_, "format {}; this program reads format {}", version, kVersion);
    }
    for (const EntryList& left_out : kLeftOut) {
      if (left_out.list == kTables && !fields.has(kTables.data())) {
        continue;
      }
      if (!fields.at(std::string(left_out.list).c_str()).is_array()) {
        read_error("E402", path_, "`{}` must be a list", left_out.list);
      }
    }
    const auto to = [&](std::vector<std::string>& texts) {
      return
          [&](const std::string&, const Json& entry) { texts.push_back(parse_text(entry, path_)); };
    };
    const auto take = [&](void (Lists::*add)(const JsonFields&)) {
      return [this, add](const std::string&, const Json& entry) {
        (this->*add)(JsonFields(entry, path_));
      };
    };
    const auto number = [&](const std::string&, const Json& entry) {
      out_.csv.numbers.insert(parse_text(entry, path_));
    };
    const auto weight = [&](const std::string&, const Json& entry) {
      weights_.push_back(number_of(entry));
    };
    const EntryList lists[] = {{"columns", "written", to(written_)},
                               {"columns", "names", to(names_)},
                               {"columns", "", take(&Lists::add_columns)},
                               {"features", "", to(out_.csv.features)},
                               {"numbers", "", number},
                               {"means", "", take(&Lists::add_mean)},
                               {"categories", "texts", to(texts_)},
                               {"categories", "", take(&Lists::add_category)},
                               {"tables", "vocabulary", to(vocabulary_)},
                               {"tables", "weights", weight},
                               {"tables", "", take(&Lists::add_table)},
                               {"class_names", "", to(out_.class_names)}};
    Json rest = parse_bounded_json(text, path_, lists);
    check_differ(out_.class_names);
    return rest;
  }

 private:
  void add_columns(const JsonFields& /*entry*/) {
    if (written_.size() != names_.size() + 1) {  // the array's own name comes first
      read_error("E402", path_, "`columns` must have a name for each column that is written");
    }
    out_.csv.columns[std::exchange(written_, {})] = std::exchange(names_, {});
  }

  void add_mean(const JsonFields& entry) {
    out_.csv.means[parse_text(entry.at("column"), path_)] = entry.number("mean");
  }

  void add_category(const JsonFields& entry) {
    check_differ(texts_);
    const std::string column = parse_text(entry.at("column"), path_);
    if (!out_.csv.categories.emplace(column, std::exchange(texts_, {})).second) {
      read_error("E402", path_, "the column `{}` twice", printable(column));
    }
  }

  void add_table(const JsonFields& entry) {
    ColumnTable table;
    table.vocabulary = std::exchange(vocabulary_, {});
    table.weights = std::exchange(weights_, {});
    for (const Json& boundary : entry.at("boundaries")) {
      table.boundaries.push_back(number_of(boundary));
    }
    table.length = entry.integer("length");
    table.tokenizer = entry.has("tokenizer") ? entry.text("tokenizer") : "";
    out_.csv.tables[parse_text(entry.at("column"), path_)] = std::move(table);
  }

  double number_of(const Json& json) const {
    if (!json.is_number()) {
      read_error("E402", path_, "`tables` has something that is no number");
    }
    return json.get<double>();
  }

  void check_differ(const std::vector<std::string>& texts) const {
    std::set<std::string_view> seen;
    for (const std::string& text : texts) {
      if (!seen.insert(text).second) {
        read_error("E402", path_, "`{}` twice in one list", printable(text));
      }
    }
  }

  LearnedData& out_;
  const std::string& path_;
  std::vector<std::string> written_, names_, texts_, vocabulary_;  // of the entry that is open
  std::vector<double> weights_;
};

}  // namespace

std::string learned_text(const LearnedData& learned) {
  const CsvLearned& csv = learned.csv;
  Json columns = Json::array(), means = Json::array(), categories = Json::array();
  for (const auto& [written, names] : csv.columns) {
    columns.push_back({{"written", texts_json(written)}, {"names", texts_json(names)}});
  }
  for (const auto& [column, mean] : csv.means) {
    means.push_back({{"column", text_json(column)}, {"mean", number_json(mean)}});
  }
  for (const auto& [column, texts] : csv.categories) {
    categories.push_back({{"column", text_json(column)}, {"texts", texts_json(texts)}});
  }
  Json json = {{"learned_data", kVersion},
               {"source", learned.source},
               {"header", csv.has_header},
               {"columns", std::move(columns)},
               {"features", texts_json(csv.features)},
               {"numbers", texts_json(csv.numbers)},
               {"means", std::move(means)},
               {"categories", std::move(categories)},
               {"characters", utf8(learned.characters)},
               {"class_names", texts_json(learned.class_names)}};
  if (!csv.tables.empty()) {
    json[kTables] = tables_json(csv.tables);
  }
  if (!learned.tokenizer.empty()) {
    json["tokenizer"] = learned.tokenizer;
  }
  return sealed_json(json);
}

bool is_learned_text(std::string_view text) {
  return text.find("\n\"learned_data\": ") != std::string_view::npos;
}

LearnedPtr parse_learned(std::string_view text, const std::string& path) {
  check_seal(text, path, run_files::kLearned);
  const auto learned = std::make_shared<LearnedData>();
  const Json json = Lists(*learned, path).read(text);
  const JsonFields fields(json, path);
  learned->source = fields.text("source");
  learned->csv.has_header = fields.boolean("header");
  learned->characters = parse_characters(fields.text("characters"), path);
  learned->tokenizer = fields.has("tokenizer") ? fields.text("tokenizer") : "";
  return learned;
}

}  // namespace meshtrain
