// The ways in which the parts of a config's model may compute forward values again.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace meshtrain {

struct RematChoice {
  std::string name;  // "none", "dots", "block", or "given": the config's own lists of layers
  std::vector<ModelConfig::Remat> parts;
};

// none, dots and block for the parts that the config's `remat` names, else for its repetitions and
// uses of blocks; none alone for a model without any.
std::vector<RematChoice> remat_choices(const ModelConfig& model);

}  // namespace meshtrain
