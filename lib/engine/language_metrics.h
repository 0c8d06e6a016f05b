// Metrics of language models that an evaluation shows without being asked.
#pragma once

#include "config/config.h"
#include "data/dataset.h"

namespace meshtrain {

// Adds Perplexity, and BitsPerByte where the bytes of the tokens are known, to the weighted metrics
// of a config whose loss is the crossentropy of `dataset`'s ids of texts. Adds neither to other
// data, nor where the config has it.
void add_language_metrics(const Dataset& dataset, Config& config);

}  // namespace meshtrain
