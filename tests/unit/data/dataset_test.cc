#include "data/dataset.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "config/source_classes.h"
#include "data/column_transform.h"
#include "data/dataset_spec.h"
#include "data/sources.h"
#include "data/transforms.h"
#include "source_config.h"
#include "support/temp_folder.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

using namespace test;

HostTensor range(DType dtype, const Shape& shape) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, static_cast<double>(i));
  }
  return tensor;
}

DataConfig config_in(const TempFolder& folder) {
  DataConfig data;
  data.base_dir = folder.path();
  return data;
}

// a.npz with x (6, 2) float64, y (6,) int64 and w (6,) float64.
void write_archive(const TempFolder& folder) {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", range(DType::kFloat64, {6, 2})});
  tensors.push_back({"y", range(DType::kInt64, {6})});
  tensors.push_back({"w", range(DType::kFloat64, {6})});
  write_npz(folder.file("a.npz"), tensors);
}
ConfigObject npz_source(const Args& more = {}) {
  Args args = {{"path", value("a.npz")},
               {"x", default_value("x")},
               {"y", default_value("y")},
               {"sample_weight", null_value()},
               {"slice", null_value()}};
  args.insert(args.end(), more.begin(), more.end());
  return object("npz", args);
}

TEST_CASE("load_dataset: npz with the default names keeps types") {
  const TempFolder folder;
  write_archive(folder);
  const Dataset dataset = load_dataset(npz_source(), config_in(folder));
  CHECK(dataset.num_samples == 6);
  REQUIRE(dataset.inputs.size() == 1);
  CHECK(dataset.inputs[0].name == "x");
  CHECK(dataset.inputs[0].rows->dtype() == DType::kFloat64);
  REQUIRE(dataset.targets.size() == 1);
  CHECK(dataset.targets[0].rows->dtype() == DType::kInt64);
  CHECK(!dataset.sample_weight);
  CHECK(dataset.description == "npz a.npz (6 samples)");
}

TEST_CASE("load_dataset: samples of no elements are refused however many are claimed") {
  const TempFolder folder;
  folder.write("x.npy", npy_header(DType::kFloat32, {int64_t{1} << 40, 0}));
  const Caught error = caught([&] {
    load_dataset(object("npy", {{"x", value("x.npy")},
                                {"y", null_value()},
                                {"sample_weight", null_value()},
                                {"slice", null_value()}}),
                 config_in(folder));
  });
  CHECK(error.code == "E304");
  CHECK(error.says("the samples of `x`, which is (1099511627776, 0), have no elements"));
}

TEST_CASE("load_dataset: npz with names for inputs and sample weights") {
  const TempFolder folder;
  write_archive(folder);
  ConfigValue::Dict inputs = {{"left", value("x")}, {"right", value("w")}};
  const Dataset dataset = load_dataset(
      npz_source({{"x", value(inputs)}, {"sample_weight", value("w")}}), config_in(folder));
  REQUIRE(dataset.inputs.size() == 2);
  CHECK(dataset.inputs[0].name == "left");
  CHECK(dataset.inputs[1].name == "right");
  CHECK(dataset.inputs[1].rows->shape() == Shape{6});
  CHECK(dataset.sample_weight->dtype() == DType::kFloat32);
  CHECK(whole(dataset.sample_weight).at(5) == 5);
  ConfigValue::List list = {value("x"), value("w")};
  CHECK(load_dataset(npz_source({{"x", value(list)}}), config_in(folder)).inputs[1].name == "w");
}

TEST_CASE("load_dataset: npz without labels serves to predict unless labels were asked for") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", range(DType::kFloat32, {3, 2})});
  write_npz(folder.file("a.npz"), tensors);
  CHECK(load_dataset(npz_source(), config_in(folder)).targets.empty());
  const Caught error = caught([&] {
    load_dataset(npz_source({{"y", value("labels")}}), config_in(folder));
  });
  CHECK(error.code == "E306");
  CHECK(error.exit_code == 3);
  CHECK(error.says("it holds: x"));
  CHECK(error.says("test.yaml:2:3"));
}

