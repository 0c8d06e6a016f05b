// The graph in Keras' JSON of a model (model.to_json(), config.json of a .keras archive): nested
// models are dissolved into one list of calls. Source: Keras 3 functional_from_config, Keras 2's
// lists of inbound nodes included.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "interop/keras/import_nodes.h"

namespace meshtrain {

struct KerasLayer {
  std::string name;        // unique in the whole model
  std::string class_name;  // "Input" for an InputLayer
  Json config;
  std::string group;  // of its weights in an HDF5 file: "layers/dense_1"; "" when it has none there
  bool is_distributed = false;  // a TimeDistributed; `group` is that of the layer within it
};

// One use of a layer. The first use of a layer stands before its others.
struct KerasCall {
  int layer = 0;
  std::vector<int> inputs;  // earlier calls
  // Of an output of call `result_of` beside its first, which stands as an entry of its own after
  // it: the output's name ("state_h"). Else "".
  int result_of = -1;
  std::string output = {};
  CallKeywords keywords = {};
};

struct KerasModel {
  std::string name;
  bool is_sequential = false;
  std::vector<KerasLayer> layers;
  std::vector<KerasCall> calls;                      // in an order in which they can be computed
  std::vector<std::pair<std::string, int>> outputs;  // names, given or the layers', and calls
  bool outputs_are_named = false;                    // the model returns a map
  std::vector<std::string> output_names_in_keras;    // else: layers and nested models
  std::vector<std::string> dropped;                  // what the layers lack, line by line
  std::vector<std::string> left_out;                 // groups of layers that are not here
  Json compile;                                      // compile_config; null when there is none
};

// Throws ConfigError (exit 6): E405 no such JSON, with the rule it breaks; E415 code inside
// (Lambda); E416 with everything in the model that there is not here, each naming its layer. `file`
// is for messages.
KerasModel read_keras_graph(const std::string& text, const std::string& file);

}  // namespace meshtrain
