// meshtrain import: a model that Keras saved, as a config and weights.
#include "interop/keras/import.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"
#include "cli.h"
#include "engine/weights.h"
#include "interop/keras/archive.h"
#include "tensor/read_error.h"
#include "tensor/safetensors.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxJson = uint64_t{64} << 20;
constexpr const char* kConfig = "config.yaml";
constexpr const char* kWeights = "weights.safetensors";

// What there is to import.
struct Source {
  std::string path, json, version;
  std::optional<H5File> weights;
};

std::string read_json(const std::string& path) {
  const InputFile file = open_input(path, "E404", "E404");  // for its message
  if (file.size() > kMaxJson) {
    read_error("E405", path, "larger than {}", format_bytes(static_cast<int64_t>(kMaxJson)));
  }
  return read_file(path, kMaxJson);
}

// The file of weights beside a model.json: model.weights.h5.
std::string weights_of_json(const std::string& json) {
  const std::string stem = (fs::path(json).parent_path() / fs::path(json).stem()).string();
  std::error_code error;
  const std::string path = stem + ".weights.h5";
  return fs::exists(path, error) ? path : "";
}

Source read_source_files(const Arguments& a) {
  Source source{a.input, {}, {}, {}};
  const std::string name = to_lower(a.input);
  if (ends_with(name, ".keras")) {
    KerasArchive archive = read_keras_archive(a.input);
    source.json = std::move(archive.config);
    source.version = archive.version;
    source.weights = std::move(archive.weights);
  } else if (ends_with(name, ".json")) {
    source.json = read_json(a.input);
  } else {
    const bool is_h5 = ends_with(name, ".h5") || ends_with(name, ".hdf5");
    refuse("E140", fmt::format("cannot import `{}`", a.input),
           is_h5 ? "weights alone do not say how the model is built; import model.to_json() with "
                   "--weights, or save the model as .keras"
                 : "give a model.keras, or a model.json that model.to_json() wrote");
  }
  const std::string weights =
      !a.weights.empty() || source.weights ? a.weights : weights_of_json(a.input);
  if (!weights.empty()) {
    source.weights = read_h5(weights);
  }
  return source;
}

void check_folder(const std::string& folder, bool has_weights) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    refuse("E141", fmt::format("`{}` is not a folder", folder), "another folder: -o DIR");
  }
  for (const char* name : {kConfig, kWeights}) {
    const std::string path = (fs::path(folder) / name).string();
    if ((has_weights || name == kConfig) && fs::exists(path, error)) {
      refuse("E141", fmt::format("`{}` exists already", path), "another folder: -o DIR");
    }
  }
}

// The weights under the paths of the model that the config describes, in its order.
std::vector<NamedTensor> weights_of(const Config& config, const ImportedModel& imported,
                                    Source& source) {
  Diagnostics diagnostics;
  const Model model(config.model, dtype_policy(config.dtype_policy.value), diagnostics);
  diagnostics.throw_if_errors();
  if (!source.weights) {
    return {};
  }
  return fitting_weights(named_by_path(std::move(*source.weights), imported.groups, model),
                         wanted_weights(model), source.path, {});
}

}  // namespace

int run_import(const Arguments& a) {
  Source source = read_source_files(a);
  const std::string folder = a.run_dir.empty() ? fs::path(a.input).stem().string() : a.run_dir;
  ImportOptions options;
  options.file = fs::path(a.input).filename().string();
  options.version = source.version;
  options.initial_weights = source.weights ? kWeights : "";
  const ImportedModel imported = import_keras(source.json, options);
  check_folder(folder, source.weights.has_value());
  const std::string path = (fs::path(folder) / kConfig).string();
  LoadOptions load;
  load.source = std::make_shared<SourceFile>(SourceFile{path, imported.yaml});
  load.require_data = false;
  const bool has_weights = source.weights.has_value();
  const std::vector<NamedTensor> weights = weights_of(load_config(load), imported, source);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw FileError(ExitCode::kWriteFailed, "cannot create", folder, error.value());
  }
  if (has_weights) {
    write_safetensors((fs::path(folder) / kWeights).string(), weights);
  }
  write_file_atomic(path, std::string_view(imported.yaml));
  Diagnostics warnings;
  for (const std::string& line : imported.dropped) {
    warnings.warning("W416", {}, fmt::format("not taken over: {}", line));
  }
  show_warnings(warnings, a);
  out_stream().write(fmt::format("{}: {} layers{}\n", path, imported.num_layers,
                                 has_weights ? fmt::format(", {} weights in {}", weights.size(),
                                                           (fs::path(folder) / kWeights).string())
                                             : ", no weights"));
  return 0;
}

}  // namespace meshtrain
