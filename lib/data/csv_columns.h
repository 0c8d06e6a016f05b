// The columns of a CSV file: their names, and the columns that the config selects.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv_table.h"

namespace meshtrain {

// Returns whether the first record of a file names the columns.
bool is_csv_header(std::span<const std::string_view> fields, CsvSettings::Header header,
                   char decimal);

// Names of the columns: those of the header, which must differ (E310), else "0", "1", ...
std::vector<std::string> csv_column_names(std::span<const std::string_view> fields, bool has_header,
                                          const std::string& file);

// Index of the column that the config names. Throws ConfigError E310 at the place of the name.
size_t find_csv_column(std::span<const std::string> names, const CsvColumn& column,
                       const std::string& file);

// The column indices of the arrays and settings in a file with these columns.
struct CsvLayout {
  struct Array {
    std::string name;
    std::vector<size_t> columns;
    bool is_vector = false;
  };
  std::vector<Array> inputs, targets, weights;  // at most one of weights
  std::vector<size_t> one_hot, dates;           // in the order of the settings
  std::optional<size_t> group;
  // Of each of the settings' preprocessing: the columns that it reads, and the one that it makes.
  std::vector<std::pair<std::vector<size_t>, size_t>> preprocessing;
  std::vector<std::string> known_as;  // each column's name in the training data, or its own
  std::map<std::vector<std::string>, std::vector<std::string>> written;  // CsvLearned::columns
};
struct CsvHeader {
  std::span<const std::string> names;
  bool is_written = false;  // else the names are indices
  const std::string& file;
};
CsvLayout csv_layout(const CsvSettings& settings, const CsvLearned* learned,
                     const CsvHeader& header);

// A text for messages: valid UTF-8 without control characters, cut where it is long.
std::string shown_text(std::string_view text);

}  // namespace meshtrain
