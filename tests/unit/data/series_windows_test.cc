#include "data/series_windows.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "source_config.h"
#include "support/malformed.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

using namespace test;

Dataset load_series(const TempFolder& folder, const Args& more) {
  Args args = {{"path", value("t.csv")}, {"label", value("b")}, {"features", null_value()}};
  args.insert(args.end(), more.begin(), more.end());
  DataConfig data;
  data.base_dir = folder.path();
  return load_dataset(object("csv", args), data);
}

std::vector<float> floats(const RowsPtr& rows) {
  const HostTensor tensor = whole(rows);
  std::vector<float> out;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    out.push_back(static_cast<float>(tensor.at(i)));
  }
  return out;
}
using Floats = std::vector<float>;

// Rows 0 1 2 ... of a, 100 + row of b, and weights 0.5 + row.
std::string rows_of_table(int rows) {
  std::string text = "a,b,w\n";
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("{},{},{}.5\n", i, 100 + i, i);
  }
  return text;
}

TEST_CASE("a window is rows in the order of time, its target the row behind it") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(6));
  const Args columns = {{"features", value(ConfigValue::List{value("a"), value("b")})},
                        {"sample_weight", value("w")},
                        {"sequence_length", value(3)}};
  const Dataset dataset = load_series(folder, columns);
  CHECK(dataset.num_samples == 3);
  CHECK(dataset.inputs[0].rows->shape() == Shape{3, 3, 2});
  CHECK(dataset.inputs[0].columns == std::vector<std::string>{"a", "b"});
  CHECK(floats(dataset.inputs[0].rows) ==
        Floats{0, 100, 1, 101, 2, 102, 1, 101, 2, 102, 3, 103, 2, 102, 3, 103, 4, 104});
  CHECK(dataset.targets[0].rows->shape() == Shape{3});
  CHECK(floats(dataset.targets[0].rows) == Floats{103, 104, 105});
  CHECK(floats(dataset.sample_weight) == Floats{3.5, 4.5, 5.5});
}

TEST_CASE("windows of any stride, rate, horizon and target are those of the formula") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(40));
  for (int trial = 0; trial < 40; ++trial) {
    const int length = 1 + below(6), stride = 1 + below(4), rate = 1 + below(3);
    const int horizon = below(5), steps = below(4);  // 0: a single row
    CAPTURE(trial);
    const Dataset dataset =
        load_series(folder, {{"features", value("a")},
                             {"sequence_length", value(length)},
                             {"sequence_stride", value(stride)},
                             {"sampling_rate", value(rate)},
                             {"horizon", value(horizon)},
                             {"target_length", steps == 0 ? null_value() : value(steps)}});
    Floats inputs, targets;
    int count = 0;
    for (int first = 0;; first += stride, ++count) {
      const int last = first + (length - 1) * rate;
      const int end = last + horizon + std::max(steps - 1, 0) * rate;
      if (std::max(last, end) >= 40) {
        break;
      }
      for (int k = 0; k < length; ++k) {
        inputs.push_back(static_cast<float>(first + k * rate));
      }
      for (int k = 0; k < std::max(steps, 1); ++k) {
        targets.push_back(static_cast<float>(100 + last + horizon + k * rate));
      }
    }
    CHECK(dataset.num_samples == count);
    CHECK(floats(dataset.inputs[0].rows) == inputs);
    CHECK(floats(dataset.targets[0].rows) == targets);
    CHECK(dataset.inputs[0].rows->shape() == Shape{count, length, 1});
    CHECK(dataset.targets[0].rows->shape() == (steps == 0 ? Shape{count} : Shape{count, steps}));
  }
}

TEST_CASE("slice counts rows; without targets windows reach the last row") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(10));
  const Dataset tail = load_series(
      folder, {{"slice", value("[4:]")}, {"features", value("a")}, {"sequence_length", value(4)}});
  CHECK(floats(tail.inputs[0].rows) == Floats{4, 5, 6, 7, 5, 6, 7, 8});
  CHECK(floats(tail.targets[0].rows) == Floats{108, 109});
  const Dataset open = load_series(folder, {{"label", null_value()},
                                            {"features", value("a")},
                                            {"sequence_length", value(4)},
                                            {"sequence_stride", value(3)}});
  CHECK(open.targets.empty());
  CHECK(floats(open.inputs[0].rows) == Floats{0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9});
}

TEST_CASE("y: x is the window itself, and with a horizon the rows behind it") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(6));
  const Args own = {{"label", null_value()},
                    {"features", value("a")},
                    {"y", value("x")},
                    {"sequence_length", value(4)}};
  const Dataset same = load_series(folder, own);
  CHECK(floats(same.targets[0].rows) == floats(same.inputs[0].rows));
  CHECK(same.num_samples == 3);
  Args later = own;
  later.push_back({"horizon", value(2)});
  const Dataset forecast = load_series(folder, later);
  CHECK(forecast.num_samples == 1);
  CHECK(floats(forecast.targets[0].rows) == Floats{5});
}

