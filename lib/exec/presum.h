// Pending sums that are never spread over the devices: where the pieces of a product or a sum are
// terms that a collective adds up and nothing else reads, the terms are added up by the product
// itself, over all pieces at once. A gradient over eight virtual devices costs what it costs on
// one.
#pragma once

#include "ir/program.h"

namespace meshtrain {

// For each buffer, the pending axes whose terms the step that writes it adds up: the sum is then in
// the pieces at position 0 along these axes, and the other pieces hold nothing. 0 for most buffers.
std::vector<AxisMask> find_presummed(const Program& program);

}  // namespace meshtrain
