#include "data/inspection_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/columns.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/csv_columns.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;
using Type = ColumnProfile::Type;

constexpr size_t kShownColumns = 60;
constexpr size_t kShownFrequent = 3;
constexpr size_t kShownCharacters = 20;
constexpr size_t kShownFields = 12;

bool is_number(const ColumnProfile& column) {
  return column.type == Type::kInteger || column.type == Type::kNumber;
}

std::string distinct_text(const ColumnProfile& column) {
  return (column.distinct == kMaxDistinct ? ">= " : "") + format_thousands(column.distinct);
}

// "Bonn 213, Oslo 201, Rome 186": of texts, and of numbers that repeat.
std::string frequent_text(const ColumnProfile& column) {
  std::vector<std::string> shown;
  for (const auto& [text, count] : column.frequent) {
    if (count > 1 && shown.size() < kShownFrequent) {
      shown.push_back(fmt::format("{} {}", shown_text(text), format_thousands(count)));
    }
  }
  return join(shown, ", ") +
         (shown.size() < column.frequent.size() && !shown.empty() ? ", ..." : "");
}

std::vector<std::string> column_row(const ColumnProfile& column) {
  std::vector<std::string> row = {shown_text(column.name), std::string(type_name(column.type)),
                                  format_thousands(column.missing), distinct_text(column)};
  if (is_number(column)) {
    for (const double value : {column.min, column.mean, column.max}) {
      row.push_back(fmt::format("{:.6g}", value));
    }
  } else {
    row.insert(row.end(), {column.first_date.empty() ? "-" : column.first_date, "-",
                           column.last_date.empty() ? "-" : column.last_date});
  }
  row.push_back(frequent_text(column));
  return row;
}

}  // namespace

std::string shown_character(std::string_view character) {
  return character == "\n"   ? "\\n"
         : character == "\t" ? "\\t"
         : character == "\r" ? "\\r"
         : character == " "  ? "' '"
                             : shown_text(character);
}

std::string columns_text(const TableProfile& table) {
  const std::string separator = table.separator == '\t' ? "tab" : std::string(1, table.separator);
  std::string out =
      fmt::format("{} rows, {} columns, separator `{}`, {}{}\n", format_thousands(table.rows),
                  table.columns.size(), separator, table.decimal == ',' ? "decimal commas, " : "",
                  table.has_header ? "a header" : "no header");
  std::vector<std::vector<std::string>> rows = {
      {"column", "type", "missing", "distinct", "min", "mean", "max", "most frequent"}};
  for (const ColumnProfile& column : table.columns) {
    if (rows.size() <= kShownColumns) {
      rows.push_back(column_row(column));
    }
  }
  out += "\n" + aligned_columns(rows, {2, 3, 4, 5, 6});
  if (table.columns.size() > kShownColumns) {
    out += fmt::format("... {} more columns\n", table.columns.size() - kShownColumns);
  }
  for (size_t i = 0; i < table.first_rows.size(); ++i) {
    std::vector<std::string> fields;
    for (size_t k = 0; k < std::min(kShownFields, table.first_rows[i].size()); ++k) {
      fields.push_back(fmt::format("{}={}", shown_text(table.columns[k].name),
                                   shown_text(table.first_rows[i][k])));
    }
    out += fmt::format("{}row {}: {}{}\n", i == 0 ? "\n" : "", i + 1, join(fields, ", "),
                       fields.size() < table.first_rows[i].size() ? ", ..." : "");
  }
  return out;
}

std::string characters_text(const TextProfile& text) {
  std::string out =
      fmt::format("{} characters, {} lines, {} different characters\n\n",
                  format_thousands(text.characters), format_thousands(text.lines), text.distinct);
  std::vector<std::vector<std::string>> rows = {{"character", "code", "times", "share"}};
  for (const auto& [character, count] : text.frequent) {
    if (rows.size() > kShownCharacters) {
      break;
    }
    rows.push_back({shown_character(character),
                    fmt::format("U+{:04X}", static_cast<uint32_t>(code_point(character))),
                    format_thousands(count),
                    fmt::format("{:.1f}%", 100.0 * static_cast<double>(count) /
                                               static_cast<double>(text.characters))});
  }
  out += aligned_columns(rows, {2, 3});
  if (text.frequent.size() > kShownCharacters) {
    out += fmt::format("... {} more characters\n", text.frequent.size() - kShownCharacters);
  }
  return out + "\nbegins: " + json_text(Json(text.beginning)) + "\n";
}

Json profile_json(const TableProfile& table) {
  Json columns = Json::array();
  for (const ColumnProfile& column : table.columns) {
    Json entry = {{"name", column.name},
                  {"type", type_name(column.type)},
                  {"missing", column.missing},
                  {"distinct", column.distinct}};
    if (is_number(column)) {
      entry["min"] = column.min;
      entry["mean"] = column.mean;
      entry["max"] = column.max;
    } else if (column.type == Type::kDate) {
      entry["min"] = column.first_date;
      entry["max"] = column.last_date;
    }
    Json frequent = Json::array();
    for (const auto& [text, count] : column.frequent) {
      frequent.push_back({{"value", text}, {"times", count}});
    }
    entry["frequent"] = std::move(frequent);
    columns.push_back(std::move(entry));
  }
  return {{"separator", std::string(1, table.separator)},
          {"decimal", std::string(1, table.decimal)},
          {"header", table.has_header},
          {"rows", table.rows},
          {"columns", std::move(columns)},
          {"first_rows", table.first_rows}};
}

Json profile_json(const TextProfile& text) {
  Json frequent = Json::array();
  for (const auto& [character, count] : text.frequent) {
    frequent.push_back({{"character", character}, {"times", count}});
  }
  return {{"characters", text.characters},
          {"lines", text.lines},
          {"distinct", text.distinct},
          {"frequent", std::move(frequent)},
          {"beginning", text.beginning}};
}

}  // namespace meshtrain
