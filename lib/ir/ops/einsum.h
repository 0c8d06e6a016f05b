// The equation of an einsum node: "bi,io->bo".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

struct EinsumEquation {
  std::vector<std::string> operands;  // one letter per dimension
  std::string result;

  std::string to_string() const;
};

// Throws InternalError unless it is one or two operands and a result of ASCII letters, no letter
// twice in a tensor, every letter of the result in an operand.
EinsumEquation parse_einsum(std::string_view equation);

}  // namespace meshtrain
