// Counts calls of operator new in this executable.
#pragma once

#include <cstdint>

namespace meshtrain::testing {

int64_t num_allocations();

}  // namespace meshtrain::testing
