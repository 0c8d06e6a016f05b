// One op over every way to split its factors, by the executor and by the interpreter.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace meshtrain::testing {

// kLarge: in [4.1, 6.1).
enum class Values { kSigned, kPositive, kLarge, kSmallIds, kBool, kStep, kSmallIntegers };

struct Operand {
  Shape shape;
  DType dtype = DType::kFloat32;
  Values values = Values::kSigned;
  bool is_float32 = false;  // also where the others have 16 bits
};

struct Case {
  std::string op;
  std::vector<Operand> operands;
  Attrs attrs = {};
  double tolerance = 2e-6;  // float32, relative to the largest element
};

// Runs the case over every way to split its factors on meshes of one and two axes, with one, two
// and three workers (bit for bit the same), and compares with the interpreter on whole tensors. As
// it is, and in float64, bfloat16 and float16 where it computes in float32.
void check_everywhere(const Case& c);

}  // namespace meshtrain::testing
