// What the exports read of a Lambda.
#pragma once

#include "nn/model.h"
#include "nn/tensor_program.h"

namespace meshtrain {

// The operations of a built Lambda; nullptr for any other layer.
const TensorProgram* program_of_layer(const Layer& layer);

}  // namespace meshtrain