TEST_CASE("load_dataset: npy files") {
  const TempFolder folder;
  write_npy(folder.file("x.npy"), range(DType::kFloat32, {4, 3}));
  write_npy(folder.file("y.npy"), range(DType::kInt32, {4}));
  const Args args = {{"x", value("x.npy")}, {"y", value("y.npy")}};
  const Dataset dataset = load_dataset(object("npy", args), config_in(folder));
  CHECK(dataset.inputs[0].rows->shape() == Shape{4, 3});
  CHECK(whole(dataset.targets[0].rows).at(3) == 3);
  const Args absolute = {{"x", value(folder.file("x.npy").c_str())}, {"y", null_value()}};
  CHECK(load_dataset(object("npy", absolute), DataConfig{}).targets.empty());
  // One file per input, by name; in order for outputs.
  ConfigValue::Dict inputs = {{"left", value("x.npy")}, {"right", value("y.npy")}};
  ConfigValue::List outputs = {value("y.npy"), value("x.npy")};
  const Dataset several = load_dataset(
      object("npy",
             {{"x", value(inputs)}, {"y", value(outputs)}, {"sample_weight", value("y.npy")}}),
      config_in(folder));
  REQUIRE(several.inputs.size() == 2);
  CHECK(several.inputs[1].name == "right");
  CHECK(several.inputs[1].rows->shape() == Shape{4});
  CHECK(several.targets[1].rows->shape() == Shape{4, 3});
  CHECK(several.sample_weight->dtype() == DType::kFloat32);
}

TEST_CASE("load_dataset: every missing file is named with its place and neighbours") {
  const TempFolder folder;
  write_npy(folder.file("train.npy"), range(DType::kFloat32, {4, 3}));
  const Args args = {{"x", value("trian.npy")}, {"y", value("none/y.npy")}};
  const Caught error = caught([&] { load_dataset(object("npy", args), config_in(folder)); });
  CHECK(error.code == "E300");
  CHECK(error.exit_code == 3);
  CHECK(error.says("trian.npy`: No such file"));
  CHECK(error.says("nearest files in that folder: train.npy"));
  CHECK(error.says("none/y.npy`: No such file"));
  CHECK(error.says("no such folder"));
  CHECK(error.says("test.yaml:2:3"));
}

TEST_CASE("load_dataset: random numbers depend on the seed and the index alone") {
  const auto random = [](int samples, int seed) {
    return load_dataset(object("random", {{"samples", value(samples)},
                                          {"shape", list_value({5, 3})},
                                          {"labels", list_value({10})},
                                          {"classes", null_value()},
                                          {"seed", value(seed)}}),
                        DataConfig{});
  };
  const Dataset few = random(100, 0);
  const Dataset many = random(1000, 0);
  const Dataset other = random(100, 1);
  CHECK(few.inputs[0].rows->shape() == Shape{100, 5, 3});
  CHECK(few.targets[0].rows->shape() == Shape{100, 10});
  CHECK(few.inputs[0].rows->dtype() == DType::kFloat32);
  CHECK(whole(few.inputs[0].rows).at(1499) == whole(many.inputs[0].rows).at(1499));
  CHECK(whole(few.inputs[0].rows).at(7) != whole(other.inputs[0].rows).at(7));
  CHECK(whole(few.inputs[0].rows).at(7) != whole(few.targets[0].rows).at(7));
  const HostTensor drawn = whole(many.inputs[0].rows);
  double squares = 0;
  for (int64_t i = 0; i < 15000; ++i) {
    squares += drawn.at(i) * drawn.at(i);
  }
  CHECK(squares / 15000 == doctest::Approx(1).epsilon(0.05));
  // A promise: these bits are those of every version.
  CHECK(whole(few.inputs[0].rows).data<float>()[0] == 0x1.4e312cp-2F);
  CHECK(whole(few.targets[0].rows).data<float>()[0] == -0x1.73ea92p-1F);
}

