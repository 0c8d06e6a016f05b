// A Keras model as a config of ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/keras/weights.h"

namespace meshtrain {

struct ImportedModel {
  std::string yaml;                  // the config
  std::string hub_class;             // "GPT2CausalLM"; "" for a model of layers
  bool takes_tokenizer = false;      // the config names the tokenizer of the options
  std::vector<std::string> dropped;  // what it lacks of the Keras model, line by line
  // Groups of the layers' weights in the model's HDF5 file; none for a class of Hub, whose groups
  // are keras_groups().
  std::vector<KerasGroup> groups;
  int num_layers = 0;
  std::vector<std::string> open_shapes;  // "INPUT=SIZE,3" for each Input with a size of None
};

struct InputShape {
  std::string input;           // name of the Input; "" for the only one
  std::vector<int64_t> sizes;  // without the batch
};

// Reads "[INPUT=]SIZE,SIZE,...". Throws ConfigError E140.
InputShape parse_input_shape(const std::string& text);

struct ImportOptions {
  std::string file;                     // the JSON's, for messages and the first line of the config
  std::string version;                  // of Keras, if known
  std::string initial_weights;          // fit.initial_weights; empty: none
  std::vector<InputShape> shapes = {};  // for Inputs that leave sizes open
  // The model's weights, where they are at hand: they tell whether a Llama of Hub is tied.
  const H5File* weights = nullptr;
  std::string tokenizer;  // the text of the tokenizer.json beside the config; empty: none
};

// From the JSON of a Sequential or Functional model, or of a class of Keras Hub. Throws ConfigError
// (exit 6): E405 malformed, E415 code inside, E416 with every layer and argument that there is not
// here. What only concerns training (an unknown loss, metric or optimizer) is dropped instead. E140
// (exit 2): a shape of the options fits no Input.
ImportedModel import_keras(const std::string& json, const ImportOptions& options);

}  // namespace meshtrain
