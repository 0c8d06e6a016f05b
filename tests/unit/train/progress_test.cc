// Examples printed by Keras 3.16 itself under a controlled clock.
#include "record/progress.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace meshtrain {
namespace {

// A Progbar under a clock that the test moves; `take` returns what was written since the last call.
struct Screen {
  double now = 100;
  std::string out;

  Progbar bar(int64_t target, int verbose) {
    return Progbar(
        target, verbose, [this] { return now; }, [this](std::string_view text) { out += text; });
  }
  std::string take() { return std::exchange(out, {}); }
};

std::string blocks(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += "\xe2\x94\x81";
  }
  return out;
}
std::string back(int count) {
  return std::string(static_cast<size_t>(count), '\b');
}

Logs logs(double accuracy, double loss) {
  return {{"accuracy", accuracy}, {"loss", loss}};
}
std::function<Logs()> gives(Logs values) {
  return [values = std::move(values)] { return values; };
}

TEST_CASE("three steps of 0.2 s are drawn as Keras draws them") {
  Screen screen;
  Progbar bar = screen.bar(3, 1);
  const double accuracy[] = {0.1, 0.3, 0.5};
  const double loss[] = {2.5, 1.25, 0.8333};
  const std::string expected[] = {
      "\r\x1b[1m1/3\x1b[0m \x1b[32m" + blocks(6) + "\x1b[0m\x1b[37m" + blocks(14) +
          "\x1b[0m \x1b[1m0s\x1b[0m 200ms/step - accuracy: 0.1000 - loss: 2.5000",
      back(72) + "\r\x1b[1m2/3\x1b[0m \x1b[32m" + blocks(13) + "\x1b[0m\x1b[37m" + blocks(7) +
          "\x1b[0m \x1b[1m0s\x1b[0m 200ms/step - accuracy: 0.3000 - loss: 1.2500",
      back(72) + "\r\x1b[1m3/3\x1b[0m \x1b[32m" + blocks(20) +
          "\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 200ms/step - accuracy: 0.5000 - loss: 0.8333"};
  for (int step = 0; step < 3; ++step) {
    screen.now += 0.2;
    bar.update(step + 1, gives(logs(accuracy[step], loss[step])));
    CHECK(screen.take() == expected[step]);
  }
  bar.finish(3, logs(0.5, 0.8333));
  CHECK(
      screen.take() ==
      back(72) + "\r\x1b[1m3/3\x1b[0m \x1b[32m" + blocks(20) +
          "\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 200ms/step - accuracy: 0.5000 - loss: 0.8333\n");
}

TEST_CASE("a slow first step is left out of the time per step and fast steps are not drawn") {
  Screen screen;
  Progbar bar = screen.bar(3, 1);
  screen.now = 103;
  bar.update(1, gives(logs(0.1, 2.5)));
  CHECK(screen.take() == "\r\x1b[1m1/3\x1b[0m \x1b[32m" + blocks(6) + "\x1b[0m\x1b[37m" +
                             blocks(14) +
                             "\x1b[0m \x1b[1m6s\x1b[0m 3s/step - accuracy: 0.1000 - loss: 2.5000");
  int asked = 0;
  const auto count = [&] {
    ++asked;
    return logs(0.3, 1.25);
  };
  screen.now = 103.012;
  bar.update(2, count);
  screen.now = 103.024;
  bar.update(3, count);
  CHECK(screen.take().empty());
  CHECK(asked == 0);
  screen.now = 103.524;  // validation took half a second
  Logs all = logs(0.5, 0.8333);
  all.emplace_back("val_accuracy", 5e-4);
  all.emplace_back("val_loss", 0.7);
  bar.finish(3, all);
  CHECK(screen.take() ==
        back(69) + "\r\x1b[1m3/3\x1b[0m \x1b[32m" + blocks(20) +
            "\x1b[0m\x1b[37m\x1b[0m \x1b[1m4s\x1b[0m 262ms/step - accuracy: 0.5000 - loss: 0.8333"
            " - val_accuracy: 5.0000e-04 - val_loss: 0.7000\n");
}

