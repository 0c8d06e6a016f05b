// The models that Keras wrote (tests/golden/keras/io), and small ones made here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/load.h"
#include "interop/keras/archive.h"
#include "interop/keras/import.h"
#include "nn/model.h"

namespace meshtrain::test {

inline const std::vector<std::string>& keras_models() {
  static const std::vector<std::string> kNames = {
      "mlp",        "convnet", "several",  "shared",     "resnet",    "separable",
      "normalized", "adapted", "nested",   "operations", "recurrent", "attention",
      "hub",        "wrapped", "masked",   "stacked",    "filmed",    "spectral",
      "merged",     "tables",  "bfloat16", "answered"};
  return kNames;
}

inline std::string keras_file(const std::string& name) {
  return std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/keras/io/" + name;
}

inline Config config_of(const std::string& yaml) {
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"imported.yaml", yaml});
  options.require_data = false;
  return load_config(options);
}

inline ImportedModel import_text(const std::string& json) {
  ImportOptions options;
  options.file = "model.json";
  return import_keras(json, options);
}

// A config and the model it describes.
struct Built {
  Config config;
  std::unique_ptr<Model> model;

  explicit Built(const std::string& yaml) : config(config_of(yaml)) {
    Diagnostics diagnostics;
    model =
        std::make_unique<Model>(config.model, dtype_policy(config.dtype_policy.value), diagnostics);
    diagnostics.throw_if_errors();
  }
};

}  // namespace meshtrain::test
