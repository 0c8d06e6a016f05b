// The draft of a config for a table.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/text.h"
#include "base/utf8.h"
#include "config/flow.h"
#include "data/csv_columns.h"
#include "data/csv_dates.h"
#include "data/draft_config.h"
#include "data/table_profile.h"

namespace meshtrain {
namespace {

using Type = ColumnProfile::Type;

constexpr int64_t kMostHot = 10;      // more texts become ids of an Embedding
constexpr int64_t kMostClasses = 20;  // more integers are numbers to predict
constexpr int64_t kLeastRepeats = 5;  // rows of a class, on average

constexpr int64_t kWordsOfText = 200;  // longer texts are cut

// Names that columns of labels often have, in lower case.
constexpr const char* kLabelNames[] = {"label",   "target",   "class",  "y",       "species",
                                       "outcome", "survived", "price",  "quality", "diagnosis",
                                       "churn",   "salary",   "income", "medv",    "saleprice"};

struct Draft {
  std::vector<const ColumnProfile*> numbers, dates, hot, embedded, prose;
  std::vector<std::string> left_out;  // "`id`: each row has another one"
};

bool is_number(Type type) {
  return type == Type::kInteger || type == Type::kNumber;
}

size_t find_label(const TableProfile& table, const std::string& label, const std::string& path) {
  std::vector<std::string> names;
  for (const ColumnProfile& column : table.columns) {
    names.push_back(column.name);
  }
  if (!label.empty()) {
    return find_csv_column(names, {label, {}}, path);
  }
  for (const char* const likely : kLabelNames) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return to_lower(name) == likely;
    });
    if (table.has_header && found != names.end()) {
      return static_cast<size_t>(found - names.begin());
    }
  }
  return names.size() - 1;
}

// Texts, or a few whole numbers that repeat.
bool is_class(const ColumnProfile& label, int64_t rows) {
  return label.type == Type::kText ||
         (label.type == Type::kInteger && label.distinct <= kMostClasses &&
          kLeastRepeats * label.distinct <= rows);
}

// Whether most rows have texts that no other row has.
bool has_own_texts(const ColumnProfile& column, int64_t present) {
  return column.type == Type::kText && present > 20 && 2 * column.distinct > present;
}

// Sentences, not names: four words on average.
bool is_prose(const ColumnProfile& column) {
  constexpr std::ptrdiff_t kWords = 4;
  std::ptrdiff_t words = 0;
  for (const auto& [text, count] : column.frequent) {
    words += 1 + std::count(text.begin(), text.end(), ' ');
  }
  return !column.frequent.empty() && words >= kWords * std::ssize(column.frequent);
}

// Why a column says nothing about the label; empty when it may.
std::string reason_to_leave(const ColumnProfile& column, int64_t rows) {
  const int64_t present = rows - column.missing;
  const bool is_named_id =
      ends_with(to_lower(column.name), "id") || column.name == "index" || column.name == "#";
  if (column.type == Type::kEmpty) {
    return "it is empty";
  }
  if (column.distinct <= 1 && column.missing == 0) {
    return "it is the same in each row";
  }
  if (column.name.empty() || starts_with(column.name, "Unnamed: ")) {
    return "it has no name, as an index that pandas wrote";
  }
  if (column.type == Type::kInteger && is_named_id && column.distinct == rows) {
    return "it numbers the rows";
  }
  if (has_own_texts(column, present) && !is_prose(column)) {
    return fmt::format("{} different texts in {} rows", format_thousands(column.distinct),
                       format_thousands(present));
  }
  return "";
}

Draft sort_columns(const TableProfile& table, size_t label) {
  Draft draft;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const ColumnProfile& column = table.columns[i];
    if (i == label) {
      continue;
    }
    if (const std::string reason = reason_to_leave(column, table.rows); !reason.empty()) {
      draft.left_out.push_back(fmt::format("`{}`: {}", shown_text(column.name), reason));
    } else if (has_own_texts(column, table.rows - column.missing)) {
      draft.prose.push_back(&column);
    } else if (column.type == Type::kText) {
      (column.distinct <= kMostHot ? draft.hot : draft.embedded).push_back(&column);
    } else {
      (column.type == Type::kDate ? draft.dates : draft.numbers).push_back(&column);
    }
  }
  return draft;
}

