#include "record/console.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "fake_runner.h"
#include "record/events.h"
#include "record/run_info.h"

namespace meshtrain {
namespace {

// A console between two streams that are strings; each step takes `step_seconds`.
struct Terminal {
  double now = 0;
  double step_seconds = 0.2;
  std::string out, err;

  ConsoleOptions options() {
    ConsoleOptions options;
    options.now = [this] { return now; };
    options.out = [this](std::string_view text) { out += text; };
    options.err = [this](std::string_view text) { err += text; };
    return options;
  }
  // Two epochs of two steps, then an evaluation.
  void run(ConsoleOptions options) {
    Console console(std::move(options));
    FakeRunner runner;
    for (int64_t epoch = 1; epoch <= 2; ++epoch) {
      console.on_epoch_begin({.epoch = epoch - 1, .epochs = 2, .steps = 2});
      for (int64_t step = 1; step <= 2; ++step) {
        now += step_seconds;
        console.on_train_step({.epoch = epoch - 1, .batch = step}, runner);
      }
      EpochReport report = {.epoch = epoch, .epochs = 2, .steps = 2, .logs = runner.logs()};
      console.on_epoch_end(report);
    }
    console.on_pass_begin({.steps = 1});
    now += step_seconds;
    console.on_pass_end({.step = 1, .steps = 1}, {.steps = 1, .logs = {{"loss", 0.25}}});
    console.finish();
  }
};

const std::string kEpochLine = "2/2 - 0s - 200ms/step - accuracy: 0.5000 - loss: 0.0000e+00\n";
const std::string kEvaluateLine = "1/1 - 0s - 200ms/step - loss: 0.2500\n";
const std::string kRecord = "Epoch 1/2\n" + kEpochLine + "Epoch 2/2\n" + kEpochLine + kEvaluateLine;

TEST_CASE("without a terminal the record is Keras' verbose 2 and stderr stays empty") {
  Terminal terminal;
  terminal.run(terminal.options());
  CHECK(terminal.out == kRecord);
  CHECK(terminal.err.empty());
}

// "━━━"
std::string bar_blocks(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += "\u2501";
  }
  return out;
}

TEST_CASE("on a terminal a bar moves on stderr and Keras' full bar stays in its place") {
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.stdout_is_terminal = options.stderr_is_terminal = true;
  terminal.run(options);
  const std::string bar = "\r\x1b[1m2/2\x1b[0m \x1b[32m" + bar_blocks(20) +
                          "\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 200ms/step - accuracy: 0.5000 - "
                          "loss: 0.0000e+00\n";
  CHECK(terminal.out.find("Epoch 1/2\n" + bar + "Epoch 2/2\n" + bar) == 0);
  CHECK(terminal.err.find("\r\x1b[?7l\x1b[1m0/2\x1b[0m \x1b[37m") == 0);
  CHECK(terminal.err.find("first step") != std::string::npos);
  CHECK(terminal.err.find("(all ") != std::string::npos);
  CHECK(terminal.err.find('\n') == std::string::npos);
  CHECK(terminal.err.ends_with("\r \x1b[J\r"));  // the bar is taken away
}

TEST_CASE("a moving bar has one row at any width") {
  for (int columns = 1; columns <= 200; ++columns) {
    double now = 0;
    std::string text;
    MovingBar bar("validation", 1000, 0,
                  {[&] { return now; }, [&](std::string_view part) { text += part; },
                   [&] { return columns; }, false, true});
    const Logs logs = {{"a_long_name_of_an_output_accuracy", 0.5}, {"loss", 1}, {"other_loss", 2}};
    now = 1;
    bar.update(500, 60.0, [&] { return logs; });
    const size_t begin = text.find('l') + 1;
    const std::string line = text.substr(begin, text.find('\x1b', begin) - begin);
    CHECK(static_cast<int>(visible_width(line)) < std::max(columns, 4));
    CHECK(line.find(columns < 10 ? "5" : "500/1000") != std::string::npos);
    if (columns > 150) {
      CHECK(line.find("(all 1:01)") != std::string::npos);
      CHECK(line.find("other_loss: 2.0000") != std::string::npos);
    }
  }
}

TEST_CASE("a bar never wraps and is behind the cursor") {
  double now = 0;
  std::string text;
  {
    MovingBar bar("", 10, 0,
                  {[&] { return now; }, [&](std::string_view part) { text += part; },
                   [] { return 100; }, false, true});
    for (now = 1; now < 3; ++now) {
      text.clear();
      bar.update(5, {}, [] { return Logs{{"loss", 0.5}}; });
      CHECK(text.find("\r\x1b[?7l 5/10 ") == 0);
      CHECK(text.ends_with("\x1b[J\r\x1b[?7h"));
    }
    text.clear();
  }
  CHECK(text == "\r \x1b[J\r");
}

TEST_CASE("with stdout in a pipe nothing but the moving bar is on the terminal") {
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.stderr_is_terminal = options.stdout_is_pipe = true;
  terminal.run(options);
  CHECK(terminal.out == kRecord);
  CHECK(terminal.err.find("Epoch") == std::string::npos);
  CHECK(terminal.err.find('\n') == std::string::npos);
}

TEST_CASE("an epoch that is resumed is timed by its steps since then") {
  Terminal terminal;
  Console console(terminal.options());
  FakeRunner runner;
  console.on_epoch_begin({.epochs = 1, .steps = 100, .is_resumed = true, .done = 98});
  for (int64_t step = 99; step <= 100; ++step) {
    terminal.now += 0.2;
    console.on_train_step({.batch = step}, runner);
  }
  EpochReport report = {.epoch = 1, .epochs = 1, .steps = 100, .logs = {}};
  console.on_epoch_end(report);
  CHECK(terminal.out == "100/100 - 0s - 200ms/step\n");
}

TEST_CASE("a callback's text goes to the record and a moving bar makes room for it") {
  const auto said = [](ConsoleOptions options) {
    Console console(std::move(options));
    const FakeRunner runner;
    console.on_epoch_begin({.epochs = 2, .steps = 2});
    console.on_train_step({.batch = 1}, runner);
    console.print("\nEpoch 1: saving model to a.keras\n");
    console.finish();
  };
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.stderr_is_terminal = true;
  said(options);
  CHECK(terminal.out == "Epoch 1/2\n\nEpoch 1: saving model to a.keras\n");
  CHECK(terminal.err.ends_with("\r \x1b[J\r"));
  Terminal bar;
  options = bar.options();
  options.verbosity = Verbosity::kBar;
  said(options);  // Keras' bar is in the record, and stays where it is
  CHECK(bar.out.find("loss: 0.0000e+00\nEpoch 1: saving model to a.keras\n") != std::string::npos);
  Terminal json;
  options = json.options();
  options.format = LogFormat::kJson;
  said(options);
  CHECK(json.out.empty());
  CHECK(json.err.find("saving model") != std::string::npos);
  Terminal quiet;
  options = quiet.options();
  options.quiet = true;
  said(options);
  CHECK(quiet.out.find("saving model") == std::string::npos);
  CHECK(quiet.err.empty());
}

TEST_CASE("with stdout in a file the terminal keeps its headers and finished bars") {
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.stderr_is_terminal = true;
  options.color = options.has_escapes = false;
  terminal.run(options);
  CHECK(terminal.out == kRecord);
  CHECK(terminal.err.find("Epoch 1/2\n\r0/2 ") == 0);
  CHECK(terminal.err.find("\r2/2 " + bar_blocks(20) + " 0s 200ms/step") != std::string::npos);
  CHECK(terminal.err.find('\x1b') == std::string::npos);
  CHECK(terminal.err.find("Epoch 2/2\n") != std::string::npos);
}

TEST_CASE("verbose 1 puts the bytes of Keras on stdout whatever it is") {
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.verbosity = Verbosity::kBar;
  terminal.run(options);
  CHECK(terminal.out.find("Epoch 1/2\n\r\x1b[1m1/2\x1b[0m \x1b[32m") == 0);
  CHECK(terminal.err.empty());
}

TEST_CASE("verbose 0 and json leave stdout to others") {
  Terminal silent;
  ConsoleOptions options = silent.options();
  options.verbosity = Verbosity::kSilent;
  silent.run(options);
  CHECK(silent.out.empty());
  Terminal json;
  options = json.options();
  options.format = LogFormat::kJson;
  json.run(options);
  CHECK(json.out.empty());
}

TEST_CASE("quiet prints the final result only") {
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.quiet = true;
  options.stderr_is_terminal = true;
  terminal.run(options);
  CHECK(terminal.out == kEvaluateLine);
  CHECK(terminal.err.empty());
}

TEST_CASE("plain is one line per epoch") {
  Terminal terminal;
  ConsoleOptions options = terminal.options();
  options.format = LogFormat::kPlain;
  terminal.run(options);
  CHECK(terminal.out ==
        "Epoch 1/2 - " + kEpochLine + "Epoch 2/2 - " + kEpochLine + "Evaluate - " + kEvaluateLine);
}

TEST_CASE("long epochs give a sign of life every minute where there is no terminal") {
  Terminal terminal;
  terminal.step_seconds = 40;
  terminal.run(terminal.options());
  CHECK(terminal.err ==
        "Epoch 1/2, step 2/2 after 80s - accuracy: 0.5000 - loss: 0.0000e+00\n"
        "Epoch 2/2, step 2/2 after 80s - accuracy: 0.5000 - loss: 0.0000e+00\n");
}

TEST_CASE("events keep every digit and write what JSON cannot as null") {
  std::vector<std::string> lines;
  EventLog events(false, true);
  events.add_sink([&](std::string_view line) { lines.emplace_back(line); });
  RunInfo info;
  info.name = "a \"b\"";
  info.mesh_shape = {2, 4};
  info.axis_names = {"data", "model"};
  events.start(info);
  EpochReport report = {.epoch = 1,
                        .epochs = 1,
                        .steps = 4,
                        .timed_steps = 4,
                        .seconds = 3,
                        .train_seconds = 2,
                        .logs = {{"loss", 0.1}, {"val_loss", std::nan("")}}};
  events.on_epoch_end(report);
  report.scheduled_rate = 1e-3;
  events.on_epoch_end(report);
  events.on_pass_end({.step = 2, .steps = 2},
                     {.steps = 2, .seconds = 0.5, .logs = {{"loss", 1e-20}}});
  events.end(0);
  events.end(5, "bad\n");
  CHECK(lines[0].find(R"({"event":"start","version":"")") == 0);
  CHECK(lines[0].find(R"("name":"a \"b\"")") != std::string::npos);
  CHECK(lines[0].find(R"("mesh":{"shape":[2,4],"axis_names":["data","model"]})") !=
        std::string::npos);
  CHECK(lines[1] ==
        R"({"event":"epoch","epoch":1,"steps":4,"seconds":3.000000,"ms_per_step":500.000000,)"
        R"("logs":{"loss":0.1,"val_loss":null}})");
  CHECK(lines[2].find(R"("ms_per_step":500.000000,"learning_rate":0.001,"logs":{)") !=
        std::string::npos);
  CHECK(lines[3] == R"({"event":"evaluate","steps":2,"seconds":0.500000,"logs":{"loss":1e-20}})");
  CHECK(lines[4] == R"({"event":"end","exit_code":0})");
  CHECK(lines[5] == R"({"event":"end","exit_code":5,"message":"bad\n"})");
}

TEST_CASE("the first screen is seven lines and one more when a run resumes") {
  RunInfo info;
  info.version = "0.1.0";
  info.config = "mlp.yaml";
  info.run_dir = "runs/mlp/1";
  info.mesh_shape = {2, 4};
  info.axis_names = {"data", "model"};
  info.devices = "8 x cpu (virtual) on 2 threads";
  info.batch_size = 128;
  info.batch_axis = "data";
  info.batch_shards = 2;
  info.steps_per_epoch = 469;
  info.parameters = 159010;
  info.parameter_bytes = 636040;
  info.bytes_per_device = 165000;
  info.saves = "every epoch, the newest 3 are kept";
  CHECK(first_screen(info) ==
        "meshtrain 0.1.0  mlp.yaml\n"
        "mesh        2 x 4  data=2 model=4\n"
        "devices     8 x cpu (virtual) on 2 threads\n"
        "batch       128 = 64 on each of 2 along `data`; 469 steps an epoch\n"
        "parameters  159,010 (621 KiB); 161 KiB of weights and optimizer state per device\n"
        "saves       every epoch, the newest 3 are kept\n"
        "run         runs/mlp/1\n");
  info.resumed_from = "runs/mlp/1/checkpoints/000500";
  info.resumed_at = "the beginning of epoch 2 (500 steps in all)";
  CHECK(first_screen(info).find("\nresumed     runs/mlp/1/checkpoints/000500: the beginning of "
                                "epoch 2 (500 steps in all)\n") != std::string::npos);
}

}  // namespace
}  // namespace meshtrain
