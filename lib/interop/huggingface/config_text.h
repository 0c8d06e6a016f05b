// A Hugging Face model as a config of ours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/huggingface/model.h"

namespace meshtrain {

struct ConfigTextOptions {
  std::string name;                    // of the config's runs
  std::string initial_weights;         // fit.initial_weights; empty: none
  std::vector<std::string> dropped;    // become comments
  bool has_tokenizer = false;          // tokenizer.json lies beside the config
  std::optional<int64_t> separator;    // the id that ends a text
  int64_t context = 0;                 // steps of a sample; 0: as many as there are positions
  int64_t masks = 0;                   // mask_positions of a sample; 0: as many as steps
  std::string start_token, end_token;  // of texts by the line, for models with a mask of padding
  std::string dtype_policy;            // empty: float32
  std::string compile;                 // the section; empty: one for the model's head
};

std::string huggingface_yaml(const HuggingFaceModel& model, const ConfigTextOptions& options);

}  // namespace meshtrain