std::string list_of(const std::vector<const ColumnProfile*>& columns) {
  std::vector<std::string> names;
  for (const ColumnProfile* column : columns) {
    names.push_back(yaml_text(column->name));
  }
  return "[" + join(names, ", ") + "]";
}

bool misses_any(const std::vector<const ColumnProfile*>& columns) {
  return std::any_of(columns.begin(), columns.end(),
                     [](const ColumnProfile* column) { return column->missing > 0; });
}

// A name that a layer can have: letters, digits and `_`, and no other layer has.
std::string layer_name(const std::string& column, std::set<std::string>& taken) {
  std::string name;
  for (const char c : column) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  name = name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0 ? "c" + name : name;
  while (!taken.insert(name).second) {
    name += "_";
  }
  return name;
}

std::vector<const ColumnProfile*> numeric_columns(const Draft& draft) {
  std::vector<const ColumnProfile*> all = draft.numbers;
  all.insert(all.end(), draft.dates.begin(), draft.dates.end());
  return all;
}

// An array of samples: columns, and what becomes of them.
struct InputDraft {
  enum class Kind : uint8_t { kNumbers, kHot, kIds, kText };
  Kind kind;
  std::string name;
  std::vector<const ColumnProfile*> columns;
};

// One-hot texts are no part of the numbers: a text that the training rows lack would be divided by
// a variance of 0.
std::vector<InputDraft> inputs_of(const Draft& draft) {
  using Kind = InputDraft::Kind;
  std::set<std::string> taken = {"scaled", "all",          "hidden_1", "hidden_2",
                                 "class",  "scaled_value", "value",    "x"};
  std::vector<InputDraft> inputs;
  if (!numeric_columns(draft).empty()) {
    inputs.push_back({Kind::kNumbers, layer_name("numbers", taken), numeric_columns(draft)});
  }
  if (!draft.hot.empty()) {
    inputs.push_back({Kind::kHot, layer_name("words", taken), draft.hot});
  }
  for (const ColumnProfile* column : draft.embedded) {
    inputs.push_back({Kind::kIds, layer_name(column->name, taken), {column}});
  }
  for (const ColumnProfile* column : draft.prose) {
    inputs.push_back({Kind::kText, layer_name(column->name, taken), {column}});
  }
  if (inputs.size() == 1 && inputs[0].kind != Kind::kIds) {
    inputs[0].name = "x";
  }
  return inputs;
}

// Numbers of a sample: dates have three each.
int64_t width_of(const InputDraft& input, const Draft& draft) {
  if (input.kind == InputDraft::Kind::kNumbers) {
    return static_cast<int64_t>(draft.numbers.size() + 3 * draft.dates.size());
  }
  const bool misses = misses_any(draft.hot) || misses_any(draft.embedded);
  int64_t width = 0;
  for (const ColumnProfile* column : input.columns) {
    width += column->distinct + 1 + (misses ? 1 : 0);
  }
  return width;
}

int64_t largest_class(const ColumnProfile& label) {
  return label.frequent.empty() ? 0 : label.frequent.front().second;
}

// What a forecast takes instead of a random split, where the rows are in the order of dates.
std::string order_hint(const TableProfile& table) {
  const auto date = std::find_if(table.columns.begin(), table.columns.end(),
                                 [](const ColumnProfile& column) { return column.is_ascending; });
  if (date == table.columns.end()) {
    return "";
  }
  return fmt::format(
      "  # The rows are in the order of `{}`. A forecast takes windows of rows, and validates on\n"
      "  # later ones: write `sequence_length: 24` and `slice: \"[:80%]\"` above, and instead of "
      "`split`\n"
      "  # `validation: {{source: csv, path: ..., slice: \"[80%:]\"}}`.\n",
      shown_text(date->name));
}

// How to read a column of texts that are dates in another form than ISO's; "" for other texts.
std::string date_hint(const ColumnProfile& column) {
  if (column.type != Type::kText || column.frequent.empty()) {
    return "";
  }
  for (const char* format : {"%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"}) {
    if (std::all_of(column.frequent.begin(), column.frequent.end(),
                    [&](const auto& each) { return parse_date(each.first, format); })) {
      return fmt::format(
          "    # `{}` has dates: `date_format: \"{}\"` and `dates: {{{}: [year, month, "
          "weekday]}}`\n"
          "    # make numbers of them.\n",
          shown_text(column.name), format, yaml_key(column.name));
    }
  }
  return "";
}

