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

// (layer, which of its calls).
using NodeKey = std::pair<std::string, int64_t>;
// An output of a call.
struct TensorKey {
  NodeKey node;
  size_t tensor = 0;
};

// What a call of a layer says beside its tensors in their order.
struct CallKeywords {
  std::vector<std::string>
      roles;  // of all tensors where one has a keyword: "query", "attention_mask"
  std::vector<std::string> flags;  // arguments that are true: "use_causal_mask"
  bool leaves_mask = false;        // a recurrent layer whose mask Keras does not fill in
};

inline constexpr size_t kMaxCalls = 100000;  // of the dissolved graph
inline constexpr const char* kReturnsScores = "return_attention_scores";

struct KerasNode {
  const Json* layer = nullptr;
  size_t position = 0;           // of the layer in the list
  std::vector<TensorKey> needs;  // in the order of the arguments
  CallKeywords keywords;
  Json args, kwargs;            // as written, for operations
  std::vector<TensorKey> mask;  // of steps, which Keras made of an earlier layer's; one or none
  bool has_constant = false;    // among the arguments, unless it is an operation
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
std::vector<std::pair<std::string, TensorKey>> read_references(const Json& value,
                                                               const std::string& owner,
                                                               const KerasJson& json);

// Operations that only compute masks of steps: the program has these by itself.
std::set<NodeKey> nodes_of_masks(const std::map<NodeKey, KerasNode>& nodes,
                                 const std::vector<TensorKey>& outputs);

// An order in which every node comes after those that it needs, `done` aside; among those that
// could come next the first in the list of layers.
std::vector<NodeKey> order_of_nodes(const std::map<NodeKey, KerasNode>& nodes,
                                    const std::map<NodeKey, std::vector<int>>& done,
                                    const KerasJson& json);

// How many tensors of each node others read: of a list as many as its last one that is read.
std::map<NodeKey, size_t> parts_read(const std::map<NodeKey, KerasNode>& nodes,
                                     const std::vector<TensorKey>& outputs, const KerasJson& json);

}  // namespace meshtrain
