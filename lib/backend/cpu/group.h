// Several kernels that do not depend on each other as one: the shards of a step.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// The only kernel itself when there is one. The list must not be empty.
KernelPtr make_group(KernelList kernels);

}  // namespace meshtrain::cpu
