#include "data/array_stats.h"

#include <doctest/doctest.h>

#include <cmath>

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

using Counts = std::map<int64_t, int64_t>;

RowsPtr rows(DType dtype, Shape shape, const std::vector<double>& values) {
  return make_rows(tensor_of<double>(dtype, std::move(shape), values));
}

}  // namespace

TEST_CASE("measure: range and what is not finite in every type") {
  for (const DType dtype : {DType::kUInt8, DType::kInt16, DType::kUInt64, DType::kFloat16,
                            DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    const ArrayStats stats = measure(*rows(dtype, {2, 3}, {1, 2, 3, 4, 5, 9}), false);
    CHECK(stats.min == 1);
    CHECK(stats.max == 9);
    CHECK(stats.mean == 4);
    CHECK(stats.nans == 0);
    CHECK(!stats.classes);
  }
  const ArrayStats odd = measure(*rows(DType::kFloat32, {4}, {NAN, -2, INFINITY, 4}), false);
  CHECK(odd.nans == 1);
  CHECK(odd.infinities == 1);
  CHECK(odd.min == -2);
  CHECK(odd.mean == 1);
  const ArrayStats none = measure(*rows(DType::kFloat32, {2}, {NAN, NAN}), false);
  CHECK(std::isnan(none.min));
  CHECK(std::isnan(none.mean));
}

TEST_CASE("measure: classes of whole numbers and of bits and of one-hot rows") {
  CHECK(measure(*rows(DType::kUInt8, {5, 1}, {3, 1, 3, 3, 0}), true).classes ==
        Counts{{0, 1}, {1, 1}, {3, 3}});
  CHECK(measure(*rows(DType::kFloat32, {3}, {0, 1, 1}), true).classes == Counts{{0, 1}, {1, 2}});
  CHECK(measure(*rows(DType::kFloat32, {3, 2}, {0, 1, 1, 0, 0, 1}), true).classes ==
        Counts{{0, 1}, {1, 2}});
}

TEST_CASE("measure: other labels have no classes") {
  CHECK(!measure(*rows(DType::kFloat32, {3}, {0, 1, 2}), true).classes);
  CHECK(!measure(*rows(DType::kFloat32, {2, 2}, {0, 1, 1, 1}), true).classes);
  CHECK(!measure(*rows(DType::kFloat32, {2, 2}, {0, 1, 0, 0}), true).classes);
  CHECK(!measure(*rows(DType::kFloat32, {2, 2}, {0, 1, 0.5, 0.5}), true).classes);
  CHECK(!measure(*rows(DType::kInt32, {2, 2}, {0, 1, 1, 0}), true).classes);
  std::vector<double> many(1001);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i] = static_cast<double>(i);
  }
  CHECK(!measure(*rows(DType::kInt32, {1001}, many), true).classes);
  many.pop_back();
  CHECK(measure(*rows(DType::kInt32, {1000}, many), true).classes->size() == 1000);
}

}  // namespace meshtrain

TEST_SUITE_END();