TEST_CASE("load_dataset: random classes are whole numbers below their count") {
  Dataset dataset = load_dataset(object("random", {{"samples", value(1000)},
                                                   {"shape", list_value({1})},
                                                   {"labels", null_value()},
                                                   {"classes", value(10)},
                                                   {"seed", value(3)}}),
                                 DataConfig{});
  check_labels(dataset, 0, 10);
  CHECK(dataset.targets[0].rows->dtype() == DType::kInt32);
  const HostTensor labels = whole(dataset.targets[0].rows);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 1000; ++i) {
    ++counts[static_cast<size_t>(labels.at(i))];
  }
  CHECK(*std::min_element(counts.begin(), counts.end()) > 60);
}

TEST_CASE("load_dataset: drawn digits have parts that differ") {
  const auto digits = [](const char* split, ConfigValue samples) {
    return load_dataset(
        object("digits", {{"split", value(split)}, {"samples", samples}, {"seed", value(0)}}),
        DataConfig{});
  };
  const Dataset train = digits("train", value(20));
  Dataset test = digits("test", null_value());
  CHECK(train.inputs[0].rows->shape() == Shape{20, 28, 28, 1});
  CHECK(test.num_samples == 2000);
  CHECK(train.description == "digits (train, 20 samples)");
  CHECK(!std::equal(train.inputs[0].rows->tensor()->bytes(),
                    train.inputs[0].rows->tensor()->bytes() + 784,
                    test.inputs[0].rows->tensor()->bytes()));
  check_labels(test, 0, 10);
}

TEST_CASE("dataset_spec: types and shapes are those of the whole") {
  DataConfig data;
  data.transform = {object("Rescaling", {{"scale", value(0.5)}, {"offset", value(0.0)}}),
                    object("Reshape", {{"target_shape", list_value({-1})}})};
  data.one_hot.value = 10;
  const ConfigObject sources[] = {
      object("random", {{"samples", value(30)},
                        {"shape", list_value({5, 3})},
                        {"labels", null_value()},
                        {"classes", value(10)},
                        {"seed", value(0)}}),
      object("digits",
             {{"split", value("train[:9]")}, {"samples", value(20)}, {"seed", value(0)}})};
  for (const ConfigObject& source : sources) {
    const Dataset whole = load_dataset(source, data);
    const std::optional<Dataset> spec = dataset_spec(source, data);
    REQUIRE(spec);
    for (const auto arrays : {&Dataset::inputs, &Dataset::targets}) {
      REQUIRE(((*spec).*arrays).size() == (whole.*arrays).size());
      const Rows& expected = *(whole.*arrays)[0].rows;
      const Rows& found = *((*spec).*arrays)[0].rows;
      CHECK(found.dtype() == expected.dtype());
      CHECK(found.size() == 0);
      CHECK(std::equal(found.shape().begin() + 1, found.shape().end(), expected.shape().begin() + 1,
                       expected.shape().end()));
    }
  }
  CHECK(samples_with_classes(sources[0]) == 30);
  CHECK(samples_with_classes(sources[1]) == 10);
  CHECK(dataset_spec(sources[1], data, 10)->targets[0].rows->size() == 10);
  CHECK_FALSE(dataset_spec(object("npz", {{"path", value("a.npz")}}), data));
  // As large as it may be: nothing of it is made.
  const int64_t most = int64_t{1} << 24;
  const auto large = dataset_spec(object("random", {{"samples", value(most)},
                                                    {"shape", list_value({most, most})},
                                                    {"labels", null_value()},
                                                    {"classes", null_value()},
                                                    {"seed", value(0)}}),
                                  DataConfig{});
  CHECK(samples_with_classes(object("random", {{"samples", value(most)},
                                               {"shape", list_value({most, most})},
                                               {"labels", null_value()},
                                               {"classes", value(3)},
                                               {"seed", value(0)}})) == 0);
  CHECK(large->inputs[0].rows->shape() == Shape{0, most, most});
}

