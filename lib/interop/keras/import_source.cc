#include "interop/keras/import_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "interop/imported_tokenizer.h"
#include "interop/keras/archive.h"
#include "interop/keras/hub.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxModelJson = uint64_t{64} << 20;
// Of a preset.
constexpr const char *kPresetConfig = "config.json", *kPresetTask = "task.json",
                     *kPresetAssets = "assets/tokenizer";

std::string read_json(const std::string& path) {
  const InputFile file = open_input(path, "E404", "E404");  // for its message
  if (file.size() > kMaxModelJson) {
    read_error("E405", path, "larger than {}", format_bytes(static_cast<int64_t>(kMaxModelJson)));
  }
  return read_file(path, kMaxModelJson);
}

// The file of weights beside a model.json: model.weights.h5.
std::string weights_of_json(const std::string& json) {
  const std::string stem = (fs::path(json).parent_path() / fs::path(json).stem()).string();
  std::error_code error;
  const std::string path = stem + ".weights.h5";
  return fs::exists(path, error) ? path : "";
}

std::string path_in(const std::string& folder, const char* name) {
  return (fs::path(folder) / name).string();
}

bool has_file(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// One file, or the files that Keras' index of shards names.
H5File read_backbone_weights(const std::string& folder, std::string& path) {
  path = path_in(folder, "model.weights.h5");
  const std::string index = path_in(folder, "model.weights.json");
  if (has_file(path) || !has_file(index)) {
    return read_h5(path);
  }
  path = index;
  const Json json = parse_keras_json(read_json(index), index);
  std::set<std::string> names;
  for (const Json& files : KerasJson(index).need(json, "weight_map", "the index")) {
    for (const Json& file : files.is_array() ? files : Json::array({files})) {
      if (!file.is_string() || fs::path(file.get<std::string>()).has_parent_path()) {
        read_error("E405", index, "`weight_map` has {}, which is no file of this folder",
                   printable(file.dump()));
      }
      names.insert(file.get<std::string>());
    }
  }
  H5File out;
  for (const std::string& name : names) {
    for (NamedTensor& dataset : read_h5(path_in(folder, name.c_str())).datasets) {
      out.datasets.push_back(std::move(dataset));
    }
  }
  return out;
}

// The weights of a preset as a whole task has them: the backbone's within a group.
H5File read_preset_weights(const std::string& folder, std::string& path) {
  H5File out = read_backbone_weights(folder, path);
  const std::string task = path_in(folder, "task.weights.h5");
  if (!has_file(task)) {
    return out;
  }
  for (NamedTensor& dataset : out.datasets) {
    dataset.name = "layers/backbone/" + dataset.name;
  }
  for (NamedTensor& dataset : read_h5(task).datasets) {
    out.datasets.push_back(std::move(dataset));
  }
  return out;
}

KerasSource read_preset(const std::string& folder, const std::string& given_weights) {
  KerasSource source{folder, {}, {}, {}, folder};
  const std::string task = path_in(folder, kPresetTask);
  const std::string path = has_file(task) ? task : path_in(folder, kPresetConfig);
  source.json = read_json(path);
  parse_keras_json(source.json, path);  // names the file that is damaged
  if (given_weights.empty()) {
    source.weights = read_preset_weights(folder, source.weights_path);
  } else {
    source.weights_path = given_weights;
    source.weights = read_h5(given_weights);
  }
  if (!has_file(path_in(folder, kPresetAssets))) {
    return source;
  }
  ImportedTokenizer tokenizer = import_tokenizer(folder);
  source.tokenizer = std::move(tokenizer.text);
  source.tokenizer_problem = std::move(tokenizer.problem);
  return source;
}

// The model of a whole model's .h5, with what Keras wrote of its training in the form of a .keras.
std::string json_of_h5(const H5File& file, const std::string& path) {
  if (file.model_config.empty()) {
    throw ConfigError("E140", {}, fmt::format("`{}` has weights alone, and no model", path))
        .help("import what model.to_json() wrote, with --weights " + path);
  }
  Json model = parse_keras_json(file.model_config, path);
  Json training = parse_json(file.training_config);
  if (model.is_object() && training.is_object()) {
    training["optimizer"] = training.value("optimizer_config", Json());
    model["compile_config"] = std::move(training);
  }
  return model.dump();
}

}  // namespace

bool is_hub_preset(const std::string& folder) {
  const std::string path = path_in(folder, kPresetConfig);
  return has_file(path_in(folder, kPresetTask)) || has_file(path_in(folder, kPresetAssets)) ||
         (has_file(path) && is_hub_model(parse_json(read_json(path))));
}

KerasSource read_keras_source(const std::string& model, const std::string& given_weights) {
  KerasSource source{model, {}, {}, {}, model};
  const std::string name = to_lower(model);
  std::error_code no_folder;
  if (fs::is_directory(model, no_folder)) {
    return read_preset(model, given_weights);
  }
  if (ends_with(name, ".keras")) {
    KerasArchive archive = read_keras_archive(model);
    source.json = std::move(archive.config);
    source.version = archive.version;
    source.weights = std::move(archive.weights);
  } else if (ends_with(name, ".json")) {
    source.json = read_json(model);
  } else {
    for (const char* end : {".bin", ".pt", ".pth", ".pkl", ".ckpt"}) {
      if (ends_with(name, end)) {
        throw ConfigError("E415", {},
                          fmt::format("`{}`: pickled files can run code and are never read", model))
            .help(
                "write it as safetensors where it was made, model.save_pretrained(DIR), and import "
                "that folder");
      }
    }
    std::error_code no_file;
    if (!fs::exists(model, no_file)) {
      throw ConfigError("E140", {}, fmt::format("there is no folder or file `{}`", model))
          .help(fmt::format("nothing is downloaded: give {}, on this machine", kImportedModels));
    }
    if (!ends_with(name, ".h5") && !ends_with(name, ".hdf5")) {
      throw ConfigError("E140", {}, fmt::format("cannot import `{}`", model))
          .help(fmt::format("give {}", kImportedModels));
    }
    H5File file = read_h5(model);
    source.json = json_of_h5(file, model);
    source.version = printable(file.keras_version);
    source.weights = std::move(file);
  }
  const std::string weights =
      !given_weights.empty() || source.weights ? given_weights : weights_of_json(model);
  if (!weights.empty()) {
    source.weights = read_h5(weights);
    source.weights_path = weights;
  }
  return source;
}

}  // namespace meshtrain