std::string data_section(const std::string& path, const TableProfile& table, size_t label,
                         const Draft& draft, const std::vector<InputDraft>& inputs) {
  const ColumnProfile& target = table.columns[label];
  const bool has_classes = is_class(target, table.rows);
  std::string out = "data:\n  train:\n    source: csv\n";
  out += fmt::format("    path: {}\n", yaml_text(path));
  out += fmt::format("    label: {}\n", yaml_text(target.name));
  const bool is_one = inputs.size() == 1 && inputs[0].kind != InputDraft::Kind::kIds;
  out += is_one ? "" : "    features:\n";
  for (const InputDraft& input : inputs) {
    out += fmt::format(
        "{}: {}\n", is_one ? "    features" : "      " + input.name,
        !is_one && input.kind != InputDraft::Kind::kNumbers && input.kind != InputDraft::Kind::kHot
            ? yaml_text(input.columns[0]->name)
            : list_of(input.columns));
  }
  std::vector<const ColumnProfile*> ids = draft.embedded;
  if (has_classes && is_number(target.type)) {
    ids.push_back(&target);  // classes need not count from 0
  }
  if (!ids.empty()) {
    out += fmt::format("    categorical: {}\n", list_of(ids));
  }
  if (!draft.hot.empty()) {
    out += fmt::format("    one_hot: {}  # a 0 or 1 for each text\n", list_of(draft.hot));
  }
  if (!draft.hot.empty() || !draft.embedded.empty()) {
    if (misses_any(draft.hot) || misses_any(draft.embedded)) {
      out += "    mask_token: \"[MASK]\"  # missing texts have an id of their own\n";
    }
    out += "    oov_token: \"[UNK]\"  # and so have texts that no row here has\n";
  }
  if (!draft.prose.empty()) {
    out += "    preprocessing:\n";
    for (const ColumnProfile* column : draft.prose) {
      out += fmt::format(
          "      - TextVectorization: {{column: {}, max_tokens: 20000, output_sequence_length: "
          "{}}}\n",
          yaml_text(column->name), kWordsOfText);
    }
  }
  if (!draft.dates.empty()) {
    out += "    dates:\n";
    for (const ColumnProfile* column : draft.dates) {
      out += fmt::format("      {}: [year, month, weekday]\n", yaml_key(column->name));
    }
  }
  for (const ColumnProfile& column : table.columns) {
    out += &column == &target ? "" : date_hint(column);
  }
  if (misses_any(draft.numbers) || misses_any(draft.dates)) {
    out += "    missing: mean  # missing numbers become the mean of their column\n";
  }
  if (table.separator != ',') {
    out += fmt::format("    separator: {}\n",
                       table.separator == '\t' ? "tab" : fmt::format("\"{}\"", table.separator));
  }
  if (table.decimal != '.') {
    out += "    decimal: \",\"\n";
  }
  out += fmt::format("    header: {}\n", table.has_header);
  const std::string split = draft_split(table.rows, has_classes ? largest_class(target) : 0);
  return out + (split.empty() ? "" : order_hint(table)) + split;
}