TEST_CASE("the first step counts when it was drawn or skipped but not when it never came") {
  Screen screen;
  Progbar bar = screen.bar(4, 1);
  screen.now += 1;
  bar.update(2, gives({}));  // t = 1 s / 2
  CHECK(screen.take().find("500ms/step") != std::string::npos);
  screen.now += 1;
  bar.update(4, gives({}));  // t = 2 s / 4
  CHECK(screen.take().find("500ms/step") != std::string::npos);
}

TEST_CASE("remaining hours and minutes are written with colons") {
  Screen screen;
  Progbar hours = screen.bar(1000, 1);
  screen.now += 7.3;
  hours.update(1, gives({{"loss", -0.5}}));
  CHECK(screen.take() == "\r\x1b[1m   1/1000\x1b[0m \x1b[37m" + blocks(20) +
                             "\x1b[0m \x1b[1m2:01:32\x1b[0m 7s/step - loss: -0.5000");
  Progbar minutes = screen.bar(12, 1);
  screen.now += 8;
  minutes.update(1, gives({{"loss", 1e-5}}));
  CHECK(screen.take() == "\r\x1b[1m 1/12\x1b[0m \x1b[32m" + blocks(1) + "\x1b[0m\x1b[37m" +
                             blocks(19) + "\x1b[0m \x1b[1m1:28\x1b[0m 8s/step - loss: 1.0000e-05");
}

TEST_CASE("steps of 12 microseconds are drawn twenty times a second") {
  Screen screen;
  screen.now = 0;
  Progbar bar = screen.bar(60000, 1);
  screen.now = 12.3e-6;
  bar.update(1, gives({{"loss", 12345.678}}));
  CHECK(screen.take() == "\r\x1b[1m    1/60000\x1b[0m \x1b[37m" + blocks(20) +
                             "\x1b[0m \x1b[1m0s\x1b[0m 12us/step - loss: 12345.6780");
  int64_t next = 0;
  for (int64_t step = 2; step <= 60000 && next == 0; ++step) {
    screen.now = 12.3e-6 * static_cast<double>(step);
    bar.update(step, gives({{"loss", 1.0}}));
    next = screen.out.empty() ? 0 : step;
  }
  CHECK(next == 4067);
}

TEST_CASE("an unknown length becomes known at the end of the epoch") {
  Screen screen;
  Progbar bar = screen.bar(0, 1);
  screen.now += 0.2;
  bar.update(1, gives(logs(0.1, 2.5)));
  CHECK(screen.take() ==
        "\r      1/Unknown \x1b[1m0s\x1b[0m 200ms/step - accuracy: 0.1000 - loss: 2.5000");
  screen.now += 0.2;
  bar.update(2, gives(logs(0.3, 1.25)));
  screen.take();
  bar.finish(2, logs(0.3, 1.25));
  const std::string final = screen.take();
  CHECK(final.find("\x1b[1m2/2\x1b[0m \x1b[32m" + blocks(20)) != std::string::npos);
  CHECK(final.back() == '\n');
}

TEST_CASE("verbose 2 is one line that counts every second of the epoch") {
  Screen screen;
  Progbar bar = screen.bar(3, 2);
  for (int step = 1; step <= 3; ++step) {
    screen.now = step == 1 ? 103 : 103.012 + 0.012 * (step - 2);
    bar.update(step, gives(logs(0.1, 2.5)));
  }
  CHECK(screen.take().empty());
  screen.now = 103.524;
  Logs all = logs(0.5, 0.8333);
  all.emplace_back("val_accuracy", 5e-4);
  all.emplace_back("val_loss", 0.7);
  bar.finish(3, all);
  CHECK(screen.take() ==
        "3/3 - 4s - 1s/step - accuracy: 0.5000 - loss: 0.8333 - val_accuracy: 5.0000e-04"
        " - val_loss: 0.7000\n");
}

const Logs kOddValues = {{"a", std::nan("")},
                         {"b", std::numeric_limits<double>::infinity()},
                         {"c", 0},
                         {"d", -0.5},
                         {"e", 1e-3},
                         {"f", 1.0001e-3},
                         {"g", 1e10}};

