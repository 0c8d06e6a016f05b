// Caches, views, transforms and checks of rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "data/cached_rows.h"
#include "data/checks.h"
#include "data/numpy_rows.h"
#include "data/transforms.h"
#include "rows_testing.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

using namespace test;

TEST_CASE("data.cache and data.memory: where rows are kept and that they stay the same") {
  const HostTensor tensor = pattern(DType::kFloat32, {10, 5});
  const TempFolder folder;
  for (const std::string cache : {"", "memory", "file", "none", folder.path().c_str()}) {
    for (const Cost cost : {Cost::kFile, Cost::kInOrder, Cost::kComputed}) {
      for (const int64_t memory : {199, 200}) {
        CAPTURE(cache);
        CAPTURE(static_cast<int>(cost));
        CAPTURE(memory);
        const auto counted = std::make_shared<CountedRows>(tensor.clone(), cost);
        DataConfig data;
        data.cache.value = cache;
        data.memory.value = memory;
        const RowsPtr kept = cache_rows(counted, data);
        const bool in_order = cost == Cost::kInOrder;
        const bool is_small = memory == 200;
        const bool in_memory = cache == "memory" || (is_small && (cache.empty() || in_order) &&
                                                     (cache.empty() || cache == "none"));
        const bool in_file = !in_memory && (in_order || (!cache.empty() && cache != "none"));
        CHECK((kept->tensor() != nullptr) == (in_memory && cost != Cost::kComputed));
        CHECK((kept == counted) == (!in_memory && !in_file));
        const bool at_once = in_order || (in_memory && cost != Cost::kComputed);
        CHECK(counted->counts == std::vector<int>(10, at_once ? 1 : 0));
        check_same(*kept, tensor);
        check_same(*kept, tensor);
        CHECK((counted->counts == std::vector<int>(10, 1)) == (in_memory || in_file));
        CHECK(folder.num_files() == 0);  // the file has no name
      }
    }
  }
  CHECK(cache_rows(make_rows(tensor.clone()), DataConfig{})->tensor() != nullptr);
}

TEST_CASE("data.cache: a folder that cannot be written ends the run with its name") {
  DataConfig data;
  data.cache.value = "/nowhere/at/all";
  const auto rows =
      std::make_shared<CountedRows>(pattern(DType::kFloat32, {10, 5}), Cost::kComputed);
  const Caught error = caught([&] { cache_rows(rows, data); });
  CHECK(error.exit_code == 2);
  CHECK(error.says("there is no folder `/nowhere/at/all`"));
  CHECK(error.says("data.cache"));
}

TEST_CASE("data.cache: what cannot be read is not kept") {
  class FailingRows final : public Rows {
   public:
    DType dtype() const override { return DType::kUInt8; }
    const Shape& shape() const override { return shape_; }
    void read(std::span<const int64_t> order, std::byte* to) const override {
      if (fails) {
        throw ConfigError("E322", {}, "an image cannot be read");
      }
      std::fill_n(to, order.size(), std::byte{7});
    }
    mutable bool fails = true;

   private:
    Shape shape_ = {10};
  };
  for (const char* cache : {"memory", "file"}) {
    const auto failing = std::make_shared<FailingRows>();
    DataConfig data;
    data.cache.value = cache;
    const RowsPtr kept = cache_rows(failing, data);
    CHECK(caught([&] { read(*kept, {3, 4}); }).code == "E322");
    failing->fails = false;
    CHECK(read(*kept, {3, 4}) == std::vector<std::byte>(2, std::byte{7}));
  }
}

TEST_CASE("caches are filled by several threads at once") {
  const HostTensor tensor = pattern(DType::kFloat32, {10, 5});
  for (const char* cache : {"memory", "file"}) {
    const auto counted = std::make_shared<CountedRows>(tensor.clone(), Cost::kComputed);
    DataConfig data;
    data.cache.value = cache;
    const RowsPtr kept = cache_rows(counted, data);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int64_t row = 0; row < 10; ++row) {
          read(*kept, {row, 9 - row});
        }
      });
    }
    threads.clear();
    CHECK(counted->counts == std::vector<int>(10, 1));
    check_same(*kept, tensor);
  }
}

TEST_CASE("views: parts of rows and rows of several files") {
  const HostTensor tensor = pattern(DType::kInt16, {10, 3});
  const RowsPtr whole = make_rows(tensor.clone());
  const RowsPtr joined = concat_rows({slice_rows(whole, 0, 4), slice_rows(whole, 4, 4),
                                      slice_rows(whole, 4, 5), slice_rows(whole, 5, 10)});
  check_same(*joined, tensor);
  const RowsPtr middle = slice_rows(joined, 3, 7);
  CHECK(middle->shape() == Shape{4, 3});
  CHECK(read(*middle, {3, 0}) == read(*whole, {6, 3}));
  CHECK_THROWS_AS(read(*middle, {4}), InternalError);
  CHECK_THROWS_AS(slice_rows(whole, 3, 11), InternalError);
  CHECK(reshape_rows(whole, {1, 3, 1})->shape() == Shape{10, 1, 3, 1});
  CHECK_THROWS_AS(reshape_rows(whole, {4}), InternalError);
  const RowsPtr wide = cast_rows(joined, DType::kFloat64);
  CHECK(read(*wide, {9, 2}) == read(*make_rows(tensor.cast(DType::kFloat64)), {9, 2}));
}

ConfigObject rescaling(ConfigValue scale, ConfigValue offset) {
  return object("Rescaling", {{"scale", std::move(scale)}, {"offset", std::move(offset)}});
}

ConfigValue numbers(const std::vector<double>& list) {
  ConfigValue::List values;
  for (const double number : list) {
    values.push_back(value(number));
  }
  return value(std::move(values));
}

TEST_CASE("transforms act on what is read, from memory and from files, to the bit") {
  const TempFolder folder;
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    CAPTURE(dtype_name(dtype));
    const HostTensor tensor = pattern(dtype, {10, 4, 3});
    write_npy(folder.file("x.npy"), tensor);
    const bool is_double = dtype == DType::kFloat64;
    HostTensor expected(is_double ? DType::kFloat64 : DType::kFloat32, {10, 4, 3});
    const double scales[] = {1 / 255.0, 1 / 127.5, 3};
    for (int64_t i = 0; i < expected.size(); ++i) {
      if (is_double) {
        expected.data<double>()[i] = tensor.at(i) * scales[i % 3] + -0.1;
      } else {
        volatile float product =  // rounded before the addition
            static_cast<float>(tensor.at(i)) * static_cast<float>(scales[i % 3]);
        expected.data<float>()[i] = product + static_cast<float>(-0.1);
      }
    }
    const ConfigObject transform =
        rescaling(numbers({scales[0], scales[1], scales[2]}), value(-0.1));
    check_same(*apply_transform(transform, make_rows(tensor.clone()), "x"), expected);
    check_same(*apply_transform(transform, npy_rows(folder.file("x.npy"), {}), "x"), expected);
  }
}

TEST_CASE("one-hot labels are made of those that are read") {
  const HostTensor labels = tensor_of<int>(DType::kUInt8, {10}, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
  HostTensor expected(DType::kFloat32, {10, 10});
  for (int64_t i = 0; i < 10; ++i) {
    expected.set(i * 10 + static_cast<int64_t>(labels.at(i)), 1);
  }
  check_same(*one_hot(make_rows(labels.clone()), 10, "y", {}), expected);
  CHECK(caught([&] { one_hot(make_rows(labels.clone()), 9, "y", {}); }).code == "E312");
}

TEST_CASE("checks of what is computed happen when it is read") {
  HostTensor tensor = pattern(DType::kFloat32, {10, 5});
  tensor.set(37, std::numeric_limits<double>::infinity());
  const auto computed = std::make_shared<CountedRows>(tensor.clone(), Cost::kComputed);
  const RowsPtr finite = check_finite(computed, true, "x", "images", place(2));
  CHECK(computed->counts == std::vector<int>(10, 0));
  read(*finite, {0, 8, 9});
  const Caught error = caught([&] { read(*finite, {0, 7, 8}); });
  CHECK(error.code == "E315");
  CHECK(error.says("sample 7 feature 2 is inf"));
  CHECK(caught([&] { check_finite(make_rows(tensor.clone()), true, "x", "images", {}); }).code ==
        "E315");
  const RowsPtr labels = check_label_range(
      std::make_shared<CountedRows>(
          tensor_of<int>(DType::kInt32, {10}, {0, 1, 2, 0, 9, 0, 0, 0, 8, 0}), Cost::kComputed),
      {3}, "y", place(2));
  read(*labels, {0, 1, 2});
  const Caught label = caught([&] { read(*labels, {2, 8, 4}); });
  CHECK(label.code == "E312");
  CHECK(label.says("sample 8 has the label 8"));
  CHECK(label.says("1 more"));
  const RowsPtr ids =
      check_id_range(std::make_shared<CountedRows>(
                         tensor_of<int>(DType::kInt32, {4}, {0, 1, -2, 2}), Cost::kComputed),
                     3, "e", "x", place(2));
  read(*ids, {3, 0});
  CHECK(caught([&] { read(*ids, {1, 2}); }).says("sample 2 has the id -2; `e` has the rows 0..2"));
}

TEST_CASE("checks of what lies in files are done ahead in blocks") {
  const TempFolder folder;
  HostTensor tensor(DType::kFloat32, {3, 1 << 20});  // more than a block
  tensor.set(tensor.size() - 2, std::nan(""));
  write_npy(folder.file("x.npy"), tensor);
  const Caught error = caught(
      [&] { check_finite(npy_rows(folder.file("x.npy"), {}), true, "x", "npy x.npy", place(2)); });
  CHECK(error.code == "E315");
  CHECK(error.says("sample 2 feature 1048574 is NaN"));
}

}  // namespace
}  // namespace meshtrain