TEST_CASE("load_dataset: slices are those of Python") {
  const TempFolder folder;
  write_archive(folder);
  struct Case {
    const char* slice;
    int64_t first;
    int64_t count;
  };
  for (const Case& c :
       {Case{"[2:]", 2, 4}, Case{"[:4]", 0, 4}, Case{"[1:3]", 1, 2}, Case{"[-2:]", 4, 2},
        Case{"[:-4]", 0, 2}, Case{"[:]", 0, 6}, Case{"[0:100]", 0, 6}, Case{"[-100:2]", 0, 2},
        Case{" [ 1 : 2 ] ", 1, 1}, Case{"[:50%]", 0, 3}, Case{"[50%:]", 3, 3},
        Case{"[-34%:]", 3, 3}, Case{"[:-34%]", 0, 3}}) {
    CAPTURE(c.slice);
    const Dataset part = load_dataset(npz_source({{"slice", value(c.slice)}}), config_in(folder));
    CHECK(part.num_samples == c.count);
    CHECK(whole(part.inputs[0].rows).at(0) == static_cast<double>(2 * c.first));
    CHECK(part.targets[0].rows->shape() == Shape{c.count});
  }
  for (const char* empty : {"[6:]", "[3:2]", "[:0]", "[100:]"}) {
    CHECK(caught([&] {
            load_dataset(npz_source({{"slice", value(empty)}}), config_in(folder));
          }).code == "E316");
  }
  for (const char* bad : {"[", "9000:", "[a:b]", "[::2]", "[1]", "[1.5:]", "[:200%]", ""}) {
    CAPTURE(bad);
    const Caught error = caught([&] {
      load_dataset(npz_source({{"slice", value(bad)}}), config_in(folder));
    });
    CHECK(error.code == "E113");
    CHECK(error.exit_code == 2);
  }
}

TEST_CASE("load_dataset: arrays of different length are refused with all lengths") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", HostTensor(DType::kFloat32, {60, 2})});
  tensors.push_back({"y", HostTensor(DType::kFloat32, {59})});
  write_npz(folder.file("a.npz"), tensors);
  const Caught error = caught([&] { load_dataset(npz_source(), config_in(folder)); });
  CHECK(error.code == "E313");
  CHECK(error.says("`x` has 60, `y` has 59"));
}

TEST_CASE("load_dataset: no samples and no dimension of samples") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", HostTensor(DType::kFloat32, {0, 2})});
  tensors.push_back({"s", HostTensor(DType::kFloat32, {})});
  write_npz(folder.file("a.npz"), tensors);
  CHECK(caught([&] { load_dataset(npz_source(), config_in(folder)); }).code == "E316");
  CHECK(caught([&] {
          load_dataset(npz_source({{"x", value("s")}}), config_in(folder));
        }).code == "E304");
}

TEST_CASE("load_dataset: float64 that float32 cannot hold is found where that is computed") {
  const TempFolder folder;
  HostTensor x(DType::kFloat64, {40, 5});
  x.set(3 * 5 + 1, 3.402823e38);  // the largest are no infinities yet
  x.set(12 * 5 + 3, -1e39);
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", std::move(x)});
  write_npz(folder.file("a.npz"), tensors);
  const Caught error = caught([&] { load_dataset(npz_source(), config_in(folder)); });
  CHECK(error.code == "E315");
  CHECK(error.says("sample 12 feature 3 is -1e+39, infinite as float32"));
  DataConfig wide = config_in(folder);
  wide.is_for_float64 = true;
  CHECK(load_dataset(npz_source(), wide).num_samples == 40);
}

TEST_CASE("load_dataset: uint64 that no int64 holds are refused") {
  const TempFolder folder;
  HostTensor x(DType::kUInt64, {40, 5});
  x.data<uint64_t>()[3] = (uint64_t{1} << 62) + 1;
  const auto write = [&] {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"x", x.clone()});
    write_npz(folder.file("a.npz"), tensors);
  };
  write();
  CHECK(load_dataset(npz_source(), config_in(folder)).num_samples == 40);
  x.data<uint64_t>()[12 * 5 + 3] = uint64_t{1} << 63;
  x.data<uint64_t>()[13 * 5] = ~uint64_t{0};
  write();
  const Caught error = caught([&] { load_dataset(npz_source(), config_in(folder)); });
  CHECK(error.code == "E303");
  CHECK(
      error.says("`x`: sample 12 has the uint64 9.22337e+18; whole numbers are read up "
                 "to 2^63"));
  CHECK(error.says("1 more are as large"));
}

