// How much memory this process has, and how much it may still take.
#pragma once

#include <cstdint>

namespace meshtrain {

// Bytes that can be taken without swapping, by what the system has free, what the control group may
// still use, and the limit on the address space (ulimit -v). 0 when the system does not say.
int64_t available_memory();
int64_t resident_memory();  // bytes; 0 when the system does not say

}  // namespace meshtrain
