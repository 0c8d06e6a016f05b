// Forward values that the backward pass computes again instead of keeping them (rematerialization;
// Chen et al., arXiv:1604.06174). The same values, bit for bit, for more computing and less memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace meshtrain {

struct RematRegion {
  std::string prefix;  // of its nodes' paths: "transformer_layer_0"
  // Kept beside what the region takes from outside: results of products, attention and scans.
  bool keeps_products = false;
  // Kept: what these parts of the region give to the rest of it, "self_attention".
  std::vector<std::string> kept_parts;
};

// In a graph with gradients, before layouts propagate: backward nodes read copies of the regions'
// forward nodes. A copy stands directly before its first reader, so that its result lives no
// longer than it must; the attribute `remat` keeps it apart from the original. Copies have the
// attributes of the original, random streams among them. Never computed again: variables,
// indices of largest values, whatever has no operands.
Graph rematerialize(Graph graph, std::span<const RematRegion> regions);

}  // namespace meshtrain
