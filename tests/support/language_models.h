// Small language models of two layers as configs, with sequences of random ids: for tests that one
// training has the same numbers on every mesh.
#pragma once

#include <string>

#include "data/dataset.h"

namespace meshtrain::test {

inline constexpr int64_t kModelSteps = 8, kModelIds = 24;

// GPT: multi-head attention, a table of positions, LayerNormalization. Llama: grouped queries,
// rotary positions, RMSNormalization, SwiGLU. Mixtral: Llama with experts.
enum class LanguageFamily { kGpt, kLlama, kMixtral };

struct LanguageModel {
  LanguageFamily family = LanguageFamily::kGpt;
  // The logits are a product with the table of ids; else with a kernel of their own.
  bool ties_head = true;
  // Id 0 is padding. All layers then pass the mask on: LayerNormalization in all families, and no
  // sum with unmasked positions.
  bool masks_zero = false;
  int key_heads = 2;  // of 4; GPT has 4
  double dropout = 0.1;
  std::string remat = "none";
  std::string capacity = "null";  // of an expert
};

// The keys `blocks`, `model` and `compile`: the loss is the cross-entropy of logits, the optimizer
// Adam unless `optimizer` is another.
std::string yaml_of(const LanguageModel& model, const std::string& optimizer = "adam");

// Sequences of ids, 0 among them, and of the ids to predict.
Dataset random_sequences(int64_t samples, uint64_t seed);

}  // namespace meshtrain::test
