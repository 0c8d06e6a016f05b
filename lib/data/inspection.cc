#include "data/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/csv_columns.h"
#include "data/guess_source.h"
#include "data/inspection_tables.h"
#include "data/learned.h"
#include "data/source_files.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;

InspectedArray inspect_array(const std::string& name, const std::string& role, const Rows& rows,
                             bool are_labels) {
  return {name,
          role,
          rows.dtype(),
          rows.shape(),
          rows.size() * static_cast<int64_t>(rows.row_bytes()),
          measure(rows, are_labels)};
}

std::string number_text(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.6g}", value);
}

std::string class_label(const InspectedPart& part, int64_t label) {
  const bool has_name = label >= 0 && label < static_cast<int64_t>(part.class_names.size());
  return has_name ? fmt::format("{} {}", label, part.class_names[static_cast<size_t>(label)])
                  : std::to_string(label);
}

// "ids of city: 0 [MASK], 1 Bonn, 2 Rome"
std::string ids_text(const std::string& column, const std::vector<std::string>& texts) {
  constexpr size_t kShown = 12;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, texts.size()); ++i) {
    shown.push_back(fmt::format("{} {}", i, shown_text(texts[i])));
  }
  const std::string more =
      texts.size() > kShown ? fmt::format(", ... ({} in all)", texts.size()) : "";
  return fmt::format("\nids of {}: {}{}\n", shown_text(column), join(shown, ", "), more);
}

std::vector<std::string> texts_of(const Vocabulary& characters) {
  std::vector<std::string> texts;
  for (const char32_t character : characters) {
    std::string text;
    append_utf8(character, text);
    texts.push_back(shown_character(text));
  }
  return texts;
}

// "x = 0, 0, 12, ... (784 numbers)"
std::string row_text(const std::string& name, const Rows& rows, int64_t index) {
  constexpr int64_t kShown = 8;
  const HostTensor row = rows.read_range(index, index + 1);
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < std::min(kShown, row.size()); ++i) {
    numbers.push_back(number_text(row.at(i)));
  }
  return fmt::format(
      "{} = {}{}", name, join(numbers, ", "),
      row.size() > kShown ? fmt::format(", ... ({} numbers)", format_thousands(row.size())) : "");
}

// The arrays of one sample. Ids of characters are shown as text, labels with their class.
std::string sample_text(const Dataset& data, int64_t index, const std::vector<std::string>& names,
                        bool is_text) {
  constexpr int64_t kShown = 60;
  const auto name_of = [&](double id) {
    const bool is_known = id >= 0 && id < static_cast<double>(names.size());
    return is_known ? names[static_cast<size_t>(id)] : number_text(id);
  };
  std::vector<std::string> arrays;
  for (const auto* part : {&data.inputs, &data.targets}) {
    for (const Dataset::Array& array : *part) {
      const HostTensor row = array.rows->read_range(index, index + 1);
      if (!is_text && (part == &data.inputs || row.size() != 1 || names.empty())) {
        arrays.push_back(row_text(array.name, *array.rows, index));
        continue;
      }
      std::string text;
      for (int64_t i = 0; i < std::min(kShown, row.size()); ++i) {
        text += name_of(row.at(i)) == "' '" ? " " : name_of(row.at(i));
      }
      arrays.push_back(
          fmt::format("{} = {}{}", array.name, text, row.size() > kShown ? "..." : ""));
    }
  }
  return join(arrays, "; ");
}

std::string part_text(const InspectedPart& part) {
  constexpr size_t kMaxShownClasses = 20;
  std::string out = part.name.empty() ? part.description + "\n"
                                      : fmt::format("{}: {}\n", part.name, part.description);
  if (part.batches > 0) {
    const int64_t last = part.samples - (part.batches - 1) * part.batch_size;
    out += fmt::format("{} samples, {} batch{} of {} per epoch{}\n", format_thousands(part.samples),
                       part.batches, part.batches == 1 ? "" : "es", part.batch_size,
                       last < part.batch_size ? fmt::format(", the last of {}", last) : "");
  }
  if (part.table) {
    out += (part.arrays.empty() ? "" : "\nin the files: ") + columns_text(*part.table);
  }
  if (part.text) {
    return out + characters_text(*part.text);
  }
  if (part.arrays.empty()) {
    return out;
  }
  std::vector<std::vector<std::string>> rows = {
      {"array", "dtype", "shape", "min", "max", "mean", "NaN", "inf", "size"}};
  for (const InspectedArray& array : part.arrays) {
    rows.push_back({array.name, std::string(dtype_name(array.dtype)), shape_string(array.shape),
                    number_text(array.stats.min), number_text(array.stats.max),
                    number_text(array.stats.mean), format_thousands(array.stats.nans),
                    format_thousands(array.stats.infinities), format_bytes(array.bytes)});
  }
  out += "\n" + aligned_columns(rows, {3, 4, 5, 6, 7, 8});
  for (const InspectedArray& array : part.arrays) {
    if (!array.stats.classes) {
      continue;
    }
    rows = {{fmt::format("classes of {}", array.name), "samples", "share"}};
    for (const auto& [label, count] : *array.stats.classes) {
      rows.push_back({class_label(part, label), format_thousands(count),
                      fmt::format("{:.1f}%", 100.0 * static_cast<double>(count) /
                                                 static_cast<double>(array.shape[0]))});
    }
    const size_t all = rows.size() - 1;
    rows.resize(std::min(rows.size(), kMaxShownClasses + 1));
    out += "\n" + aligned_columns(rows, {1, 2});
    if (all > kMaxShownClasses) {
      out += fmt::format("... {} more\n", all - kMaxShownClasses);
    }
  }
  for (const auto& [column, texts] : part.ids) {
    out += ids_text(column, texts);
  }
  for (size_t i = 0; i < part.first.size(); ++i) {
    out += fmt::format("{}sample {}: {}\n", i == 0 ? "\n" : "", i, part.first[i]);
  }
  return out;
}

