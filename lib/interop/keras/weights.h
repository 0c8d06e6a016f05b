// Weight files of Keras for a model: the groups of each layer's weights and their order.
// Source: Keras 3 saving_lib (groups are classes counted in the order of model.layers).
#pragma once

#include <string>
#include <vector>

#include "nn/model.h"
#include "tensor/h5.h"

namespace meshtrain {

struct KerasGroup {
  std::string layer;      // its name here; "": left out, its weights are ignored
  std::string group;      // "layers/dense_1"
  bool is_inner = false;  // the layer is a TimeDistributed, and the group that of the one within
};

// The name of a layer class's groups: "separable_conv2d".
std::string group_name(const std::string& class_name);

// The groups of this model's layers, inputs too, in Keras' order.
std::vector<KerasGroup> keras_groups(const Model& model);
// The same as the file has them: with models in the model (`layers/sequential/layers/conv2d`) where
// it has such, which are blocks with a name here (`stem/conv`).
std::vector<KerasGroup> keras_groups(const Model& model, const H5File& file);

// The tensors of `file` under the paths of the model's weights. What belongs to no weight keeps its
// own path; optimizer, metric and seed variables are left out.
std::vector<NamedTensor> named_by_path(H5File file, const std::vector<KerasGroup>& groups,
                                       const Model& model);

// All tensors of a weight file of any kind (.safetensors, .npz, .weights.h5, .keras) by the paths
// of `model`'s weights: by the names of layers where Keras' file has all of the model's, else in
// Keras' order of each class. Throws ConfigError (exit 6) as read_weights and read_h5.
std::vector<NamedTensor> read_model_weights(const std::string& path, const Model& model);

// The groups to write: the model's values, from `values` by path. A Sequential's file has no
// inputs. Throws InternalError when a value is missing.
std::vector<H5Vars> keras_vars(const Model& model, const std::vector<NamedTensor>& values,
                               bool is_sequential);

}  // namespace meshtrain
