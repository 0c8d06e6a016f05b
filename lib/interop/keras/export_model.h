// Shared by the exports to Keras: Keras' names, classes and values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/catalogue.h"
#include "nn/model.h"

namespace meshtrain {

using OrderedJson = nlohmann::ordered_json;

// The Python module of a category's classes: "keras.layers".
std::string keras_module(Category category);

// Refuses to export (E417, exit 6): "layer `d1`: ... cannot be expressed in Keras".
[[noreturn]] void refuse_export(const std::string& owner, const std::string& what,
                                const std::string& help = "");

// The catalogue's class of an object.
const ClassSpec& class_of(const ConfigObject& object, Category category);

// The arguments to hand to Keras' constructor, in its order: those given, and what has no default.
// Ours alone (`inputs`, ...) and nulls that are defaults are left out.
std::vector<std::pair<const Spec*, const ConfigValue*>> keras_args(const ConfigObject& object,
                                                                   Category category,
                                                                   bool with_defaults);

// The optimizer with the keys of a MultiOptimizer as Keras' paths of weights: those of a Sequential
// begin with its name.
ConfigObject keras_optimizer(const Config& config, const Model& model);

// The first call of the layer that Keras' constructor takes as `token_embedding`; kNone where the
// layer has no other one's table. Throws E417 where that is no ReversibleEmbedding.
int tied_embedding(const Model& model, const Layer& layer);

// A loss, metric or optimizer that is just a name: "mse"; empty when it has arguments.
std::string bare_name(const ConfigObject& object, Category category);

// Calls and layers of a model under Keras' names, which hold no `/`.
class KerasNames {
 public:
  explicit KerasNames(const Model& model);
  const std::string& of_call(int call) const { return names_[call]; }  // of the layer called

 private:
  std::vector<std::string> names_;
};

// The outputs' names as Keras has them: keys of the map it returns, or names of layers.
std::vector<std::string> keras_outputs(const Model& model, const KerasNames& names);
// The losses or metrics of an output: those given for it and those for all.
std::vector<const ConfigObject*> objects_of(const std::vector<OutputObject>& entries,
                                            const std::string& output);
// Under Keras' names of the outputs.
std::vector<std::pair<std::string, double>> keras_loss_weights(const CompileConfig& compile,
                                                               const Model& model,
                                                               const KerasNames& names);

// The config entry of a layer that is not an Input, by call.
class LayerConfigs {
 public:
  LayerConfigs(const ModelConfig& config, const Model& model);
  const ConfigObject& of_call(int call) const { return *objects_[call]; }

 private:
  std::vector<const ConfigObject*> objects_;
};

// Whether Keras has the model as a Sequential, which holds layers of one tensor, no operations.
bool is_keras_sequential(const ModelConfig& config, const Model& model);

// Whether the class is Keras Hub's, which loads it once `import keras_hub` has registered it.
bool is_of_hub(std::string_view class_name);

}  // namespace meshtrain