std::string model_section(const TableProfile& table, const ColumnProfile& target,
                          const Draft& draft, const std::vector<InputDraft>& inputs) {
  std::string out = "model:\n  layers:\n";
  std::vector<std::string> parts;
  for (const InputDraft& input : inputs) {
    const std::string& name = input.name;
    if (input.kind == InputDraft::Kind::kNumbers || input.kind == InputDraft::Kind::kHot) {
      const bool is_scaled = input.kind == InputDraft::Kind::kNumbers;
      out += fmt::format("    - Input: {{name: {}, shape: [{}]}}\n", name, width_of(input, draft));
      out += is_scaled ? fmt::format("    - Normalization: {{name: scaled{}}}\n",
                                     inputs.size() == 1 ? "" : ", inputs: " + name)
                       : "";
      parts.push_back(is_scaled ? "scaled" : name);
      continue;
    }
    const ColumnProfile* column = input.columns[0];
    const bool is_text = input.kind == InputDraft::Kind::kText;
    const char quote = column->name.find('"') == std::string::npos ? '"' : '\'';
    out += fmt::format("    - Input: {{name: {}, shape: [{}], dtype: int32}}\n", name,
                       is_text ? std::to_string(kWordsOfText) : "");
    out += fmt::format(
        "    - Embedding: {{name: {0}_{3}, input_dim: {1}, output_dim: {2}, inputs: {0}{4}}}\n",
        name, yaml_key(fmt::format("=vocabulary_size({0}{1}{0})", quote, column->name)),
        is_text                  ? 32
        : column->distinct > 100 ? 16
                                 : 8,
        is_text ? "words" : "vector", is_text ? ", mask_zero: true" : "");
    out += is_text ? fmt::format("    - GlobalAveragePooling1D: {{name: {}_vector}}\n", name) : "";
    parts.push_back(name + "_vector");
  }
  if (parts.size() > 1) {
    out += fmt::format("    - Concatenate: {{name: all, inputs: [{}]}}\n", join(parts, ", "));
  }
  out += "    - Dense: {name: hidden_1, units: 64, activation: relu}\n";
  out += "    - Dense: {name: hidden_2, units: 32, activation: relu}\n";
  if (is_class(target, table.rows)) {
    return out + "    - Dense: {name: class, units: =num_classes(), activation: softmax}\n";
  }
  out += "    - Dense: {name: scaled_value, units: 1}\n";
  const double range = target.max - target.min;
  return out + fmt::format(
                   "    - Rescaling: {{name: value, scale: {:.4g}, offset: {:.6g}}}  # to the "
                   "label's unit\n",
                   range > 0 ? range / 4 : 1.0, target.mean);
}

}  // namespace

std::string draft_table_config(const std::string& path, const std::string& label) {
  const TableProfile table = profile_table({path}, {});
  if (table.columns.empty() || table.rows == 0) {
    throw ConfigError("E310", {}, fmt::format("`{}` has no rows", path));
  }
  for (const ColumnProfile& column : table.columns) {
    for (size_t i = 0; i < column.name.size(); i += utf8_length(column.name, i)) {
      if (utf8_length(column.name, i) == 0) {
        throw ConfigError("E310", {},
                          fmt::format("`{}`: the name of the column `{}` is no UTF-8", path,
                                      shown_text(column.name)))
            .help(fmt::format("iconv -f latin1 -t utf-8 '{}' > utf8.csv", path));
      }
    }
  }
  const size_t at = find_label(table, label, path);
  const ColumnProfile& target = table.columns[at];
  if (target.missing > 0) {
    throw ConfigError("E311", {},
                      fmt::format("`{}`: {} labels are missing in the column `{}`", path,
                                  format_thousands(target.missing), shown_text(target.name)))
        .help("leave such rows out of the file, or predict another column: --label NAME");
  }
  if (target.type == Type::kDate || table.rows < 2) {
    throw ConfigError(
        "E327", {},
        fmt::format("`{}`: the column `{}`, {} rows of {}s, cannot be predicted", path,
                    shown_text(target.name), table.rows, type_name(target.type)))
        .help("--label NAME chooses the column to predict");
  }
  if (target.distinct < 2) {
    throw ConfigError("E327", {},
                      fmt::format("`{}`: the column `{}` is the same in each row: there is nothing "
                                  "to learn",
                                  path, shown_text(target.name)))
        .help("--label NAME chooses the column to predict");
  }
  const Draft draft = sort_columns(table, at);
  const std::vector<InputDraft> inputs = inputs_of(draft);
  if (inputs.empty()) {
    throw ConfigError("E327", {}, fmt::format("`{}` has no column to learn from", path))
        .help("left out: " + join(draft.left_out, "; "));
  }
  std::string out = draft_head(
      path,
      fmt::format("{} from {} columns of a table of {} rows", shown_text(target.name),
                  table.columns.size() - 1 - draft.left_out.size(), format_thousands(table.rows)));
  for (const std::string& reason : draft.left_out) {
    out += fmt::format("# Left out: {}.\n", reason);
  }
  out += "\n" + data_section(path, table, at, draft, inputs);
  out += "\n" + model_section(table, target, draft, inputs) +
         "\ncompile:\n  optimizer: {Adam: {learning_rate: ";
  out += is_class(target, table.rows)
             ? "0.003}}\n  loss: sparse_categorical_crossentropy\n  metrics: [accuracy]\n"
             : "0.01}}\n  loss: mse\n  metrics: [mae, r2_score]\n";
  return out + draft_fit(table.rows, 30, !draft_split(table.rows).empty());
}

}  // namespace meshtrain
