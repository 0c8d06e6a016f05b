// The other subcommands: exit codes, streams, JSON.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "example.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

// What a misuse says, after checking that it is one.
std::string misuse(const std::vector<std::string>& args) {
  const ExampleFolder folder;
  const Result result = meshtrain(args, folder.path());
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  return result.err;
}

TEST_CASE("misuse of the command line is exit code 2 with a hint") {
  CHECK(
      contains(misuse({"tran", "small.yaml"}), "unknown subcommand `tran`; did you mean `train`?"));
  CHECK(contains(misuse({"train", "small.yaml", "--epoch", "2"}),
                 "unknown option `--epoch`; did you mean `--epochs`?"));
  CHECK(contains(misuse({"train"}), "error[E140]"));
  CHECK(contains(misuse({}), "error[E140]"));
  CHECK(contains(misuse({"train", "fit.epochs=1"}), "no config file given"));
  CHECK(contains(misuse({"train", "small.yaml", "--progress", "sometimes"}), "error[E140]"));
  CHECK(contains(misuse({"train", "small.yaml", "--mesh", "data,model=2"}), "`data` has no size"));
  CHECK(contains(misuse({"evaluate", "small.yaml"}), "no weights given"));
  CHECK(contains(misuse({"train", "other.yaml"}), "error[E100]"));
}

TEST_CASE("help and version are on stdout") {
  const TemporaryFolder folder;
  const Result help = meshtrain({"--help"}, folder.path());
  CHECK(help.exit_code == 0);
  CHECK(contains(help.out, "Exit codes:"));
  CHECK(help.err.empty());
  const Result train = meshtrain({"train", "--help"}, folder.path());
  CHECK(train.exit_code == 0);
  CHECK(contains(train.out, "--limit-steps"));
  CHECK(contains(train.out, "[key: fit.batch_size]"));
  CHECK(meshtrain({"--version"}, folder.path()).out.find("meshtrain ") == 0);
  CHECK(meshtrain({"version"}, folder.path()).out.find("meshtrain ") == 0);
  CHECK(meshtrain({"devices"}, folder.path()).exit_code == 0);
  CHECK(parse_json(meshtrain({"devices", "--format=json"}, folder.path()).out).contains("cpu"));
}

