#include "data/csv_columns.h"

#include <algorithm>

#include "base/parse_number.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxShown = 40;
constexpr size_t kMaxNames = 12;

std::string list_of(std::span<const std::string> names) {
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(names.size(), kMaxNames))) {
    shown.push_back(shown_text(name));
  }
  return join(shown, ", ") + (names.size() > kMaxNames ? ", ..." : "");
}

CsvLayout::Array layout_of(const CsvArray& array, std::span<const std::string> names,
                           const std::string& file) {
  CsvLayout::Array out{array.name, {}, array.is_vector};
  for (const CsvColumn& column : array.columns) {
    out.columns.push_back(find_csv_column(names, column, file));
  }
  return out;
}

// "x": the columns of the training data, or all that are nothing else.
CsvLayout::Array other_columns(const CsvLayout& layout, const CsvLearned* learned,
                               std::span<const std::string> names, const std::string& file) {
  CsvLayout::Array out{"x", {}, false};
  if (learned != nullptr) {
    for (const std::string& name : learned->features) {
      out.columns.push_back(find_csv_column(names, {name, {}}, file));
    }
    return out;
  }
  std::vector<bool> is_used(names.size());
  for (const auto* arrays : {&layout.targets, &layout.weights}) {
    for (const CsvLayout::Array& array : *arrays) {
      for (const size_t column : array.columns) {
        is_used[column] = true;
      }
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!is_used[i]) {
      out.columns.push_back(i);
    }
  }
  if (out.columns.empty()) {
    throw ConfigError("E310", {},
                      fmt::format("`{}` has no column for features: {}", file, list_of(names)));
  }
  return out;
}

}  // namespace

std::string shown_text(std::string_view text) {
  std::string out(text.substr(0, kMaxShown));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; },
      '?');
  while (text.size() > kMaxShown && !out.empty() &&
         (out.back() & 0xc0) == 0x80) {  // no half of a character
    out.pop_back();
  }
  return text.size() > kMaxShown ? out + "..." : out;
}

bool is_csv_header(std::span<const std::string_view> fields, CsvSettings::Header header) {
  if (header != CsvSettings::Header::kAuto) {
    return header == CsvSettings::Header::kYes;
  }
  return std::none_of(fields.begin(), fields.end(),
                      [](std::string_view field) { return parse_decimal(field).has_value(); });
}

std::vector<std::string> csv_column_names(std::span<const std::string_view> fields, bool has_header,
                                          const std::string& file) {
  std::vector<std::string> names;
  for (size_t i = 0; i < fields.size(); ++i) {
    names.push_back(has_header ? std::string(trim(fields[i])) : std::to_string(i));
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw ConfigError(
        "E310", {}, fmt::format("`{}`: two columns have the name `{}`", file, shown_text(*twice)));
  }
  return names;
}

size_t find_csv_column(std::span<const std::string> names, const CsvColumn& column,
                       const std::string& file) {
  const auto found = std::find(names.begin(), names.end(), column.text);
  if (found != names.end()) {
    return static_cast<size_t>(found - names.begin());
  }
  const auto index = parse_number<int64_t>(column.text);
  const auto count = static_cast<int64_t>(names.size());
  if (index && *index >= -count && *index < count) {
    return static_cast<size_t>(*index < 0 ? *index + count : *index);
  }
  Diagnostics problems;
  Diagnostic& problem = problems.error("E310", column.loc,
                                       fmt::format("`{}` has no column `{}`; columns: {}", file,
                                                   shown_text(column.text), list_of(names)));
  if (const auto nearest = nearest_name(column.text, names)) {
    problem.with_label(fmt::format("did you mean `{}`?", *nearest));
  }
  throw ConfigError(problems);
}

CsvLayout csv_layout(const CsvSettings& settings, const CsvLearned* learned,
                     std::span<const std::string> names, const std::string& file) {
  CsvLayout layout;
  for (const CsvArray& array : settings.targets) {
    layout.targets.push_back(layout_of(array, names, file));
  }
  if (settings.weight) {
    layout.weights.push_back(layout_of({"sample_weight", {*settings.weight}, true}, names, file));
  }
  for (const CsvArray& array : settings.inputs) {
    layout.inputs.push_back(layout_of(array, names, file));
  }
  if (layout.inputs.empty()) {
    layout.inputs.push_back(other_columns(layout, learned, names, file));
  }
  return layout;
}

}  // namespace meshtrain
