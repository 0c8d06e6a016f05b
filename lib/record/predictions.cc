#include "record/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/diagnostic.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/links.h"
#include "base/text.h"
#include "record/csv_field.h"
#include "record/run_dir.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Replace = nlohmann::json::error_handler_t;

// Element `index` with as many digits as its type has.
std::string number_text(const HostTensor& tensor, int64_t index) {
  const double value = tensor.at(index);
  if (is_integer(tensor.dtype()))
    return fmt::format("{}", static_cast<int64_t>(value));
  return tensor.dtype() == DType::kFloat64 ? fmt::format("{}", value)
                                           : fmt::format("{}", static_cast<float>(value));
}

int64_t row_size(const HostTensor& tensor) {
  return num_elements(without_first(tensor.shape()));
}

// "scores_1_2", by the place of an element within a sample.
std::string column_name(const NamedTensor& output, int64_t index) {
  const Shape& shape = output.tensor.shape();
  std::string places;
  for (size_t dim = shape.size() - 1; dim > 0; --dim) {
    places = fmt::format("_{}", index % shape[dim]) + places;
    index /= shape[dim];
  }
  return row_size(output.tensor) == 1 ? output.name : output.name + places;
}

// A column of text formats beside the numbers, and its value for each sample.
struct NamedColumn {
  std::string name;
  std::function<nlohmann::json(int64_t sample)> value;
};

bool says_class(const Predictions& predictions, size_t output) {
  return output < predictions.classes.size() && predictions.classes[output].is_of_samples();
}

std::vector<NamedColumn> named_columns(const Predictions& predictions) {
  std::vector<NamedColumn> columns;
  if (!predictions.files.empty()) {
    columns.push_back({"file", [&](int64_t sample) -> nlohmann::json {
                         return predictions.files[static_cast<size_t>(sample)];
                       }});
  }
  const bool is_only = predictions.outputs.size() == 1;
  for (size_t i = 0; i < predictions.outputs.size(); ++i) {
    if (!says_class(predictions, i)) {
      continue;
    }
    const std::string prefix = is_only ? "" : predictions.outputs[i].name + "_";
    const ClassOutput& output = predictions.classes[i];
    const HostTensor& tensor = predictions.outputs[i].tensor;
    columns.push_back({prefix + "class", [&](int64_t sample) -> nlohmann::json {
                         const int64_t id = predicted_class(output, tensor, sample).id;
                         return output.names.empty()
                                    ? nlohmann::json(id)
                                    : nlohmann::json(output.names[static_cast<size_t>(id)]);
                       }});
    columns.push_back({prefix + "probability", [&](int64_t sample) -> nlohmann::json {
                         const double p = predicted_class(output, tensor, sample).probability;
                         return std::isfinite(p) ? nlohmann::json(p) : nlohmann::json();
                       }});
  }
  if (predictions.groups) {
    const SampleGroups& groups = *predictions.groups;
    const bool is_taken =
        std::any_of(columns.begin(), columns.end(),
                    [&](const NamedColumn& column) { return column.name == groups.column; });
    columns.insert(
        columns.begin() + (predictions.files.empty() ? 0 : 1),
        {is_taken ? groups.column + "_group" : groups.column,
         [&groups](int64_t sample) -> nlohmann::json {
           return groups.names[static_cast<size_t>(groups.ids[static_cast<size_t>(sample)])];
         }});
  }
  return columns;
}

// The name of an output's own column: `class_output` beside a named column `class`.
std::string free_name(const std::string& name, const std::vector<NamedColumn>& columns) {
  const bool is_taken = std::any_of(columns.begin(), columns.end(),
                                    [&](const NamedColumn& column) { return column.name == name; });
  return is_taken ? name + "_output" : name;
}

// A value of a named column with as many digits as a float32 has.
std::string named_text(const nlohmann::json& value, bool is_json) {
  return value.is_number_float() ? fmt::format("{}", static_cast<float>(value.get<double>()))
         : value.is_string() && !is_json ? csv_field(value.get<std::string>())
         : value.is_null() && !is_json   ? "nan"
                                         : json_text(value, -1, Replace::replace);
}

std::string csv_text(const Predictions& predictions, int64_t samples) {
  const std::vector<NamedColumn> columns = named_columns(predictions);
  std::vector<std::string> fields;
  for (const NamedColumn& column : columns) {
    fields.push_back(csv_field(column.name));
  }
  for (size_t o = 0; o < predictions.outputs.size(); ++o) {
    const NamedTensor& output = predictions.outputs[o];
    const bool has_classes = says_class(predictions, o) &&
                             std::ssize(predictions.classes[o].names) == row_size(output.tensor);
    for (int64_t i = 0; i < row_size(output.tensor); ++i) {
      const std::string name =
          has_classes && row_size(output.tensor) > 1
              ? output.name + "_" + predictions.classes[o].names[static_cast<size_t>(i)]
              : column_name(output, i);
      fields.push_back(csv_field(free_name(name, columns)));
    }
  }
  std::string text = join(fields, ",") + "\n";
  for (int64_t sample = 0; sample < samples; ++sample) {
    fields.clear();
    for (const NamedColumn& column : columns) {
      fields.push_back(named_text(column.value(sample), false));
    }
    for (const NamedTensor& output : predictions.outputs) {
      const int64_t size = row_size(output.tensor);
      for (int64_t i = 0; i < size; ++i) {
        fields.push_back(number_text(output.tensor, sample * size + i));
      }
    }
    text += join(fields, ",") + "\n";
  }
  return text;
}