TEST_CASE("each kind of problem has its exit code") {
  const ExampleFolder folder;
  const Result data =
      meshtrain({"train", "small.yaml", "-o", "run", "data.test={source: npz, path: missing.npz}"},
                folder.path());
  CHECK(data.exit_code == 3);
  CHECK(contains(data.err, "missing.npz"));
  CHECK(contains(data.err, "nothing was started"));
  CHECK(meshtrain({"train", "small.yaml", "--devices", "cpu:3"}, folder.path()).exit_code == 4);
  CHECK(meshtrain({"train", "small.yaml", "fit.epochs=ten"}, folder.path()).exit_code == 2);
  CHECK(meshtrain({"evaluate", "small.yaml", "--weights", "none.safetensors"}, folder.path())
            .exit_code == 6);
  CHECK_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST_CASE("data that do not fit together are found before training") {
  const ExampleFolder folder;
  const Result unlabelled = meshtrain(
      {"train", "small.yaml", "data.train={source: random, samples: 40, shape: [6], seed: 1}"},
      folder.path());
  CHECK(unlabelled.exit_code == 3);
  CHECK(contains(unlabelled.err, "error[E324]: the train data have no labels"));
  const Result other = meshtrain(
      {"train", "small.yaml", "data.test={source: random, samples: 9, shape: [9], classes: 3}"},
      folder.path());
  CHECK(other.exit_code == 3);
  CHECK(contains(other.err, "the test data have samples of shape (9,), the train data (6,)"));
}

TEST_CASE("validate shows every problem and tells programs where") {
  const ExampleFolder folder;
  const Result good = meshtrain({"validate", "small.yaml"}, folder.path());
  CHECK(good.exit_code == 0);
  CHECK(good.out == "small.yaml: 0 errors, 0 warnings\n");
  std::string text = kExample;
  text.replace(text.find("layout_map"), 10, "layoutmap");
  text.replace(text.find("epochs: 2"), 9, "epochs: x");
  folder.write("bad.yaml", text);
  const Result bad = meshtrain({"validate", "bad.yaml", "--format", "json"}, folder.path());
  CHECK(bad.exit_code == 2);
  const Json report = parse_json(bad.out);
  CHECK(report.at("valid") == false);
  REQUIRE(report.at("errors").get<int>() >= 2);
  CHECK(report.at("diagnostics")[0].at("line") == 10);
  CHECK(report.at("diagnostics")[0].at("column") == 3);
  CHECK(contains(report.at("diagnostics")[0].at("file").get<std::string>(), "bad.yaml"));
  const Result layout =
      meshtrain({"validate", "small.yaml", "--mesh", "1x3", "--format=json"}, folder.path());
  CHECK(layout.exit_code == 2);
  CHECK(parse_json(layout.out).at("diagnostics")[0].at("code") == "E204");
}

TEST_CASE("validate lists the variables of the environment that a config reads") {
  const ExampleFolder folder;
  std::vector<std::string> words = {"validate", "small.yaml", "name=${env:MESHTRAIN_TEST_NAME,x}",
                                    "run.dir=${env:HOME}/runs"};
  const Result text = meshtrain(words, folder.path());
  CHECK(text.exit_code == 0);
  CHECK(text.out ==
        "small.yaml: 0 errors, 0 warnings\n"
        "reads from the environment: HOME, MESHTRAIN_TEST_NAME\n");
  words.push_back("--format=json");
  const Json names = parse_json(meshtrain(words, folder.path()).out).at("environment");
  CHECK(names == Json::array({"HOME", "MESHTRAIN_TEST_NAME"}));
}

// Of processor time, which a busy machine leaves as it is. How fast it is, tests/bench says.
TEST_CASE("validate takes milliseconds") {
  const auto seconds_of_children = [] {
    rusage usage = {};
    REQUIRE(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  };
  const ExampleFolder folder;
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    const double before = seconds_of_children();
    REQUIRE(meshtrain({"validate", "small.yaml"}, folder.path()).exit_code == 0);
    best = std::min(best, seconds_of_children() - before);
  }
#if defined(__SANITIZE_ADDRESS__)
  CHECK(best < 0.5);  // 0.1 on a busy machine
#else
  CHECK(best < 0.1);  // 0.02
#endif
}

TEST_CASE("plan and the dry run show the same and start nothing") {
  const ExampleFolder folder;
  const Result plan = meshtrain({"plan", "small.yaml"}, folder.path());
  CHECK(plan.exit_code == 0);
  CHECK(contains(plan.out, "d1/kernel"));
  const Result dry = meshtrain({"train", "small.yaml", "--dry-run"}, folder.path());
  CHECK(dry.out == plan.out);
  CHECK_FALSE(std::filesystem::exists(folder.file("runs")));
  const Json json =
      parse_json(meshtrain({"plan", "small.yaml", "--format", "json"}, folder.path()).out);
  for (const char* key :
       {"mesh", "batch", "variables", "outputs", "collectives", "memory", "flops", "warnings"}) {
    CHECK_MESSAGE(json.contains(key), key);
  }
  CHECK(json.at("variables")[0].at("path") == "d1/kernel");
}

TEST_CASE("a layout rule may name the outputs of blocks") {
  const TemporaryFolder folder;
  folder.write("blocks.yaml", R"(
distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 2], axis_names: [data, model]}
  layout_map:
    block_\d+/up/kernel: [null, model]
    block_\d+/output: [data, model]
blocks:
  Unit:
    inputs: [x]
    layers:
      - Dense: {name: up, inputs: x, units: 8}
      - Add: {name: sum, inputs: [x, up]}
model:
  layers:
    - Input: {shape: [8]}
    - Repeat: {times: 2, name: "block_{i}", block: Unit}
    - Dense: {name: head, units: 1}
compile: {loss: mse}
data: {train: {source: random, samples: 8, shape: [8], labels: [1]}}
)");
  const Result plan = meshtrain({"plan", "blocks.yaml", "--format", "json"}, folder.path());
  REQUIRE_MESSAGE(plan.exit_code == 0, plan.err);
  const Json json = parse_json(plan.out);
  REQUIRE(json.at("outputs").size() == 2);
  CHECK(json.at("outputs")[1].at("key") == "block_1/sum/output");
  CHECK(json.at("outputs")[1].at("rule").at("key") == "block_\\d+/output");
  CHECK(json.at("variables")[2].at("path") == "block_1/up/kernel");
  CHECK(json.at("variables")[2].at("layouts").at("storage") == parse_json(R"([null, "model"])"));
}

