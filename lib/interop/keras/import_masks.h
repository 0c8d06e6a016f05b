// Masks of steps in Keras' graphs. Keras writes the mask that a layer got from the layers before it
// as operations and as an argument `mask`; here layers pass masks on by themselves. Import compares
// the two as texts, in which equal masks are equal. Source: Keras 3.15.1, compute_mask of layers.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "interop/keras/import_graph.h"

namespace meshtrain {

// Whether a layer of that class and configuration makes a mask.
bool makes_mask(const std::string& class_name, const Json& config);

class ImportedMasks {
 public:
  // A call's result for what another one needs; kNone where it is none of the calls yet.
  using CallOf = std::function<int(const TensorKey& tensor)>;

  // Notes the mask of the result of a call, from those of its inputs.
  void add(int call, const KerasLayer& layer, const std::vector<int>& inputs);
  // "" where the result has no mask.
  std::string of_call(int call) const;
  // The mask that an operation computes; "" where it is none of the forms that Keras writes.
  std::string of_operation(const std::map<NodeKey, KerasNode>& nodes, const NodeKey& key,
                           const CallOf& call_of) const;

 private:
  std::map<int, std::string> masks_;
};

}  // namespace meshtrain
