// A directory that transformers' save_pretrained() wrote, as a config and weights of ours.
#pragma once

#include <string>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

struct HuggingFaceImport {
  std::string architecture;          // "GPT2LMHeadModel"
  std::string yaml;                  // the config
  std::vector<NamedTensor> weights;  // by our paths, in the file's dtypes
  std::string tokenizer;             // the text of a tokenizer.json; empty: none that is read
  // True when the config's data section uses the tokenizer (decoders).
  bool takes_tokenizer = false;
  std::vector<std::string> dropped;  // what was not taken over, line by line
};

// `config_path` is where the config will be, `initial_weights` its fit.initial_weights,
// `architecture` what the model is read as; empty: what its config.json names. Throws
// ConfigError (exit 6): E404, E405 and E415 for files that are not there, malformed or pickled,
// E416 for an architecture or a field of config.json that is not supported, E410 with every tensor
// that is missing, superfluous or of another shape.
HuggingFaceImport import_huggingface(const std::string& folder, const std::string& config_path,
                                     const std::string& initial_weights,
                                     const std::string& architecture = "");

}  // namespace meshtrain
