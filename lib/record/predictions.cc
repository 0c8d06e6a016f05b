#include "record/predictions.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/links.h"
#include "base/text.h"
#include "record/run_dir.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// Element `index` with as many digits as its type has.
std::string number_text(const HostTensor& tensor, int64_t index) {
  const double value = tensor.at(index);
  if (is_integer(tensor.dtype()))
    return fmt::format("{}", static_cast<int64_t>(value));
  return tensor.dtype() == DType::kFloat64 ? fmt::format("{}", value)
                                           : fmt::format("{}", static_cast<float>(value));
}

int64_t row_size(const HostTensor& tensor) {
  return num_elements(Shape(tensor.shape().begin() + 1, tensor.shape().end()));
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

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

std::string csv_text(std::span<const NamedTensor> outputs, int64_t samples) {
  std::vector<std::string> fields;
  for (const NamedTensor& output : outputs) {
    for (int64_t i = 0; i < row_size(output.tensor); ++i) {
      fields.push_back(csv_field(column_name(output, i)));
    }
  }
  std::string text = join(fields, ",") + "\n";
  for (int64_t sample = 0; sample < samples; ++sample) {
    fields.clear();
    for (const NamedTensor& output : outputs) {
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

std::string jsonl_text(std::span<const NamedTensor> outputs, int64_t samples) {
  std::string text;
  for (int64_t sample = 0; sample < samples; ++sample) {
    std::vector<std::string> fields;
    for (const NamedTensor& output : outputs) {
      int64_t index = sample * row_size(output.tensor);
      fields.push_back(json_text(nlohmann::json(output.name)) + ":" +
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

void check_predictions_path(const std::string& path, size_t num_outputs) {
  const bool is_npy = ends_with(path, ".npy");
  if ((is_npy && num_outputs == 1) || ends_with(path, ".npz") || ends_with(path, ".csv") ||
      ends_with(path, ".jsonl")) {
    return;
  }
  throw ConfigError(
      "E140", {},
      is_npy ? fmt::format("`--output {}`: the model has {} outputs, a .npy file holds one", path,
                           num_outputs)
             : fmt::format("`--output {}` has no known file extension", path))
      .help(is_npy ? "end it with .npz, .csv or .jsonl" : "end it with .npy, .npz, .csv or .jsonl");
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

void write_predictions(const std::string& given, std::span<const NamedTensor> outputs) {
  const int64_t samples = outputs.front().tensor.shape()[0];
  const std::string path = place_of(given);  // may have no known extension
  if (ends_with(given, ".csv")) {
    write_file_atomic(path, csv_text(outputs, samples));
  } else if (ends_with(given, ".jsonl")) {
    write_file_atomic(path, jsonl_text(outputs, samples));
  } else if (ends_with(given, ".npz")) {
    write_npz(path, outputs);
  } else {
    write_npy(path, outputs.front().tensor);
  }
}

}  // namespace meshtrain
