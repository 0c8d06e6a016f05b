// What a table or a text is like, before a config says how to read it: `meshtrain data inspect
// FILE` and `meshtrain init --from FILE`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/source_classes.h"

namespace meshtrain {

// The most common of several texts, each with its number, most frequent first.
using TextCounts = std::vector<std::pair<std::string, int64_t>>;

struct ColumnProfile {
  enum class Type : uint8_t { kInteger, kNumber, kDate, kText, kEmpty };

  std::string name;
  Type type = Type::kEmpty;
  int64_t missing = 0;
  int64_t distinct = 0;               // values that are not missing; kMaxDistinct means more
  double min = 0, max = 0, mean = 0;  // of numbers
  std::string first_date, last_date;  // of dates
  bool is_ascending = false;          // dates, row by row
  TextCounts frequent;                // the five most frequent values
};
constexpr int64_t kMaxDistinct = 100000;
std::string_view type_name(ColumnProfile::Type type);  // "integer"

struct TableProfile {
  char separator = ',', decimal = '.';
  bool has_header = false;
  int64_t rows = 0;
  std::vector<ColumnProfile> columns;
  std::vector<std::vector<std::string>> first_rows;  // two at most
};

// How a table is read; a separator or decimal of 0 is guessed.
struct TableSyntax {
  char separator = 0, decimal = 0;
  CsvHeaderMode header = CsvHeaderMode::kAuto;
  std::optional<std::vector<std::string>> missing_texts;
};

// Returns the separator of the columns of a text that begins so: comma, semicolon, tab or `|`.
// Nothing when its first lines are no table of at least two columns.
std::optional<char> guess_separator(std::string_view beginning);

// Whether the first row of `beginning` is a header although it has numbers. They count on
// ("0,1,2,label", "region,2019,2020"), or a word stands over numbers ("region,pop,2020"), and texts
// do not come again in their columns. Numbers alone ("0,1,2") count on over a column of fractions,
// or from 0 to 4 and more.
bool has_numbers_in_header(std::string_view beginning, char separator);

// Reads the files, whose columns must be the same, once. Throws ConfigError E300, E310.
TableProfile profile_table(const std::vector<std::string>& paths, const TableSyntax& format);

struct TextProfile {
  int64_t characters = 0, lines = 0, distinct = 0;
  TextCounts frequent;    // characters, all of them
  std::string beginning;  // 200 characters
};
// Throws ConfigError E300, and E318 for what is no UTF-8.
TextProfile profile_text(const std::string& path);

}  // namespace meshtrain
