#include "data/input_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/source_classes.h"
#include "config/source_like.h"
#include "data/folder_listing.h"
#include "data/sources.h"
#include "tensor/h5_datasets.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

ConfigValue text_value(const std::string& text) {
  ConfigValue value;
  value.data = text;
  return value;
}

enum class Content { kNpy, kNpz, kHdf5, kIdx, kImages, kCsv, kOther };

// By the first bytes; by the name where there is no file.
Content content_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return Content::kImages;
  }
  std::string begin(8, '\0');
  if (fs::is_regular_file(path, error)) {
    const InputFile file = open_input(path, "E300", "E300");
    begin.resize(std::min<uint64_t>(file.size(), begin.size()));
    file.read_at(0, reinterpret_cast<std::byte*>(begin.data()), begin.size());
  }
  const std::string lower = to_lower(path);
  const auto is_named = [&](const char* end) { return ends_with(lower, end); };
  return starts_with(begin, "\x93NUMPY") || is_named(".npy")                     ? Content::kNpy
         : starts_with(begin, "PK\x03\x04") || is_named(".npz")                  ? Content::kNpz
         : starts_with(begin, "\x89HDF") || is_named(".h5") || is_named(".hdf5") ? Content::kHdf5
         : starts_with(begin, "\x89PNG") || starts_with(begin, "\xff\xd8\xff")   ? Content::kImages
         : is_named(".csv") || is_named(".csv.gz")                               ? Content::kCsv
         : starts_with(begin, "\x1f\x8b") || is_named("-ubyte") ||
                 starts_with(begin, std::string_view("\0\0\x08", 3))
             ? Content::kIdx
             : Content::kOther;
}

// Columns, texts, tokens and images are read as those that the model learned from, but for the
// labels and the choice of samples.
// The columns that a value names: a text, or lists and dicts of texts.
void add_columns(const ConfigValue& value, std::set<std::string>& columns) {
  if (value.is_string()) {
    columns.insert(value.string());
  } else if (value.is_list()) {
    for (const ConfigValue& item : value.list()) {
      add_columns(item, columns);
    }
  } else if (value.is_dict()) {
    for (const auto& [name, item] : value.dict()) {
      add_columns(item, columns);
    }
  }
}

std::set<std::string> columns_in(const ConfigObject& object, const char* arg) {
  std::set<std::string> columns;
  if (object.args.contains(arg)) {
    add_columns(object.arg(arg), columns);
  }
  return columns;
}

// Without those of columns that are labels alone, which need not be there.
void drop_transforms_of_labels(ConfigObject& source) {
  if (!source.has("preprocessing") || !source.has("label")) {
    return;
  }
  std::set<std::string> labels = columns_in(source, "label");
  for (const std::string& feature : columns_in(source, "features")) {
    labels.erase(feature);
  }
  ConfigValue::List kept;
  for (const ConfigValue& transform : source.arg("preprocessing").list()) {
    const std::set<std::string> columns = columns_in(transform.object(), "column");
    if (columns.empty() ||
        !std::includes(labels.begin(), labels.end(), columns.begin(), columns.end())) {
      kept.push_back(transform);
    }
  }
  source.args["preprocessing"].data = kept;
}

ConfigObject source_like(const ConfigObject& train, const std::string& path) {
  ConfigObject source = train;
  drop_transforms_of_labels(source);
  for (const char* arg : {"label", "sample_weight", "target", "slice", "label_mode", "class_names",
                          "validation_split", "subset", "seed", "y"}) {
    if (source.args.count(arg) != 0) {
      source.args[arg] = ConfigValue{};
    }
  }
  source.args[train.args.contains("directory") ? "directory" : "path"] = text_value(path);
  read_like_training(train, source);
  return source;
}

void check_has_images(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return;
  }
  try {
    list_files(ListedFiles::kImages, path, false);
  } catch (const ConfigError& none) {
    if (none.diagnostics().list().front().code != "E316") {
      throw;
    }
    throw ConfigError("E327", {}, fmt::format("`{}` is a folder without images", path))
        .help(
            "`--input` takes a .csv, .npy, .npz, .h5 or IDX file, an image, or a folder with "
            "images: .png, .jpg or .jpeg");
  }
}

// Images in the size and with the channels that the only input of the model takes.
ConfigObject images_for(const ModelConfig& model, const std::string& path) {
  std::vector<const LayerConfig*> inputs;
  for (const LayerConfig& layer : model.layers) {
    if (layer.object.class_name == "Input") {
      inputs.push_back(&layer);
    }
  }
  const ConfigValue* const shape = inputs.size() == 1 ? &inputs[0]->object.arg("shape") : nullptr;
  const bool is_image = shape != nullptr && shape->is_list() && shape->list().size() == 3 &&
                        std::all_of(shape->list().begin(), shape->list().end(),
                                    [](const ConfigValue& size) { return size.is_number(); });
  if (!is_image) {
    throw ConfigError("E327", {},
                      fmt::format("`{}` holds images, and the model takes no images of a known "
                                  "size: its Input has no shape (height, width, channels)",
                                  path));
  }
  ConfigObject source = default_object(Category::kSource, "image_folder");
  const auto channels = static_cast<int>(shape->list()[2].number());
  source.args["directory"] = text_value(path);
  source.args["label_mode"] = ConfigValue{};
  source.args["color_mode"] = text_value(channels == 1   ? "grayscale"
                                         : channels == 4 ? "rgba"
                                                         : "rgb");
  source.args["image_size"].data = ConfigValue::List{shape->list()[0], shape->list()[1]};
  return source;
}

