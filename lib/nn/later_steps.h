// Which layers let a step see later ones: such a model can copy an id that it is to predict.
#pragma once

#include "nn/model.h"

namespace meshtrain {

// The first call on the way from the inputs to `output`, an index of model.calls(), in which a step
// sees later ones: attention without a mask of any kind, a layer that goes backwards, a convolution
// with steps on both sides. Null where there is none, or none that is known.
const Model::Call* call_of_later_steps(const Model& model, int output);

}  // namespace meshtrain
