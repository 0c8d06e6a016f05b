// Heads with their losses, over every way to split them, against the interpreter.
#include <doctest/doctest.h>

#include "check_op.h"

namespace meshtrain::testing {
namespace {

struct HeadCase {
  Shape tokens;
  int64_t features, classes, transposed;
};

void check_head(const HeadCase& n, bool with_parts) {
  Shape x = n.tokens;
  x.push_back(n.features);
  const Operand table{n.transposed != 0 ? Shape{n.features, n.classes}
                                        : Shape{n.classes, n.features}};
  const Operand ids{n.tokens, DType::kInt32, Values::kSmallIds};
  const Operand weights{n.tokens, DType::kFloat32, Values::kSigned, true};
  const Operand lse{n.tokens, DType::kFloat32, Values::kLarge, true};
  Attrs attrs = {{"transposed", n.transposed}};
  check_everywhere({"linear_cross_entropy", {{x}, table, ids}, attrs, 1e-5});
  check_everywhere({"linear_cross_entropy_grad", {{x}, table, ids, weights}, attrs, 1e-5});
  if (!with_parts) {
    return;
  }
  check_everywhere(
      {"linear_cross_entropy_parts_grad", {{x}, table, ids, weights, lse}, attrs, 1e-5});
  for (const int64_t blocks : {1, 4}) {
    attrs["blocks"] = blocks;
    check_everywhere({"linear_cross_entropy_parts", {{x}, table, ids}, attrs, 1e-5});
  }
}

TEST_CASE("heads with their losses equal the interpreter on every split") {
  for (const int64_t transposed : {0, 1}) {
    check_head({{8, 4}, 6, 16, transposed}, false);
    // Logits of at most 4, below any lse: as probabilities are, their exponentials are below 1.
    check_head({{8, 4}, 1, 16, transposed}, true);
  }
}

TEST_CASE("heads of several chunks of tokens equal the interpreter") {
  for (const int64_t transposed : {0, 1}) {
    check_head({{602}, 2, 4096, transposed}, false);  // three chunks, the last one smaller
  }
}

}  // namespace
}  // namespace meshtrain::testing