TEST_CASE("results that cannot be written are exit code 74") {
  const ExampleFolder folder;
  Command command;
  command.args = {"plan", "small.yaml"};
  command.folder = folder.path();
  command.out_to = "/dev/full";
  const Result result = run(command);
  CHECK(result.exit_code == 74);
  CHECK(contains(result.err, "error[E142]: cannot write to stdout"));
  command.out_to = "pipe without reader";  // as `| head` leaves it
  CHECK(run(command).exit_code == 0);
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "run"}, folder.path()).exit_code == 0);
  command.out_to = "/dev/full";
  for (const std::vector<std::string>& args : {std::vector<std::string>{"evaluate", "run"},
                                               {"--help"},
                                               {"train", "--help"},
                                               {"train", "small.yaml", "-q"},
                                               {"watch", "run", "--once"},
                                               {"config", "diff", "run", "small.yaml"},
                                               {"--version"}}) {
    command.args = args;
    CHECK_MESSAGE(run(command).exit_code == 74, args[0]);
  }
}

TEST_CASE("the summary is the table of Keras with layouts") {
  const ExampleFolder folder;
  const Result result = meshtrain({"summary", "small.yaml", "--mesh", "1x1"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.out ==
        R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ d1 (Dense)                      │ (None, 8)              │            48 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dropout (Dropout)               │ (None, 8)              │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ d2 (Dense)                      │ (None, 3)              │            27 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 75 (300.00 B)
 Trainable params: 75 (300.00 B)
 Non-trainable params: 0 (0.00 B)
)");
  const Result sharded = meshtrain({"summary", "small.yaml"}, folder.path());
  CHECK(contains(sharded.out, "kernel [null, model]"));
  CHECK(contains(sharded.out, "output [data, null]"));
  const Result drawn = meshtrain({"summary", "small.yaml", "--sharding=d1/kernel"}, folder.path());
  CHECK(contains(drawn.out, "d1/kernel (6, 8) [null, model]\n┌"));
  CHECK(contains(drawn.out, "CPU 0,2"));
  const Result all = meshtrain({"summary", "--sharding", "small.yaml"}, folder.path());
  CHECK(contains(all.out, "batch (16, 6) [data, null]"));
  CHECK(contains(all.out, "d2/output (16, 3) [data, null]"));
  CHECK(meshtrain({"summary", "small.yaml", "--sharding=d9"}, folder.path()).exit_code == 2);
}

TEST_CASE("evaluate repeats the evaluation of the run and predict fits it") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "run"}, folder.path()).exit_code == 0);
  const std::vector<std::string> lines = lines_of(folder.read("run/metrics.jsonl"));
  const Json trained = parse_json(lines[lines.size() - 2]);
  const Result evaluated = meshtrain(
      {"evaluate", "small.yaml", "--weights", "run/weights.safetensors", "--log-format=json"},
      folder.path());
  REQUIRE_MESSAGE(evaluated.exit_code == 0, evaluated.err);
  CHECK(parse_json(evaluated.out).at("logs") == trained.at("logs"));

  HostTensor samples(DType::kFloat32, {5, 6});
  for (int64_t i = 0; i < samples.size(); ++i) {
    samples.set(i, std::sin(static_cast<double>(i)));
  }
  write_npy(folder.file("x.npy"), samples);
  for (const std::string mesh : {"1x1", "2x2"}) {
    const Result predicted =
        meshtrain({"predict", "small.yaml", "--mesh", mesh, "--weights", "run/weights.safetensors",
                   "--input", "x.npy", "--output", mesh + ".npy"},
                  folder.path());
    REQUIRE_MESSAGE(predicted.exit_code == 0, predicted.err);
  }
  const HostTensor one = read_npy(folder.file("1x1.npy"));
  const HostTensor four = read_npy(folder.file("2x2.npy"));
  CHECK(one.shape() == Shape{5, 3});
  REQUIRE(four.shape() == Shape{5, 3});
  for (int64_t i = 0; i < one.size(); ++i) {
    CHECK(four.at(i) == doctest::Approx(one.at(i)).epsilon(1e-5));
  }
}

