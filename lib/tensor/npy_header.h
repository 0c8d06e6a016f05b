// The text of a .npy header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
#pragma once

#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace meshtrain {

struct NpyHeader {
  std::string descr;  // "<f4", as written
  bool fortran_order = false;
  Shape shape;  // at most 32 dimensions, no size negative
};

// Exactly the three keys, each once, in any order; anything else is E302, a wrong shape E304.
// `name` stands for the file in messages.
NpyHeader parse_npy_header(std::string_view text, const std::string& name);

}  // namespace meshtrain
