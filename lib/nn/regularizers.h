// Regularizers and constraints of weights. Source: Keras 3 regularizers.py, constraints.py.
#pragma once

#include "config/object.h"
#include "ir/builder.h"

namespace meshtrain {

// The penalty on a weight: a scalar of its dtype.
ValueId add_penalty(Builder& builder, const ConfigObject& regularizer, ValueId weight);
// The penalty on a layer's output: divided by the (global) batch size.
ValueId add_activity_penalty(Builder& builder, const ConfigObject& regularizer, ValueId output);
// Applies the constraint to the weight; norms are those of the whole weight.
ValueId add_constraint(Builder& builder, const ConfigObject& constraint, ValueId weight);

// Report (E113) an axis outside of the weight's rank, or a weight that is no matrix where one is
// needed. `weight`: what it is called in the message.
void check_regularizer(const ConfigObject& regularizer, std::string_view weight, const Shape& shape,
                       Diagnostics& diagnostics);
void check_constraint(const ConfigObject& constraint, std::string_view weight, const Shape& shape,
                      Diagnostics& diagnostics);

}  // namespace meshtrain
