// What a directory of Hugging Face's transformers holds: the family of the model, and what its
// config.json says about it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace meshtrain {

enum class HuggingFaceFamily { kGpt2, kLlama, kBert, kVit };

// Rotary positions: kLinear stretches them, kLlama3 is Llama 3.1's.
struct RopeSettings {
  enum class Type { kDefault, kLinear, kLlama3 };
  Type type = Type::kDefault;
  double theta = 10000, factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 0;  // kLlama3: steps of the training
};

// What config.json says beside the model itself.
struct HuggingFaceExtras {
  std::map<std::string, std::vector<int64_t>> token_ids;  // "eos_token_id": one or several
  std::vector<std::string> class_names;                   // of `id2label`; empty: LABEL_0, ...
};

struct HuggingFaceModel {
  HuggingFaceFamily family = HuggingFaceFamily::kGpt2;
  std::string architecture;  // "GPT2LMHeadModel"
  // Whether it ends with logits: of tokens (GPT-2, Llama) or classes (BERT, ViT).
  bool has_head = false;
  bool is_masked = false;   // BERT's logits are those of the tokens at `mask_positions`
  bool drops_head = false;  // it ended with another one, which is not taken over
  int64_t depth = 0, width = 0, heads = 0, key_heads = 0, head_size = 0, inner = 0;
  int64_t tokens = 0, positions = 0, segments = 0;  // rows of the tables
  int64_t height = 0, image_width = 0, patch = 0, channels = 0;
  int64_t classes = 0;
  std::string loss = "{SparseCategoricalCrossentropy: {from_logits: true}}";  // of the logits
  bool is_tied = false;          // the head is the table of tokens
  bool attention_bias = true;    // of the four projections
  bool feedforward_bias = true;  // of its products
  bool has_pooler = false;       // BERT and ViT; a fact of the weights, not of config.json
  double epsilon = 1e-5;
  // Dropout of the table's rows, of what each half of a block adds, and of attention weights.
  double embedding_dropout = 0, dropout = 0, attention_dropout = 0, head_dropout = 0;
  std::string activation;  // as config.json names it
  RopeSettings rope;
  int64_t sliding_window = 0;  // Mistral: steps that attention sees; 0: all
  // Of Keras Hub's models: the decoders' mask of padding beside the ids, names of BERT's two
  // outputs, the mean of all tokens in place of the first one, and what the head has of its own.
  bool has_padding_mask = false, has_named_outputs = false, has_mean_pooling = false;
  std::string head_activation;
  double head_epsilon = 0;
  HuggingFaceExtras extras;
};

// What is said of a BertForMaskedLM whose head is not its table.
inline constexpr const char* kUntiedMasked =
    "an untied head is not read; `--architecture BertModel` leaves the head out";

// The architectures that are read, for messages.
std::string known_architectures();

// `json` is the text of a config.json and `path` its place. Adds what is not taken over to
// `dropped`. Throws ConfigError E405 for a text that is no JSON object, E416 with every field that
// is missing, malformed or not supported, and for other architectures (exit 6).
// `architecture`: which one to read it as; empty: the one that it names.
HuggingFaceModel read_huggingface_config(const std::string& json, const std::string& path,
                                         std::vector<std::string>& dropped,
                                         const std::string& architecture = "");

// The config.json of a model whose weights have this dtype.
std::string huggingface_config(const HuggingFaceModel& model, DType dtype);

// The activation named `name` in config.json as a config writes it; empty where there is none here.
std::string activation_text(const std::string& name);
const std::vector<std::pair<std::string, std::string>>& activation_names();

}  // namespace meshtrain
