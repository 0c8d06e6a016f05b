#include "tensor/host_tensor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/dtype.h"

namespace meshtrain {
namespace {

TEST_CASE("DType: names and sizes are those of NumPy") {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(parse_dtype(dtype_name(dtype)) == dtype);
  }
  CHECK(dtype_size(DType::kBFloat16) == 2);
  CHECK(dtype_name(DType::kUInt16) == "uint16");
  CHECK(!parse_dtype("float").has_value());
  CHECK(is_floating(DType::kFloat16));
  CHECK(!is_integer(DType::kBool));
}

TEST_CASE("Shape: text products and broadcasting") {
  CHECK(shape_string({}) == "()");
  CHECK(shape_string({5}) == "(5,)");
  CHECK(shape_string({kUnknownDim, 10}) == "(None, 10)");
  CHECK(num_elements({}) == 1);
  CHECK(num_elements({3, 0}) == 0);
  CHECK_THROWS_AS(num_elements({int64_t{1} << 40, int64_t{1} << 40}), InternalError);
  CHECK(broadcast_shapes({4, 1, 3}, {2, 1}) == Shape{4, 2, 3});
  CHECK(!can_broadcast({2}, {3}));
  CHECK(row_major_strides({2, 3, 4}) == std::vector<int64_t>{12, 4, 1});
}

TEST_CASE("HostTensor: is zero at first and aligned") {
  const HostTensor tensor(DType::kFloat32, {3, 5});
  CHECK(reinterpret_cast<uintptr_t>(tensor.bytes()) % 64 == 0);
  CHECK(tensor.at(14) == 0);
  CHECK(tensor.num_bytes() == 60);
}

TEST_CASE("HostTensor: values survive every type that can hold them") {
  for (int i = static_cast<int>(DType::kUInt8); i <= static_cast<int>(DType::kFloat64); ++i) {
    HostTensor tensor(static_cast<DType>(i), {2});
    tensor.set(1, 100);
    CHECK(tensor.at(1) == 100);
    CHECK(tensor.cast(DType::kFloat64).at(1) == 100);
  }
}

TEST_CASE("HostTensor: whole numbers of 64 bits keep all digits in the other type of 64 bits") {
  HostTensor tensor(DType::kUInt64, {1});
  tensor.data<uint64_t>()[0] = (uint64_t{1} << 53) + 1;
  CHECK(tensor.cast(DType::kInt64).data<int64_t>()[0] == (int64_t{1} << 53) + 1);
}

TEST_CASE("HostTensor: bfloat16 rounds to the nearest even and keeps NaN") {
  HostTensor tensor(DType::kBFloat16, {3});
  tensor.set(0, 1.00390625);  // half way between 1 and the next, 1.0078125
  tensor.set(1, 1.01171875);  // half way between 1.0078125 and 1.015625
  tensor.set(2, std::numeric_limits<double>::quiet_NaN());
  CHECK(tensor.at(0) == 1.0);
  CHECK(tensor.at(1) == 1.015625);
  CHECK(std::isnan(tensor.at(2)));
}

TEST_CASE("HostTensor: reshape keeps the elements and refuses another size") {
  HostTensor tensor = tensor_of<int>(DType::kInt32, {2, 3}, {1, 2, 3, 4, 5, 6});
  tensor.reshape({3, 2});
  CHECK(tensor.at(5) == 6);
  CHECK_THROWS_AS(tensor.reshape({4}), InternalError);
}

}  // namespace
}  // namespace meshtrain
