#include "interop/keras/import_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/text.h"
#include "interop/keras/archive.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxModelJson = uint64_t{64} << 20;

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

}  // namespace

KerasSource read_keras_source(const std::string& model, const std::string& given_weights) {
  KerasSource source{model, {}, {}, {}, model};
  const std::string name = to_lower(model);
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
          .help(
              "nothing is downloaded: give the folder of a Hugging Face model on this machine, a "
              "model.keras or a model.json");
    }
    const bool is_h5 = ends_with(name, ".h5") || ends_with(name, ".hdf5");
    throw ConfigError("E140", {}, fmt::format("cannot import `{}`", model))
        .help(is_h5
                  ? "a whole model: keras.models.load_model(FILE).save(\"m.keras\"), and import "
                    "that; of weights alone, import model.to_json() with --weights"
                  : "give a model.keras, a model.json that model.to_json() wrote, or the folder of "
                    "a Hugging Face model");
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
