// The weights of a layer in Keras' files: groups of datasets.
#pragma once

#include <string>
#include <vector>

#include "nn/model.h"

namespace meshtrain {

// The weights of a layer or of one of its sub-layers, in the order of their datasets.
struct PartGroup {
  std::string group;  // "layers/lstm/cell"
  std::string name;   // of the layer or sub-layer: "lstm_cell"
  std::vector<const Weight*> weights;
};

// `group`: of the layer. Its own weights come first, if it has none too.
std::vector<PartGroup> part_groups(const Layer& layer, const std::string& group);

}  // namespace meshtrain
