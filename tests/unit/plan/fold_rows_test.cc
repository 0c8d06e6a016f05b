#include "plan/fold_rows.h"

#include <doctest/doctest.h>

namespace meshtrain {
namespace {

TEST_CASE("rows that differ by the number of their block alone are one") {
  TextRows rows = {{"variable", "bytes"}, {"table", "9"}};
  for (int i = 0; i < 5; ++i) {
    rows.push_back({"layer_" + std::to_string(i) + "/kernel", "4"});
    rows.push_back({"layer_" + std::to_string(i) + "/bias", i == 2 ? "2" : "1"});
  }
  rows.push_back({"dense/kernel", "4"});
  rows.push_back({"dense_1/kernel", "4"});  // fewer than are folded
  CHECK(fold_blocks(rows) == TextRows{{"variable", "bytes"},
                                      {"table", "9"},
                                      {"layer_{0..4}/kernel", "4"},
                                      {"layer_{0..4, 4 of them}/bias", "1"},
                                      {"layer_2/bias", "2"},
                                      {"dense/kernel", "4"},
                                      {"dense_1/kernel", "4"}});
}

TEST_CASE("paths without a numbered block, and the header, stay") {
  const TextRows rows = {{"a_1/b"}, {"kernel_1"}, {"kernel_2"}, {"kernel_3"}, {"kernel_4"},
                         {"9/a"},   {"layer9/a"}, {"_"},        {""}};
  CHECK(fold_blocks(rows) == rows);
}

TEST_CASE("equal keys have the index of the first one, where they are several") {
  CHECK(first_equal({"a", "b", "a", "c", "a", "b", "a"}) ==
        std::vector<size_t>{0, 1, 0, 3, 0, 5, 0});
  CHECK(first_equal({"a", "a", "a"}) == std::vector<size_t>{0, 1, 2});
}

}  // namespace
}  // namespace meshtrain
