// A tensor with its name, as weight files and archives hold them.
#pragma once

#include <string>

#include "tensor/host_tensor.h"

namespace meshtrain {

struct NamedTensor {
  std::string name;  // "d1/kernel"
  HostTensor tensor;
};

}  // namespace meshtrain