TEST_CASE("odd values are written as Python writes them") {
  Screen screen;
  Progbar line = screen.bar(1, 2);
  screen.now += 0.2;
  line.finish(1, kOddValues);
  CHECK(screen.take() ==
        "1/1 - 0s - 200ms/step - a: nan - b: inf - c: 0.0000e+00 - d: -5.0000e-01 - e: 1.0000e-03"
        " - f: 0.0010 - g: 10000000000.0000\n");
  Progbar bar = screen.bar(1, 1);
  screen.now += 0.2;
  bar.finish(1, kOddValues);
  CHECK(screen.take() == "\r\x1b[1m1/1\x1b[0m \x1b[32m" + blocks(20) +
                             "\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 200ms/step - a: nan - b: inf"
                             " - c: 0.0000e+00 - d: -0.5000 - e: 1.0000e-03 - f: 0.0010"
                             " - g: 10000000000.0000\n");
  CHECK(progress_number(-std::nan(""), true) == "nan");
}

TEST_CASE("evaluate and predict use the same lines") {
  Screen screen;
  Progbar evaluate = screen.bar(3, 2);
  screen.now += 0.6;
  evaluate.finish(3, logs(0.5, 0.8333));
  CHECK(screen.take() == "3/3 - 1s - 200ms/step - accuracy: 0.5000 - loss: 0.8333\n");
  Progbar predict_line = screen.bar(2, 2);
  screen.now += 0.4;
  predict_line.finish(2, {});
  CHECK(screen.take() == "2/2 - 0s - 200ms/step\n");
  Progbar predict = screen.bar(2, 1);
  screen.now += 0.4;
  predict.finish(2, {});
  CHECK(screen.take() == "\r\x1b[1m2/2\x1b[0m \x1b[32m" + blocks(20) +
                             "\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 200ms/step\n");
}

TEST_CASE("a shorter drawing is padded to the width of the one before") {
  Screen screen;
  Progbar bar = screen.bar(2, 1);
  screen.now += 100;
  bar.update(1, gives({{"loss", 12345.678}}));
  const std::string first = screen.take();  // ... 1:40 100s/step - loss: 12345.6780
  screen.now += 1;
  bar.finish(2, {{"loss", 1}});  // ... 101s 1s/step - loss: 1.0000
  const std::string second = screen.take();
  CHECK(first.find("1:40\x1b[0m 100s/step - loss: 12345.6780") != std::string::npos);
  CHECK(second.substr(second.size() - 14) == " 1.0000" + std::string(6, ' ') + "\n");
}

TEST_CASE("verbose 0 writes nothing") {
  Screen screen;
  Progbar bar = screen.bar(2, 0);
  screen.now += 1;
  bar.update(1, gives(logs(0.5, 1)));
  bar.finish(2, logs(0.5, 1));
  CHECK(screen.take().empty());
}

TEST_CASE("data that ran out before the target still shows the target") {
  Screen screen;
  Progbar bar = screen.bar(3, 2);
  screen.now += 0.6;
  bar.finish(2, {{"loss", 1}});
  CHECK(screen.take() == "3/3 - 1s - 200ms/step - loss: 1.0000\n");
}

TEST_CASE("erase blanks the columns of the drawing") {
  Screen screen;
  Progbar bar = screen.bar(3, 1);
  bar.erase();
  CHECK(screen.take().empty());
  screen.now += 0.2;
  bar.update(1, gives(logs(0.1, 2.5)));
  screen.take();
  bar.erase();
  CHECK(screen.take() == "\r" + std::string(72, ' ') + "\r");
}

TEST_CASE("an epoch whose steps were all done before the run was resumed has no times") {
  std::string written;
  Progbar bar(
      3, 2, [] { return 7.0; }, [&](std::string_view text) { written += text; }, 11);
  bar.finish(3, {{"loss", 0.5}});
  CHECK(written == "3/3 - no step left - loss: 0.5000\n");
}

}  // namespace
}  // namespace meshtrain
