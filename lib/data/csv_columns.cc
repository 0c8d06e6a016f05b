#include "data/csv_columns.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/parse_number.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/flow.h"

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

[[noreturn]] void refuse_column(std::span<const std::string> names, const CsvColumn& column,
                                const std::string& name, const std::string& file) {
  ConfigError problem(
      "E310", column.loc,
      fmt::format("`{}` has no column `{}`; columns: {}", file, shown_text(name), list_of(names)));
  if (column.text != name) {
    problem.note(fmt::format("column `{}` of the training data is `{}`", shown_text(column.text),
                             shown_text(name)));
  }
  const size_t other = names.size() == 1 ? names[0].find_first_of(";,\t|") : std::string::npos;
  if (other != std::string::npos) {
    problem.help(
        fmt::format("are the columns separated by another character? `separator: {}`",
                    names[0][other] == '\t' ? "tab" : fmt::format("\"{}\"", names[0][other])));
  } else if (const auto nearest = nearest_name(name, names)) {
    problem.with_label(fmt::format("did you mean `{}`?", *nearest));
  }
  throw problem;
}

// The column that has this name in the training data. Names are compared where both have them.
size_t find_known(const CsvColumn& column, const std::string& name, const CsvLearned& learned,
                  const CsvHeader& header) {
  if (!learned.has_header || !header.is_written) {
    return find_csv_column(header.names, column, header.file);
  }
  const auto found = std::find(header.names.begin(), header.names.end(), name);
  if (found == header.names.end()) {
    refuse_column(header.names, column, name, header.file);
  }
  return static_cast<size_t>(found - header.names.begin());
}

// `problems` receives the columns of the training data that are not there; of other data, whose
// columns have their names from these, the first one is thrown.
CsvLayout::Array layout_of(const CsvArray& array, const CsvLearned* learned,
                           const CsvHeader& header, CsvLayout& layout, Diagnostics& problems) {
  std::vector<std::string> as_written = {array.name};
  for (const CsvColumn& column : array.columns) {
    as_written.push_back(column.text);
  }
  const std::vector<std::string>* known = nullptr;
  if (learned != nullptr) {
    const auto found = learned->columns.find(as_written);
    known = found == learned->columns.end() ? nullptr : &found->second;
  }
  CsvLayout::Array out{array.name, {}, array.is_vector};
  std::vector<std::string>& names = layout.written[std::move(as_written)];
  names.clear();  // two transforms may read one column
  for (size_t i = 0; i < array.columns.size(); ++i) {
    size_t column = 0;
    try {
      column = known ? find_known(array.columns[i], (*known)[i], *learned, header)
                     : find_csv_column(header.names, array.columns[i], header.file);
    } catch (const ConfigError& problem) {
      if (learned != nullptr) {
        throw;
      }
      problems.append(problem.diagnostics());
    }
    if (known) {
      layout.known_as[column] = (*known)[i];
    }
    out.columns.push_back(column);
    names.push_back(layout.known_as[column]);
  }
  return out;
}

// Throws E310: all columns are labels, or of another use.
[[noreturn]] void refuse_no_features(const CsvLayout& layout, const CsvHeader& header) {
  ConfigError problem(
      "E310", {},
      fmt::format("`{}` has no column left for features: {}", header.file, list_of(header.names)));
  std::vector<std::string> labels;
  for (const CsvLayout::Array& array : layout.targets) {
    for (const size_t column : array.columns) {
      labels.push_back(yaml_text(header.names[column]));
    }
  }
  if (!labels.empty()) {
    problem.help(fmt::format("in a series `features: [{}]` makes the label a feature, too",
                             join(labels, ", ")));
  }
  throw problem;
}

// "x": the columns of the training data, or all that are nothing else.
CsvLayout::Array other_columns(CsvLayout& layout, const CsvLearned* learned,
                               const CsvHeader& header) {
  const std::span<const std::string> names = header.names;
  CsvLayout::Array out{"x", {}, false};
  if (learned != nullptr) {
    for (const std::string& name : learned->features) {
      out.columns.push_back(find_known({name, {}}, name, *learned, header));
      layout.known_as[out.columns.back()] = name;
    }
    return out;
  }
  std::vector<bool> is_used(names.size());
  if (layout.group) {
    is_used[*layout.group] = true;
  }
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
    refuse_no_features(layout, header);
  }
  return out;
}

}  // namespace

std::string shown_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool is_shown = length > 1 || (length == 1 && byte >= 32 && byte != 127);
    const size_t taken = std::max<size_t>(1, length);
    if (out.size() + taken > kMaxShown) {
      return out + "...";
    }
    out += is_shown ? text.substr(at, taken) : "?";
    at += taken;
  }
  return out;
}