TEST_CASE("the config can be shown with origins and read from standard input") {
  const ExampleFolder folder;
  const Result shown =
      meshtrain({"config", "show", "small.yaml", "--epochs", "9", "--origin"}, folder.path());
  CHECK(shown.exit_code == 0);
  CHECK(contains(shown.out, "epochs: 9"));
  CHECK(contains(shown.out, "# --epochs"));
  CHECK(contains(shown.out, "# small.yaml:"));
  Command command;
  command.args = {"validate", "-"};
  command.folder = folder.path();
  command.input = kExample;
  CHECK(run(command).exit_code == 0);
  CHECK(parse_json(meshtrain({"schema"}, folder.path()).out).contains("properties"));
}

TEST_CASE("every template trains in a folder of its own") {
  const TemporaryFolder all;
  const Result list = meshtrain({"init"}, all.path());
  CHECK(list.exit_code == 0);
  int trained = 0;
  for (const std::string& line : lines_of(list.out)) {
    const std::string name = line.substr(0, line.find(' '));
    if (name.empty()) {
      continue;
    }
    const TemporaryFolder folder;
    const Result text = meshtrain({"init", name}, folder.path());
    REQUIRE(text.exit_code == 0);
    folder.write("first.yaml", text.out);
    std::vector<std::string> words = {"train", "first.yaml",    "-q", "--epochs",
                                      "1",     "--limit-steps", "1"};
    if (name == "llama3_8b")  // of devices on paper
      words = {"plan", "first.yaml"};
    if (contains(text.out, "keras.applications"))  // applications_test trains those
      words = {"validate", "first.yaml"};
    if (name == "gpt2_124m")  // the same model, small
      words.insert(words.end(), {"vars.depth=1", "vars.width=96", "vars.context=32"});
    const Result run = meshtrain(words, folder.path());
    CHECK_MESSAGE(run.exit_code == 0, name << ": " << run.err);
    ++trained;
  }
  CHECK(trained >= 10);
  const TemporaryFolder& folder = all;
  CHECK(meshtrain({"init", "no-such-template"}, folder.path()).exit_code == 2);
}

TEST_CASE("doctor finds what this machine has, and a folder that nothing can be written to") {
  const TemporaryFolder folder;
  Command command;
  command.folder = folder.path();
  command.args = {"doctor", "--format", "json"};
  command.environment = {"MESHTRAIN_CACHE=" + folder.file("cache")};
  const auto state_of = [](const Result& result, const std::string& what) {
    const Json found = Json::parse(result.out);
    for (const Json& each : found["findings"]) {
      if (each["what"] == what) {
        return each["state"].get<std::string>();
      }
    }
    return std::string();
  };
  Result result = run(command);
  CHECK(result.exit_code == 0);
  CHECK(state_of(result, "self-test") == "ok");
  CHECK(state_of(result, "kernel cache") == "ok");
  CHECK(state_of(result, "MESHTRAIN_CACHE") == "ok");
  command.environment = {"MESHTRAIN_CACHE=/proc/nothing"};
  result = run(command);
  CHECK(result.exit_code == 7);
  CHECK(state_of(result, "data sets") == "bad");
  CHECK(state_of(result, "self-test") == "ok");
  command.args = {"doctor"};
  result = run(command);
  CHECK(result.exit_code == 7);
  CHECK(contains(result.out, "BAD"));
  CHECK(contains(result.out, "-> set MESHTRAIN_CACHE"));
}