TEST_CASE("load_dataset: numbers that are not finite are found and named") {
  const TempFolder folder;
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      HostTensor x(dtype, {3000, 5});
      x.set(12 * 5 + 3, bad);
      std::vector<NamedTensor> tensors;
      tensors.push_back({"x", std::move(x)});
      write_npz(folder.file("a.npz"), tensors);
      const Caught error = caught([&] { load_dataset(npz_source(), config_in(folder)); });
      CHECK(error.code == "E315");
      CHECK(error.says(std::isnan(bad) ? "sample 12 feature 3 is NaN"
                                       : "sample 12 feature 3 is inf"));
      DataConfig allow = config_in(folder);
      allow.nonfinite.value = Nonfinite::kAllow;
      CHECK(load_dataset(npz_source(), allow).num_samples == 3000);
      // Samples that the slice leaves out do not matter.
      CHECK(load_dataset(npz_source({{"slice", value("[13:]")}}), config_in(folder)).num_samples ==
            2987);
    }
  }
}

TEST_CASE("load_dataset: rescaling and reshaping of inputs") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", range(DType::kUInt8, {2, 6})});
  tensors.push_back({"y", range(DType::kUInt8, {2})});
  tensors.push_back({"d", range(DType::kFloat64, {2, 6})});
  write_npz(folder.file("a.npz"), tensors);
  DataConfig data = config_in(folder);
  data.transform = {object("Rescaling", {{"scale", value(1.0 / 255)}, {"offset", value(0.5)}}),
                    object("Reshape", {{"target_shape", list_value({3, -1})}})};
  const Dataset dataset = load_dataset(npz_source(), data);
  CHECK(dataset.inputs[0].rows->dtype() == DType::kFloat32);
  CHECK(dataset.inputs[0].rows->shape() == Shape{2, 3, 2});
  CHECK(whole(dataset.inputs[0].rows).data<float>()[7] ==
        7.0F * static_cast<float>(1.0 / 255) + 0.5F);
  CHECK(dataset.targets[0].rows->dtype() == DType::kUInt8);
  const Dataset exact = load_dataset(npz_source({{"x", value("d")}}), data);
  CHECK(exact.inputs[0].rows->dtype() == DType::kFloat64);
  CHECK(whole(exact.inputs[0].rows).at(7) == 7 * (1.0 / 255) + 0.5);
  data.transform = {object("Reshape", {{"target_shape", list_value({4, 2})}})};
  const Caught error = caught([&] { load_dataset(npz_source(), data); });
  CHECK(error.code == "E304");
  CHECK(error.says("6 elements; they cannot become (4, 2)"));
}

TEST_CASE("load_dataset: one-hot labels") {
  const TempFolder folder;
  write_archive(folder);
  DataConfig data = config_in(folder);
  data.one_hot.value = 6;
  const Dataset dataset = load_dataset(npz_source(), data);
  CHECK(dataset.targets[0].rows->shape() == Shape{6, 6});
  CHECK(dataset.targets[0].rows->dtype() == DType::kFloat32);
  for (int64_t i = 0; i < 36; ++i) {
    CHECK(whole(dataset.targets[0].rows).at(i) == (i % 7 == 0 ? 1 : 0));
  }
  data.one_hot.value = 5;
  CHECK(caught([&] { load_dataset(npz_source(), data); }).code == "E312");
}

Dataset labelled(HostTensor labels) {
  Dataset dataset;
  dataset.loc = place(2);
  dataset.num_samples = labels.shape()[0];
  dataset.targets.push_back({"y", make_rows(std::move(labels))});
  return dataset;
}

void check(HostTensor labels, int64_t num_classes) {
  Dataset dataset = labelled(std::move(labels));
  check_labels(dataset, 0, num_classes);
}

