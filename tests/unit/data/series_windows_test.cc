#include "data/series_windows.h"

#include <doctest/doctest.h>

#include <random>

#include "source_config.h"
#include "support/malformed.h"

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

}  // namespace
}  // namespace meshtrain