TEST_CASE("too few rows for a window are an error, but not at the beginning of a file") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(5));
  const Args args = {{"features", value("a")}, {"sequence_length", value(5)}};
  const Caught few = caught([&] { load_series(folder, args); });
  CHECK(few.code == "E316");
  CHECK(few.says("5 rows are too few for one window, which takes 6 with its target"));
  DataConfig data;
  data.base_dir = folder.path();
  const Dataset seen = load_dataset(object("csv", {{"path", value("t.csv")},
                                                   {"label", value("b")},
                                                   {"features", value("a")},
                                                   {"sequence_length", value(8)}}),
                                    data, nullptr, {.beginning = true});
  CHECK(seen.inputs[0].rows->shape() == Shape{1, 8, 1});
}

TEST_CASE("target: sequence gives each step the row `horizon` behind it, and its weight") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(12));
  for (const int horizon : {0, 1, 3}) {
    CAPTURE(horizon);
    const Dataset dataset =
        load_series(folder, {{"features", value("a")},
                             {"sample_weight", value("w")},
                             {"sequence_length", value(3)},
                             {"sequence_stride", value(2)},
                             {"sampling_rate", value(2)},
                             {"horizon", horizon == 1 ? null_value() : value(horizon)},
                             {"target", value("sequence")}});
    Floats targets, weights;
    int count = 0;
    for (int first = 0; first + 4 + horizon < 12; first += 2, ++count) {
      for (int k = 0; k < 3; ++k) {
        targets.push_back(static_cast<float>(100 + first + 2 * k + horizon));
        weights.push_back(static_cast<float>(first + 2 * k + horizon) + 0.5F);
      }
    }
    CHECK(dataset.inputs[0].rows->shape() == Shape{count, 3, 1});
    CHECK(dataset.targets[0].rows->shape() == Shape{count, 3});
    CHECK(dataset.sample_weight->shape() == Shape{count, 3});
    CHECK(floats(dataset.targets[0].rows) == targets);
    CHECK(floats(dataset.sample_weight) == weights);
  }
}

TEST_CASE("target: sequence of y: x is later rows of x, and needs to know how much later") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_table(6));
  Args own = {{"label", null_value()},
              {"features", value(ConfigValue::List{value("a"), value("b")})},
              {"y", value("x")},
              {"target", value("sequence")},
              {"sequence_length", value(4)}};
  const Caught unclear = caught([&] { load_series(folder, own); });
  CHECK(unclear.code == "E113");
  CHECK(unclear.says("`target: sequence` with `y: x` needs a `horizon`"));
  own.push_back({"horizon", value(1)});
  const Dataset forecast = load_series(folder, own);
  CHECK(forecast.targets[0].rows->shape() == Shape{2, 4, 2});
  CHECK(floats(forecast.targets[0].rows) ==
        Floats{1, 101, 2, 102, 3, 103, 4, 104, 2, 102, 3, 103, 4, 104, 5, 105});
}

// Rows of three stores in turn, of which `c` has two.
std::string rows_of_stores() {
  std::string text = "store,a,b,w\n";
  for (int i = 0; i < 10; ++i) {
    const char* const store = i == 4 || i == 9 ? "c" : i % 2 == 0 ? "a" : "7";
    text += fmt::format("{},{},{},{}\n", store, i, 100 + i, i);
  }
  return text;  // a: 0 2 6 8, 7: 1 3 5 7, c: 4 9
}

TEST_CASE("group: windows have rows of one group, in the order of their first rows") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_stores());
  const Args grouped = {{"features", null_value()},
                        {"sample_weight", value("w")},
                        {"group", value("store")},
                        {"sequence_length", value(2)}};
  const Dataset dataset = load_series(folder, grouped);
  CHECK(dataset.inputs[0].columns == std::vector<std::string>{"a"});
  CHECK(floats(dataset.inputs[0].rows) == Floats{0, 2, 1, 3, 2, 6, 3, 5});
  CHECK(floats(dataset.targets[0].rows) == Floats{106, 105, 108, 107});
  CHECK(floats(dataset.sample_weight) == Floats{6, 5, 8, 7});
  CHECK(dataset.description == "csv t.csv, 3 series (1 too short for a window) (4 samples)");
  REQUIRE(dataset.groups != nullptr);
  CHECK(dataset.groups->column == "store");
  CHECK(dataset.groups->names == std::vector<std::string>{"a", "7", "c"});
  CHECK(dataset.groups->ids == std::vector<int>{0, 1, 0, 1});

  Args longer = grouped;
  longer.back().second = value(4);
  const Caught few = caught([&] { load_series(folder, longer); });
  CHECK(few.code == "E316");
  CHECK(few.says("3 series: the longest has 4 rows, too few for one window, which takes 5"));

  Args sliced = grouped;
  sliced.push_back({"slice", value("[4:]")});  // a: 6 8, 7: 5 7, c: 4 9
  sliced.push_back({"label", null_value()});
  sliced.push_back({"features", value("a")});
  CHECK(floats(load_series(folder, sliced).inputs[0].rows) == Floats{4, 9, 5, 7, 6, 8});
}