// The names of arrays in an argument of an archive.
std::vector<std::string> array_names(const ConfigValue& value) {
  if (value.is_dict()) {
    std::vector<std::string> out;
    for (const auto& [input, name] : value.dict()) {
      out.push_back(name.string());
    }
    return out;
  }
  return value.is_list()     ? value.strings()
         : value.is_string() ? std::vector<std::string>{value.string()}
                             : std::vector<std::string>();
}

// "arr" and 1 of "arr_1"; 0 where a name has no number.
std::pair<std::string, int64_t> stem_and_number(const std::string& name) {
  const size_t end = name.find_last_not_of("0123456789");
  const size_t digits = end == std::string::npos ? 0 : end + 1;
  int64_t number = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  std::string stem = name.substr(0, digits);
  if (!stem.empty() && stem.back() == '_') {
    stem.pop_back();
  }
  return {stem, number};
}

// The order of names that differ by numbers alone, as numpy.savez (arr_0, arr_1) and Keras
// (keras_tensor, keras_tensor_1) give them. Nothing for others.
std::optional<std::vector<std::string>> by_number(const std::vector<std::string>& names) {
  std::map<int64_t, std::string> numbered;
  for (const std::string& name : names) {
    const auto [stem, number] = stem_and_number(name);
    if (stem != stem_and_number(names[0]).first || !numbered.emplace(number, name).second) {
      return std::nullopt;
    }
  }
  std::vector<std::string> out;
  for (const auto& [number, name] : numbered) {
    out.push_back(name);
  }
  return out;
}

// Which arrays of an archive are samples: those that the model was trained on, else `x`, which is
// the default, else those that are called as inputs are, else all. Several inputs need their names.
std::optional<ConfigValue> samples_among(const std::vector<std::string>& names,
                                         const Config& config) {
  const auto are_there = [&](const std::vector<std::string>& wanted) {
    return !wanted.empty() &&
           std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
             return std::find(names.begin(), names.end(), name) != names.end();
           });
  };
  const std::optional<ConfigObject>& train = config.data.train;
  if (train && train->has("x") && options_if<ArchiveOptions>(*train) &&
      are_there(array_names(train->arg("x")))) {
    return train->arg("x");
  }
  std::vector<std::string> inputs;
  for (const LayerConfig& layer : config.model.layers) {
    if (layer.object.class_name == "Input") {
      inputs.push_back(layer.name.value);
    }
  }
  if (are_there({"x"}) && !(inputs.size() > 1 && are_there(inputs))) {
    return std::nullopt;
  }
  const std::optional<std::vector<std::string>> numbered = by_number(names);
  if (inputs.size() > 1 && !are_there(inputs) && !numbered) {
    throw ConfigError("E324", {},
                      fmt::format("the data have the arrays {} for the inputs {}",
                                  join(names, ", "), join(inputs, ", ")))
        .help("call each array as its input");
  }
  ConfigValue by_name;
  by_name.data = ConfigValue::Dict{};
  for (const std::string& name : are_there(inputs) ? inputs : numbered.value_or(names)) {
    std::get<ConfigValue::Dict>(by_name.data).emplace_back(name, text_value(name));
  }
  return by_name;
}

// The source of a file that is read by its own kind, which its first bytes say.
ConfigObject source_of_kind(Content content, const std::string& absolute, const Config& config) {
  ConfigObject source = default_object(Category::kSource, content == Content::kHdf5  ? "hdf5"
                                                          : content == Content::kNpz ? "npz"
                                                          : content == Content::kCsv ? "csv"
                                                          : content == Content::kIdx ? "idx"
                                                                                     : "npy");
  if (source.class_name == "npy") {
    source.args["x"] = text_value(absolute);
    return source;
  }
  if (source.class_name == "idx") {
    source.args["images"] = text_value(absolute);
    source.args["labels"] = ConfigValue{};
    return source;
  }
  source.args["path"] = text_value(absolute);
  if (source.class_name == "csv") {
    return source;
  }
  source.args["y"] = ConfigValue{};
  const std::vector<std::string> names =
      content == Content::kHdf5 ? H5Datasets(absolute).names() : NpzReader(absolute).names();
  if (const std::optional<ConfigValue> arrays = samples_among(names, config)) {
    source.args["x"] = *arrays;
  }
  return source;
}

// Whether the samples of a file have as many dimensions as the model takes: windows, not rows.
bool holds_windows(const ConfigObject& source, const Config& config) {
  const Dataset dataset = read_source(source, config.data.base_dir, nullptr, {.beginning = true});
  const Dataset::Array& array = dataset.inputs[0];
  for (const LayerConfig& layer : config.model.layers) {
    const bool is_input = layer.object.class_name == "Input" &&
                          (dataset.inputs.size() == 1 || layer.name.value == array.name);
    if (is_input && layer.object.arg("shape").is_list()) {
      return array.rows->shape().size() == layer.object.arg("shape").list().size() + 1;
    }
  }
  return false;
}

}  // namespace

ConfigObject input_source(const std::string& path, const Config& config) {
  const std::optional<ConfigObject>& train = config.data.train;
  const std::string absolute = fs::absolute(path).string();
  const Content content = content_of(absolute);
  const bool has_arrays =
      content == Content::kNpy || content == Content::kNpz || content == Content::kHdf5;
  if (train && is_read_like_training(train->class_name) && !has_arrays) {
    return source_like(*train, absolute);
  }
  if (content == Content::kImages) {
    check_has_images(absolute);
    return images_for(config.model, absolute);
  }
  ConfigObject source = source_of_kind(content, absolute, config);
  if (has_arrays && train && series_options(*train).sequence_length &&
      !holds_windows(source, config)) {
    for (const char* arg : {"sequence_length", "sequence_stride", "sampling_rate"}) {
      source.args[arg] = train->arg(arg);
    }
  }
  return source;
}

}  // namespace meshtrain