TEST_CASE("validate --format sarif: rules, levels and places for code scanners") {
  ExampleFolder folder;
  folder.write("my model.yaml", std::string(kExample) + "unknown_key: 1\nvars: {unused: 1}\n");
  const Result result =
      meshtrain({"validate", "my model.yaml", "--format", "sarif"}, folder.path());
  CHECK(result.exit_code == 2);
  CHECK(result.err.empty());
  const Json log = Json::parse(result.out);
  CHECK(log["version"] == "2.1.0");
  REQUIRE(log["runs"].size() == 1);
  const Json& run = log["runs"][0];
  const Json& rules = run["tool"]["driver"]["rules"];
  REQUIRE(!run["results"].empty());
  bool found = false;
  for (const Json& each : run["results"]) {
    CHECK(rules[each["ruleIndex"].get<size_t>()]["id"] == each["ruleId"]);
    CHECK(!rules[each["ruleIndex"].get<size_t>()]["help"]["text"].get<std::string>().empty());
    CHECK(!each["message"]["text"].get<std::string>().empty());
    const Json& place = each["locations"][0]["physicalLocation"];
    CHECK(place["artifactLocation"]["uri"] == "my%20model.yaml");
    CHECK(place["region"]["startLine"].get<int>() > 0);
    CHECK(place["region"]["endColumn"].get<int>() > place["region"]["startColumn"].get<int>());
    found = found || (each["ruleId"] == "E111" && each["level"] == "error");
  }
  CHECK(found);
  const Result good = meshtrain({"validate", "small.yaml", "--format", "sarif"}, folder.path());
  CHECK(good.exit_code == 0);
  CHECK(Json::parse(good.out)["runs"][0]["results"].empty());
}

TEST_CASE("config show --minimal trains to the same bits, and config diff finds no difference") {
  ExampleFolder folder;
  const Result minimal = meshtrain({"config", "show", "small.yaml", "--minimal"}, folder.path());
  REQUIRE(minimal.exit_code == 0);
  CHECK(minimal.out.size() < 1200);
  folder.write("minimal.yaml", minimal.out);
  const Result same = meshtrain({"config", "diff", "small.yaml", "minimal.yaml"}, folder.path());
  CHECK(same.exit_code == 0);
  CHECK(same.out.empty());
  for (const char* name : {"small", "minimal"}) {
    REQUIRE(meshtrain({"train", std::string(name) + ".yaml", "-q", "-o", name}, folder.path())
                .exit_code == 0);
  }
  CHECK(folder.read("small/weights.safetensors") == folder.read("minimal/weights.safetensors"));
  CHECK(meshtrain({"config", "show", "small.yaml", "--minimal", "--origin"}, folder.path())
            .exit_code == 2);
}

TEST_CASE("config diff: files and runs, with defaults") {
  ExampleFolder folder;
  std::string other = kExample;
  other.replace(other.find("epochs: 2"), 9, "epochs: 3");
  folder.write("other.yaml", other);
  REQUIRE(meshtrain({"train", "small.yaml", "-q"}, folder.path()).exit_code == 0);
  const Result result = meshtrain({"config", "diff", "small.yaml", "other.yaml"}, folder.path());
  CHECK(result.exit_code == 7);
  CHECK(contains(result.out, "fit.epochs  2 -> 3"));
  const Result json = meshtrain(
      {"config", "diff", "runs/small/latest", "other.yaml", "--format", "json"}, folder.path());
  CHECK(json.exit_code == 7);
  bool found = false;
  const Json parsed = Json::parse(json.out);
  for (const Json& change : parsed["changes"]) {
    found = found ||
            (change["key"] == "fit.epochs" && change["before"] == "2" && change["after"] == "3");
  }
  CHECK(found);
  CHECK(meshtrain({"config", "diff", "small.yaml", "absent.yaml"}, folder.path()).exit_code == 2);
}

}  // namespace
}  // namespace meshtrain