// The elements of one sample from `index` on, which is left after them, as nested lists.
std::string json_value(const HostTensor& tensor, size_t dim, int64_t& index) {
  if (dim == tensor.shape().size()) {
    const std::string text = number_text(tensor, index);
    return std::isfinite(tensor.at(index++)) ? text : "null";
  }
  std::vector<std::string> items;
  for (int64_t i = 0; i < tensor.shape()[dim]; ++i) {
    items.push_back(json_value(tensor, dim + 1, index));
  }
  return "[" + join(items, ",") + "]";
}

std::string jsonl_text(const Predictions& predictions, int64_t samples) {
  const std::vector<NamedColumn> columns = named_columns(predictions);
  std::string text;
  for (int64_t sample = 0; sample < samples; ++sample) {
    std::vector<std::string> fields;
    for (const NamedColumn& column : columns) {
      fields.push_back(json_text(nlohmann::json(column.name)) + ":" +
                       named_text(column.value(sample), true));
    }
    for (const NamedTensor& output : predictions.outputs) {
      int64_t index = sample * row_size(output.tensor);
      fields.push_back(json_text(nlohmann::json(free_name(output.name, columns))) + ":" +
                       json_value(output.tensor, 1, index));
    }
    text += "{" + join(fields, ",") + "}\n";
  }
  return text;
}

// The target of a link: the link is kept when the file is replaced.
std::string place_of(const std::string& path) {
  std::error_code error;
  const bool is_file = !fs::exists(path, error) || fs::is_regular_file(path, error);
  return is_file ? follow_links(path).string() : path;
}

}  // namespace

PredictionFormat prediction_format(const std::string& path, const std::string& format,
                                   size_t num_outputs) {
  const bool is_stdout = path == "-";
  const auto is_kind = [&](const char* name) {
    return !format.empty() ? format == name
           : is_stdout     ? std::string_view(name) == "csv"
                           : ends_with(path, fmt::format(".{}", name));
  };
  if (is_kind("csv") || is_kind("jsonl")) {
    return is_kind("csv") ? PredictionFormat::kCsv : PredictionFormat::kJsonl;
  }
  if (is_kind("npz") && !is_stdout) {
    return PredictionFormat::kNpz;
  }
  if (is_kind("npy") && num_outputs == 1) {
    return PredictionFormat::kNpy;
  }
  throw ConfigError(
      "E140", {},
      is_kind("npy") ? fmt::format("`--output {}`: the model has {} outputs, a .npy file holds one",
                                   path, num_outputs)
      : is_kind("npz") ? "an .npz archive cannot be written to stdout"
                       : fmt::format("`--output {}` has no known file extension", path))
      .help(is_kind("npy")   ? "end it with .npz, .csv or .jsonl"
            : is_kind("npz") ? "write csv, jsonl or npy there, or name a file"
                             : "end it with .npy, .npz, .csv or .jsonl, or give `--format`; "
                               "FOLDER/ gets masks");
}

void check_predictions_folder(const std::string& path, const std::string& input) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    throw ConfigError("E142", {}, fmt::format("`--output {}` is a folder", path));
  }
  if (fs::is_regular_file(status) && fs::equivalent(path, input, error)) {
    throw ConfigError("E140", {},
                      fmt::format("`--output {}` would replace the samples of --input", path))
        .help("another name for the predictions");
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return;  // a device or pipe is written as it is
  }
  const fs::path parent = fs::path(place_of(path)).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!fs::is_directory(folder, error)) {
    throw ConfigError("E142", {},
                      fmt::format("`--output {}`: there is no folder `{}`", path, folder));
  }
  Diagnostics diagnostics;
  check_can_make(folder, {}, diagnostics);
  diagnostics.throw_if_errors();
}

PredictedClass predicted_class(const ClassOutput& output, const HostTensor& tensor, int64_t row) {
  const int64_t size = output.kind == ClassOutput::Kind::kYesNo ? 1 : tensor.shape().back();
  const int64_t begin = row * size;
  if (output.kind == ClassOutput::Kind::kYesNo) {
    const double value = tensor.at(begin);
    const double one = output.is_logits ? 1 / (1 + std::exp(-value)) : value;
    return {one > 0.5 ? 1 : 0, one > 0.5 ? one : 1 - one};
  }
  int64_t largest = 0;
  for (int64_t i = 1; i < size; ++i) {
    largest = tensor.at(begin + i) > tensor.at(begin + largest) ? i : largest;
  }
  const double most = tensor.at(begin + largest);
  if (!output.is_logits) {
    return {largest, most};
  }
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += std::exp(tensor.at(begin + i) - most);
  }
  return {largest, 1 / sum};
}

namespace {

std::string npy_text(const HostTensor& array) {
  return npy_header(array.dtype(), array.shape()) +
         std::string(reinterpret_cast<const char*>(array.bytes()), array.num_bytes());
}

}  // namespace

std::string predictions_text(const Predictions& predictions, PredictionFormat format) {
  const HostTensor& first = predictions.outputs.front().tensor;
  const int64_t samples = first.shape()[0];
  if (format == PredictionFormat::kCsv || format == PredictionFormat::kJsonl) {
    return format == PredictionFormat::kCsv ? csv_text(predictions, samples)
                                            : jsonl_text(predictions, samples);
  }
  MESHTRAIN_CHECK(format == PredictionFormat::kNpy);
  return first.dtype() == DType::kBFloat16 ? npy_text(first.cast(DType::kFloat32))
                                           : npy_text(first);
}

void write_predictions(const std::string& given, const Predictions& predictions,
                       PredictionFormat format) {
  const std::string path = place_of(given);  // may have no known extension
  if (format == PredictionFormat::kNpz) {
    write_npz(path, predictions.outputs);
  } else {
    write_file_atomic(path, std::string_view(predictions_text(predictions, format)));
  }
}

}  // namespace meshtrain