TEST_CASE("group: a row without a group is an error") {
  const TempFolder folder;
  folder.write("t.csv", "store,a,b\nx,1,2\n,3,4\nx,5,6\n");
  const Caught none = caught([&] {
    load_series(folder, {{"group", value("store")}, {"sequence_length", value(1)}});
  });
  CHECK(none.code == "E311");
  CHECK(none.says("row 2 (line 3) column `store` is empty"));
}

TEST_CASE("missing: previous takes the value before, of labels that are features, within a group") {
  const TempFolder folder;
  folder.write("t.csv", "store,a,b\nx,1,10\ny,2,20\nx,,\ny,NA,21\nx,3,11\ny,4,\n");
  const Args series = {{"features", value(ConfigValue::List{value("a"), value("b")})},
                       {"missing", value("previous")},
                       {"group", value("store")},
                       {"sequence_length", value(3)},
                       {"horizon", value(0)},
                       {"target", value("sequence")}};
  const Dataset dataset = load_series(folder, series);
  CHECK(floats(dataset.inputs[0].rows) == Floats{1, 10, 1, 10, 3, 11, 2, 20, 2, 21, 4, 21});
  CHECK(floats(dataset.targets[0].rows) == Floats{10, 10, 11, 20, 21, 21});

  folder.write("t.csv", "store,a,b\nx,1,10\ny,,20\ny,,21\nx,,12\n");
  const Caught first = caught([&] { load_series(folder, series); });
  CHECK(first.code == "E311");
  CHECK(first.says(
      "row 2 (line 3) column `a` is empty, and no row before it has a value (and 1 more such"));

  folder.write("t.csv", "a,b\n1,10\n2,\n");
  const Caught label = caught([&] {
    load_series(
        folder,
        {{"missing", value("previous")}, {"features", value("a")}, {"sequence_length", value(1)}});
  });
  CHECK(label.code == "E311");
  CHECK(label.says("row 2 (line 3) column `b` is empty"));
  CHECK(label.says("nothing fills in labels"));
}

TEST_CASE("the rows of windows count as often as windows have them") {
  const TempFolder folder;
  folder.write("t.csv", rows_of_stores());
  std::mt19937 random(3);
  for (int trial = 0; trial < 30; ++trial) {
    CAPTURE(trial);
    const auto draw = [&](uint32_t n) { return value(static_cast<int>(1 + random() % n)); };
    const Dataset dataset =
        load_series(folder, {{"features", value("a")},
                             {"label", null_value()},
                             {"group", trial % 2 ? value("store") : null_value()},
                             {"sequence_length", draw(2)},
                             {"sequence_stride", draw(3)},
                             {"sampling_rate", draw(3)}});
    const int64_t begin = trial % 3 == 0 ? 0 : dataset.num_samples / 3;
    const RowsPtr part = slice_rows(dataset.inputs[0].rows, begin, dataset.num_samples);
    const std::optional<RowCounts> counted = part->row_counts(0, part->size());
    REQUIRE(counted);
    std::vector<int64_t> counts(10), expected(10);
    for (const float row : floats(part)) {
      ++expected[static_cast<size_t>(row)];
    }
    const Floats rows = floats(counted->rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      counts[static_cast<size_t>(rows[i])] = counted->counts[i];
    }
    CHECK(counts == expected);
  }
}

TEST_CASE("what is not finite in a series is a row") {
  const TempFolder folder;
  HostTensor x(DType::kFloat32, {6, 2});
  std::fill_n(x.data<float>(), 12, 0.0F);
  x.set(9, std::nan(""));
  write_npy(folder.file("x.npy"), x);
  DataConfig data;
  data.base_dir = folder.path();
  const Caught bad = caught([&] {
    load_dataset(object("npy", {{"x", value("x.npy")},
                                {"y", null_value()},
                                {"sample_weight", null_value()},
                                {"sequence_length", value(2)}}),
                 data);
  });
  CHECK(bad.code == "E315");
  CHECK(bad.says("`x`: row 4 feature 1 is NaN"));
}

}  // namespace
}  // namespace meshtrain