TEST_CASE("check_labels: the class that a loss ignores may lie outside of the others") {
  for (const int64_t ignored : {255, -1}) {
    const auto check_four = [&](int64_t num_classes, std::optional<int64_t> allowed) {
      Dataset dataset = labelled(tensor_of<int64_t>(DType::kInt64, {4}, {0, ignored, 3, ignored}));
      check_labels(dataset, 0, num_classes, allowed);
    };
    check_four(4, ignored);
    CHECK(caught([&] { check_four(3, ignored); }).says("label 3"));
    CHECK(caught([&] { check_four(4, {}); }).says("1 more label"));
  }
}

TEST_CASE("check_labels: names the first sample whose label is no class") {
  check(tensor_of<int>(DType::kUInt8, {3}, {0, 9, 5}), 10);
  check(tensor_of<int>(DType::kFloat32, {3}, {0, 9, 5}), 10);
  const Caught high = caught([] { check(tensor_of<int>(DType::kInt64, {3}, {1, 10, 10}), 10); });
  CHECK(high.code == "E312");
  CHECK(high.exit_code == 3);
  CHECK(high.says("sample 1 has the label 10"));
  CHECK(high.says("0..9"));
  CHECK(high.says("1 more labels"));
  CHECK(high.says("counted from 1?"));
  const auto help_of = [](const std::vector<int>& labels, int64_t classes) {
    Dataset dataset =
        labelled(tensor_of<int>(DType::kInt32, {static_cast<int64_t>(labels.size())}, labels));
    const Caught refused = caught([&] { check_labels(dataset, 0, classes, {}); });
    CHECK(dataset.targets[0].rows != nullptr);  // others look at it after that
    return refused;
  };
  CHECK(help_of({0, 1, 2}, 2).says("classes up to 2 take 3 outputs"));
  CHECK(help_of({0, 1}, 1).says("binary_crossentropy"));
  CHECK(help_of({0, 1}, 1).says("the only class is 0"));
  CHECK(help_of({0, -3, 255}, kUnknownDim).says("the label -3; classes are whole numbers from 0"));
  CHECK(help_of({0, 255, 1}, 2).says("`ignore_class: 255`"));
  const auto one = [](double label) {
    return caught([&] { check(tensor_of<double>(DType::kFloat32, {1}, {label}), 10); });
  };
  CHECK(one(-1).says("label -1"));
  CHECK(one(2.5).says("label 2.5"));
  CHECK(one(std::nan("")).says("label nan"));
  const Caught steps = caught([] {
    check(tensor_of<int>(DType::kInt32, {2, 2}, {0, 1, 2, 7}), 3);
  });
  CHECK(steps.says("sample 1 has the label 7"));
}

TEST_CASE("check_ids: names the first sample whose id is no row and the rows that are needed") {
  const auto with_ids = [](HostTensor ids) {
    Dataset dataset;
    dataset.loc = place(2);
    dataset.num_samples = ids.shape()[0];
    dataset.inputs.push_back({"x", make_rows(std::move(ids))});
    check_ids(dataset, 0, 12, "e");
  };
  with_ids(tensor_of<int>(DType::kUInt8, {3}, {0, 11, 5}));
  with_ids(
      tensor_of<double>(DType::kFloat32, {4}, {-0.5, 11.75, 5, 0}));  // cut off, as Keras casts
  const Caught high = caught([&] {
    with_ids(tensor_of<int>(DType::kInt64, {3, 2}, {1, 2, 3, 12, 20, -1}));
  });
  CHECK(high.code == "E314");
  CHECK(high.exit_code == 3);
  CHECK(high.says("`x`: sample 1 has the id 12; `e` has the rows 0..11"));
  CHECK(high.says("2 more ids have no row"));
  CHECK(high.says("`input_dim: 21` gives `e` a row for the id 20"));
  const auto one = [&](double id, DType dtype) {
    return caught([&] { with_ids(tensor_of<double>(dtype, {1}, {id})); });
  };
  const Caught negative = one(-1, DType::kInt32);
  CHECK(negative.says("the id -1"));
  CHECK(negative.says("ids count from 0"));
  CHECK(one(12, DType::kFloat16).says("the id 12"));
  const Caught nan = one(std::nan(""), DType::kFloat32);
  CHECK(nan.says("the id nan"));
  CHECK_FALSE(nan.says("ids count from 0"));
  CHECK(one(3000000001, DType::kUInt32).says("the id 3000000001"));
}