Json json_number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json part_json(const InspectedPart& part) {
  Json arrays = Json::array();
  int64_t bytes = 0;
  for (const InspectedArray& array : part.arrays) {
    Json entry = {{"name", array.name},
                  {"role", array.role.empty() ? Json(nullptr) : Json(array.role)},
                  {"dtype", dtype_name(array.dtype)},
                  {"shape", array.shape},
                  {"min", json_number(array.stats.min)},
                  {"max", json_number(array.stats.max)},
                  {"mean", json_number(array.stats.mean)},
                  {"nan", array.stats.nans},
                  {"inf", array.stats.infinities},
                  {"bytes", array.bytes}};
    if (array.stats.classes) {
      Json classes = Json::array();
      for (const auto& [label, count] : *array.stats.classes) {
        Json one = {{"class", label}, {"samples", count}};
        if (label >= 0 && label < static_cast<int64_t>(part.class_names.size())) {
          one["name"] = part.class_names[static_cast<size_t>(label)];
        }
        classes.push_back(std::move(one));
      }
      entry["classes"] = std::move(classes);
    }
    bytes += array.bytes;
    arrays.push_back(std::move(entry));
  }
  Json out = {{"part", part.name.empty() ? Json(nullptr) : Json(part.name)},
              {"source", part.description},
              {"samples", part.samples},
              {"bytes", bytes}};
  if (part.batch_size > 0) {
    out["batch_size"] = part.batch_size;
    out["batches"] = part.batches;
  }
  out["arrays"] = std::move(arrays);
  if (part.table) {
    out["table"] = profile_json(*part.table);
  }
  if (part.text) {
    out["text"] = profile_json(*part.text);
  }
  return out;
}

}  // namespace

InspectedPart inspect_dataset(const std::string& name, const Dataset& data, int64_t batch_size,
                              bool drops_remainder) {
  InspectedPart part;
  part.name = name;
  part.description = data.description;
  part.samples = data.num_samples;
  part.batch_size = batch_size;
  part.batches = (data.num_samples + (drops_remainder ? 0 : batch_size - 1)) / batch_size;
  part.class_names = data.class_names;
  Vocabulary characters;
  part.ids = data.learned ? data.learned->csv.categories : part.ids;
  if (part.class_names.empty() && data.learned) {
    characters = data.learned->characters;
    part.class_names = texts_of(characters);
  }
  for (const Dataset::Array& array : data.inputs) {
    part.arrays.push_back(inspect_array(array.name, "input", *array.rows, false));
  }
  for (const Dataset::Array& array : data.targets) {
    part.arrays.push_back(inspect_array(array.name, "target", *array.rows, true));
  }
  if (data.sample_weight) {
    part.arrays.push_back(inspect_array("sample_weight", "weight", *data.sample_weight, false));
  }
  for (int64_t i = 0; i < std::min<int64_t>(2, data.num_samples); ++i) {
    part.first.push_back(sample_text(data, i, part.class_names, !characters.empty()));
  }
  return part;
}

std::optional<TableProfile> profile_source(const ConfigObject& source, const DataConfig& data) {
  const auto csv = options_if<CsvOptions>(source);
  if (!csv) {
    return std::nullopt;
  }
  std::vector<std::string> paths;
  for (const NamedFile& file : find_files(csv->path, data.base_dir)) {
    paths.push_back(file.path);
  }
  return profile_table(paths, {csv->separator == "tab" ? '\t' : csv->separator[0],
                               csv->decimal->front(), csv->header, csv->missing_texts});
}

InspectedPart inspect_path(const std::string& path) {
  InspectedPart part;
  const auto add = [&](const std::string& name, const Rows& rows, bool may_be_labels) {
    part.arrays.push_back(inspect_array(name, "", rows, may_be_labels));
    part.samples = std::max(part.samples, rows.size());
    if (rows.size() > 0) {
      part.first.resize(1);
      part.first[0] += (part.first[0].empty() ? "" : "; ") + row_text(name, rows, 0);
    }
  };
  Guessed found = read_guessed(path, add);
  part.description = std::move(found.description);
  part.class_names = std::move(found.class_names);
  part.table = std::move(found.table);
  part.text = std::move(found.text);
  part.samples = part.table ? part.table->rows : part.samples;
  return part;
}

std::string inspection_text(const std::vector<InspectedPart>& parts) {
  std::string text;
  for (const InspectedPart& part : parts) {
    text += (text.empty() ? "" : "\n") + part_text(part);
  }
  return text;
}

std::string inspection_json(const std::vector<InspectedPart>& parts) {
  Json list = Json::array();
  for (const InspectedPart& part : parts) {
    list.push_back(part_json(part));
  }
  return json_text(Json{{"parts", std::move(list)}}, 1, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshtrain
