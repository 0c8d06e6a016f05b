// The contracts of `meshtrain train`: streams, events, the run directory, exit codes, signals.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <regex>
#include <set>

#include "base/json.h"
#include "example.h"
#include "tensor/safetensors.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<Json> events_of(const std::string& text) {
  std::vector<Json> events;
  for (const std::string& line : lines_of(text)) {
    events.push_back(parse_json(line));
  }
  return events;
}

const std::string kMetrics = R"( - accuracy: \d\.\d{4}(e-\d\d)? - loss: \d\.\d{4}(e-\d\d)?)";
const std::string kTime = R"( - \d+s - \d+(us|ms|s)/step)";

TEST_CASE("stdout is the record of Keras' verbose 2 and stderr the first screen") {
  const ExampleFolder folder;
  const Result result = meshtrain({"train", "small.yaml", "-o", "run"}, folder.path());
  CHECK(result.exit_code == 0);
  const std::string line = "3/3" + kTime + kMetrics + "\n";
  const std::string evaluation = "2/2" + kTime + kMetrics + "\n";
  CHECK_MESSAGE(std::regex_match(result.out, std::regex("Epoch 1/2\n" + line + "Epoch 2/2\n" +
                                                        line + evaluation)),
                result.out);
  const std::vector<std::string> screen = lines_of(result.err);
  REQUIRE(screen.size() == 7);
  CHECK(screen[0].find("meshtrain ") == 0);
  CHECK(screen[1] == "mesh        2 x 2  data=2 model=2");
  CHECK(screen[3] == "batch       16 = 8 on each of 2 along `data`; 3 steps an epoch");
  CHECK(screen[5] == "saves       every epoch, the newest 3 are kept");
  CHECK(screen[6] == "run         run");
}

TEST_CASE("the run directory holds what was run and what came out") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "run.log_steps=true"}, folder.path())
              .exit_code == 0);
  CHECK(folder.read("run/config.yaml") == kExample);
  CHECK(folder.read("run/config.resolved.yaml").find("log_steps: true") != std::string::npos);
  CHECK(fs::exists(folder.file("run/checkpoints/000006/manifest.json")));
  CHECK(folder.read("run/plan.txt").find("d1/kernel") != std::string::npos);
  CHECK(parse_json(folder.read("run/plan.json")).contains("collectives"));
  const SafetensorsFile weights = read_safetensors(folder.file("run/weights.safetensors"));
  std::vector<std::string> names;
  for (const NamedTensor& weight : weights.tensors) {
    names.push_back(weight.name + " " + shape_string(weight.tensor.shape()));
  }
  CHECK(names == std::vector<std::string>{"d1/kernel (6, 8)", "d2/kernel (8, 3)", "d2/bias (3,)"});

  const std::vector<Json> events = events_of(folder.read("run/metrics.jsonl"));
  std::vector<std::string> order;
  for (const Json& event : events) {
    order.push_back(event.at("event"));
  }
  CHECK(order == std::vector<std::string>{"start", "step", "step", "step", "epoch", "step", "step",
                                          "step", "epoch", "evaluate", "end"});
  CHECK(events[0].at("mesh").at("shape") == Json({2, 2}));
  CHECK(events[2] ==
        Json({{"event", "step"}, {"epoch", 1}, {"step", 2}, {"loss", events[2].at("loss")}}));
  CHECK(events[4].at("epoch") == 1);
  CHECK(events[4].at("steps") == 3);
  CHECK(events[4].at("seconds").is_number());
  CHECK(events[4].at("ms_per_step").is_number());
  // The epoch's loss is the mean over samples of its batches of 16, 16 and 8.
  const double mean =
      (16 * events[1].at("loss").get<double>() + 16 * events[2].at("loss").get<double>() +
       8 * events[3].at("loss").get<double>()) /
      40;
  CHECK(events[4].at("logs").at("loss").get<double>() == doctest::Approx(mean).epsilon(1e-6));
  CHECK(events[9].at("logs").size() == 2);
  CHECK(events[10] == Json({{"event", "end"}, {"exit_code", 0}}));
}

TEST_CASE("with json the events are on stdout and nothing else") {
  const ExampleFolder folder;
  const Result result =
      meshtrain({"train", "small.yaml", "-o", "run", "--log-format", "json", "--limit-steps", "1"},
                folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.out == folder.read("run/metrics.jsonl"));
  const Result quiet =
      meshtrain({"train", "small.yaml", "-q", "--log-format", "json"}, folder.path());
  REQUIRE(lines_of(quiet.out).size() == 1);
  CHECK(parse_json(quiet.out).at("event") == "evaluate");
  CHECK(parse_json(quiet.out).at("name") == "small");  // distinguishes rows of a sweep
  CHECK(contains(parse_json(quiet.out).at("run_dir").get<std::string>(), "runs/small/"));
  CHECK(quiet.err.empty());
}

TEST_CASE("progress bar puts the bytes of Keras' verbose 1 on stdout even in a file") {
  const ExampleFolder folder;
  const Result result =
      meshtrain({"train", "small.yaml", "--progress", "bar", "fit.epochs=1"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("\r\x1b[1m1/3\x1b[0m \x1b[32m\u2501\u2501\u2501\u2501\u2501\u2501\x1b[0m"
                        "\x1b[37m") == 0);
  CHECK(result.out.find("\b\r\x1b[1m3/3\x1b[0m ") != std::string::npos);
  const Result silent = meshtrain({"train", "small.yaml", "--progress=none"}, folder.path());
  CHECK(silent.exit_code == 0);
  CHECK(silent.out.empty());
}

TEST_CASE("on a terminal a bar moves and Keras' full bar stays in its place") {
  if (!has_terminals()) {
    MESSAGE("skipped: this system gives out no pseudo-terminals (/dev/pts is not mounted)");
    return;
  }
  const ExampleFolder folder;
  Command command;
  command.args = {"train", "small.yaml"};
  command.folder = folder.path();
  command.environment = {"TERM=xterm"};
  command.on_terminal = true;
  const Result result = run(command);
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("Epoch 1/2\n\r\x1b[?7l\x1b[1m0/3\x1b[0m ") != std::string::npos);
  CHECK(std::regex_search(result.out, std::regex("\r \x1b\\[J\r\r\x1b\\[1m3/3\x1b\\[0m [^\n\r]*" +
                                                 kMetrics + "\nEpoch 2/2\n")));
}

TEST_CASE("quiet prints one line") {
  const ExampleFolder folder;
  const Result result = meshtrain({"train", "small.yaml", "-q"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(std::regex_match(result.out, std::regex("2/2" + kTime + kMetrics + "\n")));
  CHECK(result.err.empty());
}

TEST_CASE("runs without a folder of their own never meet") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q"}, folder.path()).exit_code == 0);
  REQUIRE(meshtrain({"train", "small.yaml", "-q"}, folder.path()).exit_code == 0);
  int runs = 0;
  for (const auto& entry : fs::directory_iterator(folder.file("runs/small"))) {
    runs += entry.is_directory() && !entry.is_symlink() ? 1 : 0;
  }
  CHECK(runs == 2);
  CHECK(fs::exists(folder.file("runs/small/latest/weights.safetensors")));
  const Result again = meshtrain({"train", "small.yaml", "-o", "runs/small/latest"}, folder.path());
  CHECK(again.exit_code == 2);
  CHECK(again.err.find("error[E141]") == 0);
  CHECK(again.err.find("1 error; nothing was started\n") != std::string::npos);
}

TEST_CASE("the same run gives the same bytes") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "a"}, folder.path()).exit_code == 0);
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "b"}, folder.path()).exit_code == 0);
  CHECK(folder.read("a/weights.safetensors") == folder.read("b/weights.safetensors"));
}

std::vector<double> step_losses(const TemporaryFolder& folder, const std::string& run) {
  std::vector<double> losses;
  for (const Json& event : events_of(folder.read(run + "/metrics.jsonl"))) {
    if (event.at("event") == "step") {
      losses.push_back(event.at("loss"));
    }
  }
  return losses;
}

TEST_CASE("the mesh does not change the losses") {
  const ExampleFolder folder;
  const std::vector<std::string> common = {"train", "small.yaml", "-q", "run.log_steps=true",
                                           "dtype_policy=float64"};
  std::vector<double> expected;
  for (const std::string mesh : {"1x1", "2x2", "4x1", "1x4"}) {
    std::vector<std::string> args = common;
    args.insert(args.end(), {"--mesh", mesh, "-o", mesh});
    const Result result = meshtrain(args, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const std::vector<double> losses = step_losses(folder, mesh);
    REQUIRE(losses.size() == 6);
    expected = expected.empty() ? losses : expected;
    for (size_t i = 0; i < losses.size(); ++i) {
      CHECK(losses[i] == doctest::Approx(expected[i]).epsilon(1e-9));
    }
  }
}

TEST_CASE("flags stand for config keys wherever they are") {
  const ExampleFolder folder;
  const Result result =
      meshtrain({"train", "--epochs", "1", "--batch-size=20", "small.yaml", "--mesh",
                 "data=4,model=1", "-o", "run", "--name=other", "fit.validation_split=0.5"},
                folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const Json start = events_of(folder.read("run/metrics.jsonl"))[0];
  CHECK(start.at("mesh").at("shape") == Json({4, 1}));
  CHECK(start.at("name") == "other");
  CHECK(start.at("batch_size") == 20);
  CHECK(start.at("validation_samples") == 20);
  CHECK(result.out.find("Epoch") == std::string::npos);
  CHECK(result.out.find(" - val_accuracy: ") != std::string::npos);
}

TEST_CASE("weights that cannot be read are reported at the key that names them") {
  const ExampleFolder folder;
  folder.write("X.npy", "\x93NUMPY");
  folder.write("cut.safetensors", "cut");
  const std::pair<const char*, const char*> kFiles[] = {{"none.safetensors", "E404"},
                                                        {"none.weights.h5", "E404"},
                                                        {"none.keras", "E404"},
                                                        {"X.npy", "E405"},
                                                        {"cut.safetensors", "E405"}};
  for (const auto& [file, code] : kFiles) {
    CAPTURE(file);
    for (const char* subcommand : {"train", "validate"}) {
      const Result result = meshtrain(
          {subcommand, "small.yaml", fmt::format("fit.initial_weights={}", file)}, folder.path());
      CHECK(result.exit_code == 6);
      CHECK_MESSAGE(result.err.find(fmt::format("error[{}]", code)) == 0, result.err);
      CHECK_MESSAGE(result.err.find("--> command line:1:21") != std::string::npos, result.err);
    }
  }
}

TEST_CASE("training begins from given weights and refuses those of another model") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "a"}, folder.path()).exit_code == 0);
  const Result kept = meshtrain(
      {"train", "small.yaml", "-q", "-o", "b", "compile.optimizer.SGD.learning_rate=1e-30",
       "fit.initial_weights=a/weights.safetensors"},
      folder.path());
  REQUIRE_MESSAGE(kept.exit_code == 0, kept.err);
  CHECK(folder.read("a/weights.safetensors") == folder.read("b/weights.safetensors"));
  const Result other = meshtrain({"train", "small.yaml", "-o", "c", "model.layers.d1.units=4",
                                  "fit.initial_weights=a/weights.safetensors"},
                                 folder.path());
  CHECK(other.exit_code == 6);
  CHECK(other.err.find("error[E410]") == 0);
  CHECK(other.err.find("d1/kernel is (6, 8) in the file, (6, 4) in the model") !=
        std::string::npos);
  CHECK(other.err.find("d2/kernel is (8, 3)") != std::string::npos);
  CHECK_FALSE(fs::exists(folder.file("c")));
}

TEST_CASE("a loss that is not finite ends with exit code 5 and names the step") {
  const ExampleFolder folder;
  const Result result = meshtrain({"train", "small.yaml", "-o", "run", "compile.loss=mse",
                                   "data.train={source: random, samples: 40, shape: [6], labels: "
                                   "[3], seed: 1}",
                                   "evaluate.on=none", "compile.optimizer.SGD.learning_rate=1e30"},
                                  folder.path());
  CHECK_MESSAGE(result.exit_code == 5, result.err);
  CHECK(result.err.find("error[E501]: the loss is ") != std::string::npos);
  CHECK(result.err.find("kernel` is the first weight that is not finite\n") != std::string::npos);
  CHECK(result.err.find("nothing was started") == std::string::npos);
  const std::vector<Json> events = events_of(folder.read("run/metrics.jsonl"));
  CHECK(events.back().at("event") == "end");
  CHECK(events.back().at("exit_code") == 5);
  CHECK_FALSE(fs::exists(folder.file("run/weights.safetensors")));
}

// A signal comes in epoch 3; the run saves and says how to resume.
void check_stop(int signal_number, const std::string& name) {
  const ExampleFolder folder;
  Command command;
  command.args = {"train", "small.yaml", "-o", "run", "--epochs", "100000", "--log-format=json"};
  command.folder = folder.path();
  command.watch = [&](const std::string& out, const std::string&, int pid) {
    return out.find("\"epoch\":3") != std::string::npos && kill(pid, signal_number) == 0;
  };
  const Result result = run(command);
  CHECK(result.exit_code == 75);
  CHECK_MESSAGE(
      std::regex_search(result.err,
                        std::regex("stopped by " + name +
                                   " after step \\d of epoch \\d+; saved as "
                                   "run/checkpoints/\\d{6}\ngo on with: meshtrain resume run\n")),
      result.err);
  const std::vector<Json> events = events_of(folder.read("run/metrics.jsonl"));
  CHECK(events.back().at("exit_code") == 75);
  CHECK_FALSE(fs::exists(folder.file("run/weights.safetensors")));
}

TEST_CASE("signals that end a run save it first and the exit code is 75") {
  check_stop(SIGTERM, "SIGTERM");
  check_stop(SIGINT, "SIGINT");
  check_stop(SIGUSR1, "SIGUSR1");
}

TEST_CASE("training continues without a stdout") {
  for (const std::string to : {"closed", "pipe without reader", "/dev/full"}) {
    CAPTURE(to);
    const ExampleFolder folder;
    Command command;
    command.args = {"train", "small.yaml", "-o", "run"};
    command.folder = folder.path();
    command.out_to = to;
    const Result result = run(command);
    CHECK(result.exit_code == 0);
    CHECK(fs::exists(folder.file("run/weights.safetensors")));
    CHECK(events_of(folder.read("run/metrics.jsonl")).back().at("exit_code") == 0);
    const bool warned = result.err.find("cannot write to stdout") != std::string::npos;
    CHECK(warned == (to == "/dev/full"));
  }
}

TEST_CASE("events that cannot be written to stdout are exit code 74 after the training") {
  const ExampleFolder folder;
  Command command;
  command.args = {"train", "small.yaml", "-o", "run", "-q", "--log-format", "json"};
  command.folder = folder.path();
  command.out_to = "/dev/full";
  const Result result = run(command);
  CHECK(result.exit_code == 74);
  CHECK(result.err.find("error[E142]: cannot write to stdout") == 0);
  CHECK(fs::exists(folder.file("run/weights.safetensors")));
}

TEST_CASE("a run that fails before its start has a line of JSON, too") {
  const ExampleFolder folder;
  const auto line_of_run = [&](std::vector<std::string> args, int exit_code) {
    args.insert(args.end(), {"-q", "--log-format", "json"});
    const Result result = meshtrain(args, folder.path());
    CHECK(result.exit_code == exit_code);
    REQUIRE_MESSAGE(lines_of(result.out).size() == 1, result.out);
    const Json line = parse_json(result.out);
    CHECK(line["event"] == "end");
    CHECK(line["exit_code"] == exit_code);
    CHECK(result.err.find(line["message"].get<std::string>()) != std::string::npos);
    return line;
  };
  CHECK(line_of_run({"train", "small.yaml", "fit.epoch=2", "--seed", "3"}, 2)["overrides"] ==
        Json({"fit.epoch=2", "seed=3"}));
  line_of_run({"train", "small.yaml", "data.test={source: npz, path: missing.npz}"}, 3);
  line_of_run({"train", "small.yaml", "--mesh", "3x3", "--devices", "cpu:4"}, 4);
  line_of_run({"train", "none.yaml"}, 2);
  line_of_run({"resume", "none"}, 6);
  line_of_run({"launch", "small.yaml", "fit.epoch=2"}, 2);
}

TEST_CASE("a place that takes no results is found before training") {
  const ExampleFolder folder;
  folder.write("file", "");
  const Result result = meshtrain({"train", "small.yaml", "-o", "file/run"}, folder.path());
  CHECK(result.exit_code == 74);
  CHECK(result.err.find("error[E142]: cannot create `file/run`") == 0);
}

TEST_CASE("a curve that varies by rounding alone has a chart") {
  for (const char* seed : {"1", "2", "3", "4"}) {
    const TemporaryFolder folder;
    folder.write(
        "c.yaml",
        "dtype_policy: float64\n"
        "data: {train: {source: random, samples: 640, shape: [9], classes: 4}}\n"
        "model: {layers: [{Input: {shape: [9]}}, {Dense: {units: 4, activation: softmax}}]}\n"
        "compile: {loss: sparse_categorical_crossentropy, optimizer: {SGD: {learning_rate: "
        "1e-30}}}\n"
        "fit: {batch_size: 64, epochs: 3}\n");
    const Result result = meshtrain(
        {"train", "c.yaml", "-q", "-o", "run", std::string("seed=") + seed}, folder.path());
    CHECK(result.exit_code == 0);
    CHECK(folder.read("run/report.html").size() < 500000);
  }
}

TEST_CASE("a config that says what it expects: the run is complete and its exit code is 7") {
  ExampleFolder folder;
  const auto with = [&](const std::string& expect) {
    folder.write("tested.yaml", std::string(kExample) + "expect: " + expect + "\n");
    return meshtrain({"train", "tested.yaml", "-q", "-o", "out"}, folder.path());
  };
  const auto clean = [&] { std::filesystem::remove_all(folder.file("out")); };
  Result result = with(
      "{logs: {loss: \"< 100\", accuracy: \">= 0\"}, evaluate: {loss: \"> 0\"}, "
      "ms_per_step: 60000, equal_over_meshes: 1e-9}");
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  clean();
  result = with("{logs: {loss: \"< 0\"}, evaluate: {accuracy: \"> 1\"}, ms_per_step: 1e-9}");
  CHECK(result.exit_code == 7);
  CHECK(contains(result.err, "error[E520]: `loss` is "));
  CHECK(contains(result.err, "expected < 0"));
  CHECK(contains(result.err, "`accuracy` is "));
  CHECK(contains(result.err, "a step takes "));
  CHECK(std::filesystem::exists(folder.file("out/weights.safetensors")));
  CHECK(contains(lines_of(folder.read("out/metrics.jsonl")).back(), "\"exit_code\":7"));
  // A resumed run of which nothing is left to train knows its logs.
  const Result again = meshtrain({"resume", "out"}, folder.path());
  CHECK(again.exit_code == 7);
  CHECK(contains(again.err, "`loss` is "));
  clean();
  result = with("{logs: {val_loss: \"< 1\", acuracy: \"> 0\"}}");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "`expect.logs` names `val_loss`, which is no log here"));
  CHECK(contains(result.err, "did you mean `accuracy`?"));
  CHECK(!std::filesystem::exists(folder.file("out")));
  const Result validated = meshtrain({"validate", "tested.yaml"}, folder.path());
  CHECK(validated.exit_code == 2);
  CHECK(contains(validated.err, "`acuracy`"));
  result = with("{logs: {loss: 0.5}}");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "`loss` of `expect` is no bound: `0.5`"));
}

TEST_CASE("train --profile N measures N steps by layer, in a trace, the report and the terminal") {
  const ExampleFolder folder;
  REQUIRE(
      meshtrain({"train", "small.yaml", "-o", "plain", "fit.epochs=4"}, folder.path()).exit_code ==
      0);
  CHECK(!fs::exists(folder.file("plain/profile")));
  for (const char* flag : {"--profile", "--profile-steps"}) {
    CAPTURE(flag);
    const std::string run = std::string("run") + flag;
    const Result result =
        meshtrain({"train", "small.yaml", "-o", run, "fit.epochs=4", flag, "4", "--threads", "2"},
                  folder.path());
    CHECK(result.exit_code == 0);
    CHECK_MESSAGE(contains(result.out, "profile   4 steps, "), result.out);
    CHECK(contains(result.out, "memory    host "));
    CHECK(folder.read(run + "/weights.safetensors") == folder.read("plain/weights.safetensors"));

    const Json profile = parse_json(folder.read(run + "/profile/profile.json"));
    CHECK(profile.at("steps") == 4);
    CHECK(profile.at("plan_ms_per_step").get<double>() > 0);
    CHECK(contains(result.out, " each; the plan's estimate is "));
    CHECK(contains(folder.read(run + "/report.html"), "; the plan&#39;s estimate is "));
    double share =
        profile.at("between_kernels_ms").get<double>() / profile.at("ms_per_step").get<double>();
    std::set<std::string> layers, kinds;
    for (const Json& kernel : profile.at("kernels")) {
      share += kernel.at("share").get<double>();
      const std::string layer = kernel.at("layer");
      layers.insert(layer.substr(0, layer.find('/')));
      kinds.insert(kernel.at("kind").get<std::string>());
      CHECK(kernel.at("calls_per_step").get<double>() > 0);
    }
    CHECK(share == doctest::Approx(1).epsilon(1e-6));
    CHECK(layers.contains("d1"));
    CHECK(layers.contains("d2"));
    CHECK(kinds.contains("all_reduce"));
    CHECK(profile.at("memory").at("host_peak").get<int64_t>() > 1 << 20);
    CHECK(profile.at("memory").at("devices") == 4);

    const Json trace = parse_json(folder.read(run + "/profile/trace.json"));
    int steps = 0;
    std::set<std::string> threads;
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "M") {
        threads.insert(event.at("args").at("name").get<std::string>());
        continue;
      }
      CHECK(event.at("dur").get<double>() >= 0);
      CHECK(event.at("ts").get<double>() >= 0);
      steps += event.at("cat") == "step" ? 1 : 0;
    }
    CHECK(steps == 4);
    CHECK(threads == std::set<std::string>{"rank 0", "worker 0", "worker 1"});
    CHECK(contains(folder.read(run + "/report.html"), "<h2>Profile</h2>"));
  }
}

TEST_CASE("a profile that cannot be is refused, one of a short run says so") {
  const ExampleFolder folder;
  const auto check = [&](const std::vector<std::string>& words, int exit_code,
                         const std::string& text) {
    std::vector<std::string> args = {"train", "small.yaml", "-o", "run"};
    args.insert(args.end(), words.begin(), words.end());
    const Result result = meshtrain(args, folder.path());
    CHECK(result.exit_code == exit_code);
    CHECK_MESSAGE(contains(result.out + result.err, text), result.out, result.err);
  };
  check({"--profile", "0"}, 2,
        "error[E140]: --profile 0 must be a number of steps from 1 to 10000");
  check({"--profile", "99999999999999999999"}, 2, "must be a number of steps from 1 to 10000");
  check({"--profile", "20x"}, 2, "error[E140]: there is no profile `20x`");
  check({"--profile", "3", "--profile-steps", "4"}, 2, "both say how many steps");
  check({"--profile-steps", "0"}, 2, "--profile-steps");
  check({"--profile", "3", "fit.epochs=1"}, 0, "nothing measured: the first 5 steps are not");
  CHECK(!fs::exists(folder.file("run/profile")));
}

}  // namespace
}  // namespace meshtrain