TEST_CASE("sources: each class of the catalogue has a reader, each reader a class") {
  std::set<std::string> readers;
  for (const SourceReader& reader : kSourceReaders) {
    CHECK(readers.insert(reader.class_name).second);
  }
  const std::vector<std::string> declared = class_names(Category::kSource);
  CHECK(readers == std::set<std::string>(declared.begin(), declared.end()));
}

TEST_CASE("transforms: each class of the catalogue changes arrays") {
  for (const std::string& name : class_names(Category::kTransform)) {
    CAPTURE(name);
    if (transforms_columns({.class_name = name})) {
      CHECK(make_column_transform(default_object(Category::kTransform, name)) != nullptr);
      continue;
    }
    ConfigObject transform = default_object(Category::kTransform, name);
    if (changes_batches(transform)) {  // in the training step: batch_transforms_test.cc
      Dataset dataset;
      dataset.inputs.push_back({"x", make_rows(range(DType::kFloat32, {3, 2}))});
      const RowsPtr rows = dataset.inputs[0].rows;
      DataConfig data;
      data.transform = {transform};
      transform_dataset(dataset, data);
      CHECK(dataset.inputs[0].rows == rows);
      continue;
    }
    if (name == "MaskedLMMaskGenerator") {  // of a whole dataset
      transform.args["vocabulary_size"] = value(7);
      transform.args["mask_selection_rate"] = value(0.5);
      transform.args["mask_token_id"] = value(6);
      Dataset dataset;
      dataset.inputs.push_back({"x", make_rows(range(DType::kInt32, {3, 2}))});
      DataConfig data;
      data.transform = {transform};
      transform_dataset(dataset, data);
      CHECK(dataset.inputs.size() == 2);
      CHECK(dataset.targets.at(0).rows->shape() == Shape{3, 1});
      continue;
    }
    for (const Spec& arg : find_class(Category::kTransform, name)->args) {
      if (arg.is_required) {
        transform.args[arg.name] = arg.kind == ValueKind::kShape ? list_value({2, 1}) : value(2.0);
      }
    }
    CHECK(apply_transform(transform, make_rows(range(DType::kFloat32, {3, 2})), "x")->size() == 3);
  }
}

TEST_CASE("split_validation: the last samples as Keras takes them") {
  for (const auto& [n, split, train] : {std::tuple(10, 0.2, 8), std::tuple(10, 0.25, 7),
                                        std::tuple(7, 0.5, 3), std::tuple(60000, 0.1, 54000)}) {
    Dataset dataset = labelled(range(DType::kInt32, {n}));
    dataset.sample_weight = make_rows(range(DType::kFloat32, {n}));
    const auto [first, last] = split_validation(dataset, split, place(3));
    CHECK(first.num_samples == train);
    CHECK(last.num_samples == n - train);
    CHECK(first.targets[0].rows->shape()[0] == train);
    CHECK(whole(last.targets[0].rows).at(0) == train);
    CHECK(whole(last.sample_weight).at(0) == train);
  }
  for (const double split : {0.0, 1.0, 0.9999}) {
    const Caught error =
        caught([&] { split_validation(labelled(range(DType::kInt32, {2})), split, place(3)); });
    CHECK(error.code == "E316");
    CHECK(error.says("test.yaml:3:3"));
  }
}

