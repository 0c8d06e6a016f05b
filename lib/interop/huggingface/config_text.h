// A Hugging Face model as a config of ours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/huggingface/model.h"

namespace meshtrain {

struct ConfigTextOptions {
  std::string name;                  // of the config's runs
  std::string initial_weights;       // fit.initial_weights; empty: none
  std::vector<std::string> dropped;  // become comments
  bool has_tokenizer = false;        // tokenizer.json lies beside the config
  std::optional<int64_t> separator;  // the id that ends a text
  int64_t context = 0;               // steps of a sample; 0: as many as there are positions
};

std::string huggingface_yaml(const HuggingFaceModel& model, const ConfigTextOptions& options);

}  // namespace meshtrain
