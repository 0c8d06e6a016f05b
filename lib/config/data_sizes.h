// What expressions ask about the training data, so that nobody counts by hand:
//
//   Embedding: {input_dim: =vocabulary_size("city"), output_dim: 4}
//   Dense: {units: =num_classes(), activation: softmax}
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "config/config.h"

namespace meshtrain {

struct DataSizes {
  std::map<std::string, int64_t> vocabularies;  // by column; "" of a source with one vocabulary
  std::map<std::string, int64_t> classes;       // by target, where its labels are classes
};

// Reads data.train, or what was learned from it when these weights were trained ("": none are
// given). `held_out`: ReadLimits. Throws ConfigError E3xx as load_dataset().
using DataSizesReader = DataSizes (*)(const DataConfig& data, double held_out,
                                      const std::string& weights);

// Sets the reader of this process, before any config is loaded: this module reads no data. Without
// one, such expressions are errors.
void set_data_sizes_reader(DataSizesReader reader);
DataSizesReader data_sizes_reader();

}  // namespace meshtrain
