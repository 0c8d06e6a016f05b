// Masked language modelling (Devlin and others, "BERT", 2019, section 3.1): tokens of a sample are
// hidden, and the model names them.
#pragma once

#include <cstdint>

#include "data/dataset.h"

namespace meshtrain {

// The arguments of MaskedLMMaskGenerator, with the names of Keras Hub.
struct MaskedLMOptions {
  int64_t vocabulary_size = 0;
  float mask_selection_rate = 0;
  int64_t mask_token_id = 0;
  int64_t mask_selection_length = 0;  // 0: as many as the rate selects of a sample
  double mask_token_rate = 0.8;
  double random_token_rate = 0.1;
  std::vector<int64_t> unselectable_token_ids = {0};
};

MaskedLMOptions masked_lm_options(const ConfigObject& transform);

// Returns how many of `selectable` tokens are hidden: ceil(rate * selectable) in float32, as
// TensorFlow Text computes it.
int64_t num_masked(int64_t selectable, float rate);

// Makes of the one input of ids (samples, L) of any integer type: the inputs "token_ids" int32
// (samples, L), where hidden tokens are replaced, and "mask_positions" int32 (samples, M); the
// target "mask_ids" int32 (samples, M), the hidden tokens; sample_weight float32 (samples, M), 0
// behind the last of them. Positions ascend. Optional inputs stay as they are.
//
// What is hidden is a function of seed, pass over the data, sample and position, so it differs
// between passes (Rows::in_pass), and not between meshes. Reading costs a sort of L numbers.
// Throws ConfigError E324 at `loc` for data with targets or weights, and for inputs that are no ids
// of one sequence; E113 where L is less than `mask_selection_length`.
void mask_tokens(const MaskedLMOptions& options, uint64_t seed, const SourceLoc& loc,
                 Dataset& dataset);

}  // namespace meshtrain
