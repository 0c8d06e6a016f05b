// How much memory this process has, and how much it may still take.
#pragma once

#include <cstdint>

namespace meshtrain {

// Returns the bytes that can be allocated without swapping: the least of the system's free memory,
// the rest of the control group, and the limit on the address space (ulimit -v). 0 when unknown.
int64_t available_memory();
int64_t peak_memory();      // most resident bytes so far; 0 when the system does not say
int64_t resident_memory();  // bytes; 0 when the system does not say

}  // namespace meshtrain
