#include "data/input_source.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/catalogue.h"
#include "config/source_like.h"
#include "tensor/h5_datasets.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

ConfigValue text_value(const std::string& text) {
  ConfigValue value;
  value.data = text;
  return value;
}

// Columns, texts, tokens and images are read as those that the model learned from, but for the
// labels and the choice of samples.
ConfigObject source_like(const ConfigObject& train, const std::string& path) {
  ConfigObject source = train;
  for (const char* arg : {"label", "sample_weight", "target", "slice", "label_mode", "class_names",
                          "validation_split", "subset", "seed", "y"}) {
    if (source.args.count(arg) != 0) {
      source.args[arg] = ConfigValue{};
    }
  }
  source.args[train.class_name == "image_folder" ? "directory" : "path"] = text_value(path);
  read_like_training(train, source);
  return source;
}

}  // namespace

ConfigObject input_source(const std::string& path, const DataConfig& data) {
  const std::string absolute = std::filesystem::absolute(path).string();
  const bool is_hdf5 = ends_with(path, ".h5") || ends_with(path, ".hdf5");
  const bool is_npz = ends_with(path, ".npz");
  const bool is_like_training = data.train && is_read_like_training(data.train->class_name);
  if (is_like_training && !is_hdf5 && !is_npz && !ends_with(path, ".npy")) {
    return source_like(*data.train, absolute);
  }
  ConfigObject source = default_object(Category::kSource, is_hdf5                   ? "hdf5"
                                                          : is_npz                  ? "npz"
                                                          : ends_with(path, ".csv") ? "csv"
                                                                                    : "npy");
  if (source.class_name == "npy") {
    source.args["x"] = text_value(absolute);
    return source;
  }
  source.args["path"] = text_value(absolute);
  if (source.class_name == "csv") {
    return source;
  }
  source.args["y"] = ConfigValue{};
  const std::vector<std::string> names =
      is_hdf5 ? H5Datasets(absolute).names() : NpzReader(absolute).names();
  if (std::find(names.begin(), names.end(), "x") == names.end()) {
    ConfigValue::Dict by_name;
    for (const std::string& name : names) {
      by_name.emplace_back(name, text_value(name));
    }
    source.args["x"].data = std::move(by_name);
  }
  return source;
}

}  // namespace meshtrain