bool is_csv_header(std::span<const std::string_view> fields, CsvSettings::Header header,
                   char decimal) {
  if (header != CsvSettings::Header::kAuto) {
    return header == CsvSettings::Header::kYes;
  }
  return std::none_of(fields.begin(), fields.end(), [&](std::string_view field) {
    return parse_decimal(field, decimal).has_value();
  });
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
  refuse_column(names, column, column.text, file);
}

namespace {

// What else of the training data's columns is missing, and which columns these did not have.
void add_differences(const CsvSettings& settings, const CsvLearned& learned,
                     const CsvHeader& header, ConfigError& error) {
  std::set<std::string> needed;
  if (settings.inputs.empty()) {
    needed.insert(learned.features.begin(), learned.features.end());
  }
  for (const auto* arrays : {&settings.inputs, &settings.targets}) {
    for (const CsvArray& array : *arrays) {
      std::vector<std::string> written = {array.name};
      for (const CsvColumn& column : array.columns) {
        written.push_back(column.text);
      }
      if (const auto known = learned.columns.find(written); known != learned.columns.end()) {
        needed.insert(known->second.begin(), known->second.end());
      }
    }
  }
  std::vector<std::string> missing, added;
  std::copy_if(needed.begin(), needed.end(), std::back_inserter(missing), [&](const auto& name) {
    return std::find(header.names.begin(), header.names.end(), name) == header.names.end();
  });
  std::copy_if(header.names.begin(), header.names.end(), std::back_inserter(added),
               [&](const std::string& name) {
                 return !learned.numbers.contains(name) && !learned.categories.contains(name) &&
                        !learned.tables.contains(name);
               });
  if (missing.size() > 1) {
    error.note("missing: " + list_of(missing));
  }
  if (!added.empty()) {
    error.note("new: " + list_of(added));
  }
}

// `find(array, column)`: the index of a column.
template <class Find>
std::pair<std::vector<size_t>, size_t> preprocessing_layout(const ConfigObject& transform,
                                                            const Find& find) {
  if (!transform.args.contains("columns")) {
    const size_t column =
        find("preprocessing", CsvColumn{transform.string("column"), transform.loc_of("column")});
    return {{column}, column};
  }
  std::vector<size_t> columns;
  for (const ConfigValue& column : transform.arg("columns").list()) {
    columns.push_back(find("preprocessing", CsvColumn{column.string(), column.loc}));
  }
  return {columns, find("preprocessing", CsvColumn{transform.string("name"), transform.loc})};
}

CsvLayout layout_in(const CsvSettings& settings, const CsvLearned* learned,
                    const CsvHeader& header) {
  CsvLayout layout;
  Diagnostics problems;
  layout.known_as.assign(header.names.begin(), header.names.end());
  const auto add = [&](const CsvArray& array, std::vector<CsvLayout::Array>& to) {
    to.push_back(layout_of(array, learned, header, layout, problems));
  };
  for (const CsvArray& array : settings.targets) {
    add(array, layout.targets);
  }
  if (settings.weight) {
    add({"sample_weight", {*settings.weight}, true}, layout.weights);
  }
  for (const CsvArray& array : settings.inputs) {
    add(array, layout.inputs);
  }
  const auto find = [&](const char* name, const CsvColumn& column) {
    return layout_of({name, {column}, true}, learned, header, layout, problems).columns[0];
  };
  for (const CsvColumn& column : settings.one_hot) {
    layout.one_hot.push_back(find("one_hot", column));
  }
  for (const auto& [column, parts] : settings.dates) {
    layout.dates.push_back(find("dates", column));
  }
  for (const ConfigObject* transform : settings.preprocessing) {
    layout.preprocessing.push_back(preprocessing_layout(*transform, find));
  }
  if (settings.group) {
    layout.group = find("group", *settings.group);
  }
  problems.throw_if_errors();
  if (layout.inputs.empty()) {
    layout.inputs.push_back(other_columns(layout, learned, header));
  }
  return layout;
}

}  // namespace

CsvLayout csv_layout(const CsvSettings& settings, const CsvLearned* learned,
                     const CsvHeader& header) {
  try {
    return layout_in(settings, learned, header);
  } catch (ConfigError& error) {
    if (learned != nullptr && learned->has_header && header.is_written) {
      add_differences(settings, *learned, header, error);
    }
    throw;
  }
}

}  // namespace meshtrain
