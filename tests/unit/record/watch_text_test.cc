// What `watch` draws: no row is wider than the terminal, each value is where it belongs.
#include "record/watch_text.h"

#include <doctest/doctest.h>

#include <cmath>

#include "base/columns.h"
#include "base/text.h"

namespace meshtrain {
namespace {

RunRecord run_of(const std::string& folder, int epochs, double slope) {
  RunRecord run;
  run.folder = "runs/" + folder;
  run.name = "a_name_of_some_length";
  run.sessions.push_back({.epochs = 10, .monitor = "val_loss"});
  for (int i = 1; i <= epochs; ++i) {
    run.epochs.push_back({.epoch = i,
                          .steps = 4,
                          .seconds = 2,
                          .ms_per_step = 3,
                          .logs = {{"loss", 5 - slope * i}, {"mae", i * 0.1}, {"val_loss", 5.5}}});
  }
  return run;
}

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows = split(text, '\n');
  CHECK(rows.back() == "");
  rows.pop_back();
  return rows;
}

}  // namespace

TEST_CASE("no row is wider than the terminal, and all rows fit") {
  for (const int columns : {20, 29, 30, 40, 80, 120, 200}) {
    for (const int rows : {10, 24, 60}) {
      for (const bool color : {false, true}) {
        for (const int epochs : {0, 1, 7}) {
          const std::vector<RunRecord> runs = {run_of("a", epochs, 0.1), run_of("b", epochs, -1)};
          const auto lines =
              rows_of(watch_text(runs, {.columns = columns, .rows = rows, .color = color}));
          CAPTURE(columns);
          CAPTURE(epochs);
          for (const std::string& line : lines)
            CHECK(visible_width(line) < static_cast<size_t>(columns));
          CHECK(static_cast<int>(lines.size()) < std::max(rows, 2 + 2 * 6 + 1));
          CHECK((lines.size() > 2) == (columns >= 30 && epochs > 0));
        }
      }
    }
  }
}

TEST_CASE("a straight line falls from the first column to the last") {
  const auto lines = rows_of(watch_text({run_of("a", 5, 1)}, {.columns = 61, .logs = {"loss"}}));
  CHECK(lines[0] == "epoch 5/10  running  a_name_of_some_length a  3 ms/step  bes");
  CHECK(lines[1] == "loss   o loss 0   x val_loss 5.5");
  CHECK(lines[2] == "      5.5 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
  CHECK(lines[13].substr(0, 10) == "        0 ");
  CHECK(lines[13].back() == 'o');
  CHECK(lines[14] == "          epoch 1" + std::string(42, ' ') + "5");
  const std::string colored =
      watch_text({run_of("a", 5, 1)}, {.columns = 61, .color = true, .logs = {"loss"}});
  CHECK(colored.find("\x1b[33m\xe2\xa0\x89\x1b[0m") != std::string::npos);  // the top two dots
}

TEST_CASE("series: NaN is a gap, logged steps lie between epochs, several runs have their names") {
  RunRecord run = run_of("a", 3, 1);
  run.epochs[1].logs[0].second = NAN;
  auto series = watch_series({run}, "loss");
  REQUIRE(series.size() == 2);
  CHECK(series[0].points == std::vector<std::pair<double, double>>{{1, 4}, {3, 2}});
  CHECK(series[1].label == "val_loss");
  run.steps = {{1, 2, 9}, {1, 4, 8}, {2, 2, 7}};
  CHECK(watch_series({run}, "loss")[0].points ==
        std::vector<std::pair<double, double>>{{0.5, 9}, {1, 8}, {1.5, 7}});
  series = watch_series({run, run_of("b", 1, 1)}, "mae");
  REQUIRE(series.size() == 2);
  CHECK(series[1].label == "a_name_of_some_length b");
  CHECK(watch_series({run}, "none").empty());
}

TEST_CASE("the row of an epoch, and how a run ended") {
  RunRecord run = run_of("a", 2, 1);
  CHECK(epoch_row(run, 1) == "epoch 2/10 - 2.0 s - loss: 3.0000 - mae: 0.2000 - val_loss: 5.5000");
  CHECK(watch_text({run}, {.is_alive = false}).rfind("epoch 2/10  no end recorded  ", 0) == 0);
  run.sessions.back().exit_code = 0;
  CHECK(watch_text({run}, {}).rfind("epoch 2/10  finished  ", 0) == 0);
}

}  // namespace meshtrain
