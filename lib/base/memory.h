// How much memory a process may still take.
#pragma once

#include <cstdint>

namespace meshtrain {

// Returns the bytes that can be allocated without swapping: the least of the system's free memory,
// the rest of the control group, and the limit on the address space (ulimit -v). 0 when unknown.
int64_t available_memory();

}  // namespace meshtrain
