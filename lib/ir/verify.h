// Parts of the verifiers that graph.h declares.
#pragma once

#include "ir/signatures.h"

namespace meshtrain {

// As verify(). The signature of each node; null for sources and layout changes.
std::vector<Signature*> verify_structure(const Graph& graph, Signatures& signatures);

// Checks that every value has a sharding that is valid for its shape. The shardings need not agree
// with each other.
void verify_shardings(const Graph& graph, const DeviceMesh& mesh);

}  // namespace meshtrain
