#include "data/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "data/guess_source.h"

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

std::string part_text(const InspectedPart& part) {
  constexpr size_t kMaxShownClasses = 100;
  std::string out = part.name.empty() ? part.description + "\n"
                                      : fmt::format("{}: {}\n", part.name, part.description);
  if (part.batches > 0) {
    const int64_t last = part.samples - (part.batches - 1) * part.batch_size;
    out += fmt::format("{} samples, {} batch{} of {} per epoch{}\n", format_thousands(part.samples),
                       part.batches, part.batches == 1 ? "" : "es", part.batch_size,
                       last < part.batch_size ? fmt::format(", the last of {}", last) : "");
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
  for (const Dataset::Array& array : data.inputs) {
    part.arrays.push_back(inspect_array(array.name, "input", *array.rows, false));
  }
  for (const Dataset::Array& array : data.targets) {
    part.arrays.push_back(inspect_array(array.name, "target", *array.rows, true));
  }
  if (data.sample_weight) {
    part.arrays.push_back(inspect_array("sample_weight", "weight", *data.sample_weight, false));
  }
  return part;
}

InspectedPart inspect_path(const std::string& path) {
  InspectedPart part;
  const auto add = [&](const std::string& name, const Rows& rows, bool may_be_labels) {
    part.arrays.push_back(inspect_array(name, "", rows, may_be_labels));
    part.samples = std::max(part.samples, rows.size());
  };
  Guessed found = read_guessed(path, add);
  part.description = std::move(found.description);
  part.class_names = std::move(found.class_names);
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