TEST_CASE("draw_split: disjoint parts that hold all samples, each class in proportion") {
  HostTensor labels(DType::kInt32, {100});
  for (int64_t i = 0; i < 100; ++i) {
    labels.set(i, i < 80 ? 0 : 1);
  }
  Dataset dataset = labelled(std::move(labels));
  dataset.sample_weight = make_rows(range(DType::kFloat32, {100}));  // the number of the sample
  SplitConfig split;
  split.validation = {0.2, place(3)};
  split.test = {0.1, place(3)};
  split.stratify.value = "label";
  const auto samples_of = [&](int64_t seed) {
    std::vector<std::vector<double>> parts;
    for (const std::vector<int64_t>& rows : draw_split(dataset, split, seed)) {
      const Dataset part = select_samples(dataset, rows);
      const HostTensor x = whole(part.sample_weight), y = whole(part.targets[0].rows);
      parts.emplace_back();
      int64_t ones = 0;
      for (int64_t i = 0; i < part.num_samples; ++i) {
        parts.back().push_back(x.at(i));
        ones += static_cast<int64_t>(y.at(i));
      }
      CHECK(5 * ones == part.num_samples);
      CHECK(std::is_sorted(parts.back().begin(), parts.back().end()));
    }
    return parts;
  };
  const auto parts = samples_of(1);
  std::set<double> all;
  for (const auto& part : parts) {
    all.insert(part.begin(), part.end());
  }
  CHECK(all.size() == 100);
  CHECK(parts[1].size() == 20);
  CHECK(parts[2].size() == 10);
  CHECK(samples_of(1) == parts);
  CHECK(samples_of(2) != parts);
  split.seed.value = 1;
  CHECK(samples_of(2) == parts);
  split.validation.value = 0.001;
  CHECK(caught([&] { draw_split(dataset, split, 1); }).code == "E316");
}

TEST_CASE("draw_split: parts of many small classes have the size that was asked for") {
  HostTensor labels(DType::kInt32, {222});  // 101 classes of two samples, one of 20
  for (int64_t i = 0; i < 222; ++i) {
    labels.set(i, i < 202 ? static_cast<double>(i / 2) : 101);
  }
  const Dataset dataset = labelled(std::move(labels));
  SplitConfig split;
  split.validation = {0.2, place(3)};
  split.test = {0.2, place(3)};
  split.stratify.value = "label";
  const SplitRows parts = draw_split(dataset, split, 1);
  CHECK(parts[1].size() == 44);
  CHECK(parts[2].size() == 44);
  std::set<int64_t> trained;
  for (const int64_t row : parts[0]) {
    trained.insert(row < 202 ? row / 2 : 101);
  }
  CHECK(trained.size() == 102);
}

TEST_CASE("rows are read in the order given") {
  const RowsPtr from = make_rows(range(DType::kFloat32, {4, 2}));
  float to[6] = {};
  from->read(std::vector<int64_t>{3, 0, 3}, reinterpret_cast<std::byte*>(to));
  CHECK(std::vector<float>(to, to + 6) == std::vector<float>{6, 7, 0, 1, 6, 7});
  CHECK_THROWS_AS(from->read(std::vector<int64_t>{4}, reinterpret_cast<std::byte*>(to)),
                  InternalError);
}

TEST_CASE("load_dataset: the genuine MNIST test images") {
  const char* given = std::getenv("MESHTRAIN_DATA");
  const std::string folder = given != nullptr ? given : MESHTRAIN_SOURCE_DIR "/../shared/datasets";
  if (!std::filesystem::exists(folder + "/t10k-images-idx3-ubyte.gz")) {
    MESSAGE("skipped: no MNIST in " << folder);
    return;
  }
  DataConfig data;
  data.base_dir = folder;
  const ConfigObject source = object("idx", {{"images", value("t10k-images-idx3-ubyte.gz")},
                                             {"labels", value("t10k-labels-idx1-ubyte.gz")}});
  Dataset dataset = load_dataset(source, data);
  CHECK(dataset.inputs[0].rows->shape() == Shape{10000, 28, 28, 1});
  CHECK(dataset.inputs[0].rows->dtype() == DType::kUInt8);
  check_labels(dataset, 0, 10);
  const HostTensor labels = whole(dataset.targets[0].rows);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 10000; ++i) {
    ++counts[static_cast<size_t>(labels.at(i))];
  }
  CHECK(counts == std::vector<int>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});
  const ConfigObject exchanged = object("idx", {{"images", value("t10k-labels-idx1-ubyte.gz")},
                                                {"labels", value("t10k-images-idx3-ubyte.gz")}});
  const Caught error = caught([&] { load_dataset(exchanged, data); });
  CHECK(error.code == "E307");
  CHECK(error.says("exchanged"));
}

}  // namespace
}  // namespace meshtrain
