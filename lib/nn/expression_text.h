// Calls of operations as text: expressions of the config, and Python with keras.ops.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/tensor_program.h"

namespace meshtrain {

// "mean(x, axis=-1)", "x + 2.0", "x[:, 0]". `names` are those of the tensors; `prefix` stands
// before functions: "keras.ops.". Arguments that are defaults are left out.
std::string call_text(const TensorProgram::Call& call, const std::vector<std::string>& names,
                      std::string_view prefix = {});
// A constant in Python: None, True, 2.0, [1, 2].
std::string constant_text(const ExprValue& value);

}  // namespace meshtrain
