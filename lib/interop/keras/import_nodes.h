// The nodes of a functional model in Keras' JSON: which call of which layer takes what.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "interop/keras/import_json.h"

namespace meshtrain {

// (layer, which of its calls). A reference names the tensor as well, which is always the first
// here.
using NodeKey = std::pair<std::string, int64_t>;

struct KerasNode {
  const Json* layer = nullptr;
  size_t position = 0;         // of the layer in the list
  std::vector<NodeKey> needs;  // in the order of the arguments
  Json args, kwargs;           // as written, for operations
};

struct KerasNodes {
  std::map<NodeKey, KerasNode> nodes;
  std::set<std::string> functional;  // names of nested models of that class
};

bool is_keras_model(const std::string& class_name);
std::string name_of_layer(const Json& layer, const KerasJson& json);

// The nodes of a list of layers; refuses calls with arguments that are no tensors. Keras 2's lists
// of inbound nodes included.
KerasNodes read_nodes(const Json& layers, KerasJson& json);

// The references in `value` in Keras' flattened order, with their keys in a map.
std::vector<std::pair<std::string, NodeKey>> read_references(const Json& value,
                                                             const std::string& owner,
                                                             const KerasJson& json);

// An order in which every node comes after those that it needs, `done` aside; among those that
// could come next the first in the list of layers.
std::vector<NodeKey> order_of_nodes(const std::map<NodeKey, KerasNode>& nodes,
                                    const std::map<NodeKey, std::vector<int>>& done,
                                    const KerasJson& json);

}  // namespace meshtrain
