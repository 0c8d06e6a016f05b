// What stands outside of an image, beside the definitions of ir/ops/warp.cc.
#include "backend/formulas/warp.h"

#include <doctest/doctest.h>

#include <string>

namespace meshtrain {
namespace {

// The pixels at -9 to 12 of an image of "abcd"; "." is the fill value.
std::string continued(mt::WarpFill fill) {
  std::string out;
  for (long long i = -9; i <= 12; ++i) {
    const long long pixel = mt::filled_index(i, 4, fill);
    out += pixel < 0 ? '.' : "abcd"[pixel];
  }
  return out;
}

}  // namespace

TEST_CASE("warp: images are continued as NumPy's and SciPy's modes do") {
  CHECK(continued(mt::WarpFill::kConstant) == ".........abcd.........");
  CHECK(continued(mt::WarpFill::kNearest) == "aaaaaaaaaabcdddddddddd");
  CHECK(continued(mt::WarpFill::kWrap) == "dabcdabcdabcdabcdabcda");
  CHECK(continued(mt::WarpFill::kReflect) == "aabcddcbaabcddcbaabcdd");
  CHECK(continued(mt::WarpFill::kMirror) == "dcbabcdcbabcdcbabcdcba");
  CHECK(mt::filled_index(-3, 1, mt::WarpFill::kMirror) == 0);
}

}  // namespace meshtrain
