// What the program answers: help, misuse, and what leads on from a slip.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "example.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// Refused as a misuse: exit code 2, nothing on stdout.
void check_misuse(const std::vector<std::string>& args, const std::string& says) {
  const ExampleFolder folder;
  const Result result = meshtrain(args, folder.path());
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK_MESSAGE(contains(result.err, "error[E140]: "), result.err);
  CHECK_MESSAGE(contains(result.err, says), result.err);
}

// A folder with a finished run of the example: runs/small/latest.
class FinishedRun : public ExampleFolder {
 public:
  FinishedRun() {
    REQUIRE(meshtrain({"train", "small.yaml", "-q"}, path()).exit_code == 0);
    REQUIRE(fs::exists(file("runs/small/latest")));
  }
};

TEST_CASE("a wrong subcommand is one with --help too") {
  check_misuse({"explian", "--help"}, "unknown subcommand `explian`; did you mean `explain`?");
  check_misuse({"--help", "validat"}, "unknown subcommand `validat`; did you mean `validate`?");
  check_misuse({"data", "fetchh", "--help"}, "unknown subcommand `fetchh`; did you mean `fetch`?");
  check_misuse({"data", "fetchh"}, "unknown subcommand `fetchh`; did you mean `fetch`?");
  check_misuse({"data"}, "`data` needs a subcommand: fetch or inspect");
  check_misuse({"version", "please"}, "`please` is a word too many");
  const Result help = meshtrain({"data", "--help"}, ".");
  CHECK(help.exit_code == 0);
  CHECK(contains(help.out, "inspect"));
}

TEST_CASE("words of other programs lead to ours") {
  check_misuse({"--mesh", "4x2", "train", "small.yaml"},
               "`--mesh` belongs after the subcommand; write `meshtrain train --mesh`\n");
  check_misuse({"--dir=x", "data", "fetch", "mnist"}, "write `meshtrain data fetch --dir=x`\n");
  check_misuse({"small.yaml"},
               "unknown subcommand `small.yaml`; write `meshtrain train small.yaml`\n");
  check_misuse({"fit", "small.yaml"}, "unknown subcommand `fit`; did you mean `train`?\n");
  check_misuse({"test", "small.yaml"}, "unknown subcommand `test`; did you mean `evaluate`?\n");
  check_misuse({"train", "small.yaml", "--fit.epochs=3"},
               "unknown option `--fit.epochs=3`; write `fit.epochs=3`\n");
  check_misuse({"train", "small.yaml", "--data.shuffle", "false"}, "write `data.shuffle=VALUE`\n");
  check_misuse({"train", "small.yaml", "--lr", "0.1"},
               "write `compile.optimizer.learning_rate=VALUE`\n");
  check_misuse({"plan", "small.yaml", "--learning-rate=0.1"},
               "write `compile.optimizer.learning_rate=0.1`\n");
  check_misuse({"generate", "run", "--top-k", "5"},
               "unknown option `--top-k`; write `--sampler top_k=40`\n");
  check_misuse({"generate", "run", "--greedy"}, "write `--sampler greedy`\n");
}

TEST_CASE("a word after --resume is not its value") {
  check_misuse({"train", "small.yaml", "--resume", "best"},
               "`best` is no config\n  = help: write --resume=best\n");
  check_misuse({"launch", "-r", "latest", "small.yaml"},
               "`latest` is no config\n  = help: write --resume=latest\n");
  check_misuse({"train", "small.yaml", "-r=best"}, "write `--resume=best`\n");
  const ExampleFolder folder;
  CHECK(contains(meshtrain({"train", "small.yaml", "best"}, folder.path()).err, "error[E100]"));
  folder.write("best", "fit: {epochs: 1}\n");  // a config may be called so
  const Result result = meshtrain({"train", "small.yaml", "best", "--resume", "-n"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
}

TEST_CASE("what a flag cannot be is said in words") {
  check_misuse({"train", "small.yaml", "--log-format", "jsonl"},
               "--log-format: must be keras or plain or json, not `jsonl`");
  check_misuse({"train", "small.yaml", "--restarts", "-1"},
               "--restarts: must be a whole number from 0 to 1000000, not `-1`");
  check_misuse({"verify", "small.yaml", "--tolerance", "much"},
               "--tolerance: must be a number, at least 0; not `much`");
  check_misuse({"bench", "comm", "--seconds", "100"},
               "--seconds: must be a number from 0.001 to 60, not `100`");
  check_misuse({"train", "small.yaml", "--seed"}, "--seed needs a value: N");
  check_misuse({"launch", "small.yaml", "-n", "4"}, "unknown option `-n`");
}

// A script's variable that is empty, or that was never set.
TEST_CASE("a flag without its value is refused by every subcommand") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> subcommands = {
      {"train", {"small.yaml"}},   {"launch", {"small.yaml"}},
      {"plan", {"small.yaml"}},    {"evaluate", {"small.yaml"}},
      {"resume", {"run"}},         {"predict", {"small.yaml", "-i", "x.npy", "-o", "y.npy"}},
      {"verify", {"small.yaml"}},  {"export", {"small.yaml", "-o", "x.npz"}},
      {"summary", {"small.yaml"}}, {"validate", {"small.yaml"}}};
  for (const auto& [subcommand, words] : subcommands) {
    std::vector<std::string> given = {subcommand};
    given.insert(given.end(), words.begin(), words.end());
    const auto check = [&](std::vector<std::string> more, const std::string& flag) {
      more.insert(more.begin(), given.begin(), given.end());
      check_misuse(more,
                   "`" + flag + "` has no value\n  = help: meshtrain " + subcommand + " --help\n");
    };
    for (const std::string flag : {"--mesh", "--devices", "--seed", "--name", "--set"}) {
      check({flag, ""}, flag);
      check({flag + "=", "batch_size=3"}, flag);
      check({flag, "--batch-size=3"}, flag);
      check({flag, "--help=x"}, flag);
    }
    check({"--seed="}, "--seed");
    if (subcommand == "evaluate" || subcommand == "predict" || subcommand == "export") {
      check({"-w", ""}, "--weights");
      check({"--weights", "--mesh"}, "--weights");
    }
  }
  check_misuse({"train", "small.yaml", "--resume="}, "`--resume` has no value");
  check_misuse({"train", "small.yaml", "--name", "-q"}, "`--name` has no value");
  check_misuse({"train", "small.yaml", "--restarts", ""}, "`--restarts` has no value");
  check_misuse({"config", "show", "small.yaml", "--name=", "fit.epochs=7"},
               "`--name` has no value\n  = help: meshtrain config show --help\n");
  check_misuse({"summary", "small.yaml", "--sharding="}, "`--sharding` has no value");
  check_misuse({"bench", "comm", "--mesh", ""}, "`--mesh` has no value");
  check_misuse({"data", "fetch", "mnist", "--dir", ""}, "`--dir` has no value");
  check_misuse({"report", "run", "-o", ""}, "`--output` has no value");
  check_misuse({"train", "small.yaml", "-o=out"}, "write `-o out`, not `-o=out`");
  check_misuse({"train", "small.yaml", "-o="}, "write `-o DIR`, not `-o=DIR`");
  // A minus that begins no flag.
  check_misuse({"train", "small.yaml", "--restarts", "-1"}, "must be a whole number");
  const ExampleFolder folder;
  CHECK(meshtrain({"plan", "small.yaml", "--name", "-x"}, folder.path()).exit_code == 0);
}

TEST_CASE("what cannot act is refused") {
  check_misuse({"train", "small.yaml", "--allow", "nope"},
               "`--allow nope`: no such key keeps a run from resuming");
  check_misuse({"resume", "run", "--allow", "fit.epochs"}, "one of data.train, seed, ");
  check_misuse({"launch", "small.yaml", "--hostfile", "nope"},
               "--hostfile: cannot open `nope`: No such file or directory");
  check_misuse({"evaluate", "small.yaml", "-v"}, "unknown option `-v`");
  const ExampleFolder folder;
  const Result name =
      meshtrain({"train", "small.yaml", "--name", std::string(300, 'a')}, folder.path());
  CHECK(name.exit_code == 2);
  CHECK(contains(name.err,
                 "error[E113]: `name` must be usable as a folder's name: 300 bytes, at most 255"));
  CHECK(contains(meshtrain({"explain", "Pipeline"}, ".").out, "not supported"));
}

TEST_CASE("a value that is given twice and differs is reported") {
  check_misuse({"train", "small.yaml", "--epochs", "5", "fit.epochs=3"},
               "`fit.epochs` is given twice: --epochs 5 and fit.epochs=3");
  check_misuse({"plan", "small.yaml", "--set", "seed=1", "--seed=2"},
               "`seed` is given twice: --seed 2 and seed=1");
  check_misuse({"plan", "small.yaml", "--devices=cpu:4", "~distribution.device_mesh.devices"},
               "is given twice: --devices cpu:4 and ~distribution.device_mesh.devices");
  const ExampleFolder folder;
  CHECK(meshtrain({"plan", "small.yaml", "--seed=2", "seed=2"}, folder.path()).exit_code == 0);
  CHECK(meshtrain({"plan", "small.yaml", "seed=2", "seed=3"}, folder.path()).exit_code == 0);
  const auto with_variable = [&](const std::string& value, const std::string& word) {
    Command command;
    command.args = {"validate", "small.yaml", word};
    command.environment = {"MESHTRAIN_DEVICES=" + value};
    command.folder = folder.path();
    const Result result = run(command);
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    return result.err;
  };
  CHECK(contains(with_variable("cpu:3", "--devices=cpu:4"),
                 "warning[W140]: `--devices cpu:4` counts, not MESHTRAIN_DEVICES=cpu:3\n"));
  CHECK(contains(with_variable("cpu:3", "distribution.device_mesh.devices=cpu:4"),
                 "warning[W140]: `distribution.device_mesh.devices=cpu:4` counts, not "
                 "MESHTRAIN_DEVICES=cpu:3\n"));
  CHECK(with_variable("cpu:4", "--devices=cpu:4").empty());
}

TEST_CASE("too few devices of the environment are said to be of there") {
  const ExampleFolder folder;
  Command command;
  command.args = {"validate", "small.yaml", "--mesh", "2x4"};
  command.environment = {"MESHTRAIN_DEVICES=cpu:4"};
  command.folder = folder.path();
  const Result result = run(command);
  CHECK(contains(result.err, "error[E210]: the mesh (2, 4) needs 8 devices, `cpu:4` has 4"));
  CHECK_MESSAGE(contains(result.err,
                         "help: `unset MESHTRAIN_DEVICES`, or MESHTRAIN_DEVICES=cpu:8, or "
                         "`--devices cpu:8`, which wins\n"),
                result.err);
  CHECK_FALSE(contains(result.err, "`devices: cpu:8`"));
}

TEST_CASE("flags of epochs and steps are where they act") {
  for (const std::string flag : {"--epochs", "--limit-steps"}) {
    check_misuse({"predict", "run", "-i", "x.npy", "-o", "y.npy", flag, "1"},
                 "unknown option `" + flag + "`");
    check_misuse({"export", "small.yaml", "-o", "x.npz", flag, "1"},
                 "unknown option `" + flag + "`");
    check_misuse({"data", "inspect", "small.yaml", flag, "1"}, "unknown option `" + flag + "`");
    check_misuse({"verify", "small.yaml", flag, "1"}, "unknown option `" + flag + "`");
  }
  check_misuse({"evaluate", "run", "--epochs", "1"}, "unknown option `--epochs`");
  const FinishedRun folder;  // 20 samples to test, 16 a batch
  const auto steps = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"evaluate", "runs/small/latest"});
    const Result result = meshtrain(more, folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    return result.out.substr(0, result.out.find(' '));
  };
  CHECK(steps({}) == "2/2");
  CHECK(steps({"--limit-steps", "1"}) == "1/1");
  CHECK(steps({"--limit-steps=9"}) == "2/2");
}

TEST_CASE("help is in our words") {
  for (const char* subcommand :
       {"train", "launch", "verify", "summary", "resume", "predict", "report"}) {
    CAPTURE(subcommand);
    const Result help = meshtrain({subcommand, "--help"}, ".");
    CHECK(help.exit_code == 0);
    for (const char* foreign :
         {"REQUIRED", "INT in", "FLOAT in", "{auto}", "...]...", "... ...", "TEXT", "\n\n\n"}) {
      CHECK_MESSAGE(!contains(help.out, foreign), foreign, "\n", help.out);
    }
  }
  const std::string train = meshtrain({"train", "--help"}, ".").out;
  CHECK(contains(train, "[OPTIONS] CONFIG... [KEY=VALUE...]\n"));
  CHECK(contains(train, "  -r, --resume[=auto|latest|best|PATH]\n"));
  CHECK(contains(train, "  -n, --dry-run "));
  CHECK(contains(train, "As --resume=best"));
  CHECK(contains(meshtrain({"verify", "--help"}, ".").out, "; default 4\n"));
  CHECK(contains(meshtrain({"predict", "--help"}, ".").out, "  -o, --output Y.npy "));
  CHECK(contains(meshtrain({"report", "--help"}, ".").out, "  -o, --output FILE "));
  const std::string all = meshtrain({"--help"}, ".").out;
  CHECK(contains(all, "meshtrain [OPTIONS] SUBCOMMAND\n"));
  CHECK(contains(all, "\nSubcommands:\n  train "));
}

TEST_CASE("every file of app/subcommands is a subcommand") {
  const std::string all = meshtrain({"--help"}, ".").out;
  size_t listed = 0;
  for (const auto& entry : fs::directory_iterator(MESHTRAIN_SOURCE_DIR "/app/subcommands")) {
    std::string name = entry.path().stem().string();
    CAPTURE(name);
    std::replace(name.begin(), name.end(), '_', ' ');
    const size_t space = name.find(' ');
    std::vector<std::string> words = {name.substr(0, space)};
    CHECK(contains(all, "\n  " + words[0] + " "));
    if (space != std::string::npos) {
      words.push_back(name.substr(space + 1));
      CHECK(contains(meshtrain({words[0], "--help"}, ".").out, "\n  " + words[1] + " "));
    }
    words.push_back("--help");
    const Result help = meshtrain(words, ".");
    CHECK(help.exit_code == 0);
    CHECK_MESSAGE(contains(help.out, "Usage: meshtrain " + name + " "), help.out);
    ++listed;
  }
  CHECK(listed > 20);
}

TEST_CASE("validate knows what data without a file are") {
  const ExampleFolder folder;
  folder.write("digits.yaml", R"(
model: {layers: [{Input: {shape: [28, 28, 1]}}, {Dense: 10}]}
compile: {loss: sparse_categorical_crossentropy}
data: {train: digits}
)");
  // Labels are looked at, too, before they are drawn.
  const Result classes = meshtrain({"validate", "digits.yaml",
                                    "model.layers=[{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: "
                                    "{units: 5, activation: softmax}}]"},
                                   folder.path());
  CHECK(classes.exit_code == 3);
  CHECK_MESSAGE(contains(classes.err, "the 5 classes are the whole numbers 0..4"), classes.err);
  // As train says it.
  const auto check = [&](std::vector<std::string> args, int code, const std::string& says) {
    for (const char* subcommand : {"validate", "train"}) {
      args[0] = subcommand;
      const Result result = meshtrain(args, folder.path());
      CHECK(result.exit_code == code);
      CHECK_MESSAGE(contains(result.err, says), result.err);
    }
  };
  check({"validate", "digits.yaml"}, 2, "error[E123]");
  check({"validate", "digits.yaml", "model.layers[0].Input.shape=[28,28]"}, 3,
        "error[E324]: samples have shape (28, 28, 1), input `input_layer` takes (28, 28)");
  check(
      {"validate", "small.yaml", "data.test={source: random, samples: 9, shape: [9], classes: 3}"},
      3, "the test data have samples of shape (9,), the train data (6,)");
  check({"validate", "small.yaml", "data.train={source: random, samples: 9, shape: [6]}"}, 3,
        "the train data have no labels");
  check({"validate", "small.yaml", "data.transform=[{Reshape: {target_shape: [4]}}]"}, 3,
        "error[E304]");
  // Of files that they are there, and their headers.
  check({"validate", "small.yaml", "data.train={source: npz, path: nothing.npz}"}, 3,
        "error[E300]: cannot open `nothing.npz`: No such file or directory");
  check({"validate", "small.yaml", "data.train={source: npy, x: x*.npy}"}, 3,
        "error[E300]: no file matches `x*.npy`");
  check({"validate", "small.yaml", "data.train={source: image_folder, directory: nothing}"}, 3,
        "error[E300]: there is no folder `nothing`");
  folder.write("some.npz", "no archive");
  check({"validate", "small.yaml", "data.train={source: npz, path: some.npz}"}, 3, "error[E306]");
  // Both at once.
  const Result both = meshtrain(
      {"validate", "small.yaml", "data.train={source: npz, path: nothing.npz}", "--mesh", "1x3"},
      folder.path());
  CHECK(contains(both.err, "error[E300]"));
  CHECK(contains(both.err, "error[E204]"));
}

TEST_CASE("validate names the config wherever it stands") {
  const ExampleFolder folder;
  const Result result = meshtrain({"validate", "distribution.zero=1", "small.yaml"}, folder.path());
  CHECK(result.out == "small.yaml: 0 errors, 0 warnings\n");
}

TEST_CASE("devices of the command line are shown where they do not make the mesh") {
  const ExampleFolder folder;
  const Result flag = meshtrain({"plan", "small.yaml", "--devices", "cpu:6"}, folder.path());
  CHECK(flag.exit_code == 4);
  CHECK_MESSAGE(contains(flag.err, R"( --> command line:1:11
  |
1 | --devices cpu:6
  |           ^^^^^
  = note: `shape` is at small.yaml:8:12
)"),
                flag.err);
  const Result file =
      meshtrain({"plan", "small.yaml", "--mesh", "2x4", "distribution.device_mesh.devices=cpu:4"},
                folder.path());
  CHECK_MESSAGE(contains(file.err, "  = note: `shape` is at command line:1:8\n"), file.err);
  std::string text = kExample;
  text.replace(text.find("    axis_names"), 0, "    devices: cpu:8\n");
  folder.write("eight.yaml", text);
  const Result both = meshtrain({"plan", "eight.yaml"}, folder.path());
  CHECK_MESSAGE(contains(both.err, " --> eight.yaml:8:12\n"), both.err);
  CHECK_MESSAGE(contains(both.err, "  = note: `devices` is at eight.yaml:9:14\n"), both.err);
}

TEST_CASE("a key without its equals sign gets advice") {
  check_misuse({"train", "small.yaml", "fit.epochs", "3"}, "write fit.epochs=3\n");
  check_misuse({"train", "small.yaml", "fit.epochs"}, "write fit.epochs=VALUE\n");
  check_misuse({"plan", "small.yaml", "compile.optimizer.learning_rate", "0.1"},
               "write compile.optimizer.learning_rate=0.1\n");
  const ExampleFolder folder;
  CHECK(contains(meshtrain({"train", "fit.epoch"}, folder.path()).err, "error[E100]"));
  folder.write("name", kExample);  // a config may be called so
  CHECK(meshtrain({"plan", "name"}, folder.path()).exit_code == 0);
}

TEST_CASE("what is not the run itself leads to it") {
  const FinishedRun folder;
  const auto check = [&](const std::vector<std::string>& args, int code,
                         const std::vector<std::string>& says) {
    const Result result = meshtrain(args, folder.path());
    CHECK(result.exit_code == code);
    for (const std::string& part : says) {
      CHECK_MESSAGE(contains(result.err, part), result.err);
    }
  };
  for (const char* subcommand : {"resume", "inspect", "report", "verify", "evaluate"}) {
    check({subcommand, "runs/small"}, 0, {});  // its newest run
  }
  for (const char* subcommand : {"resume", "inspect"}) {
    check({subcommand, "runs/smal/latest"}, 6,
          {"error[E400]: there is no folder `runs/smal/latest`\n", "= help: in `runs`: small\n"});
    check({subcommand, "run/small/latest"}, 6, {"= help: in this folder: runs"});
  }
  for (const char* subcommand : {"verify", "evaluate"}) {
    check({subcommand, "."}, 6, {"error[E400]: `.` is no run and no checkpoint\n"});
    check({subcommand, "runs/small/latest", "--profile", "debug"}, 2,
          {"error[E140]: `--profile debug`: the config of `runs/small/latest` has no profiles"});
  }
  check({"resume", "runs/small/latest", "--profile", "debug"}, 2, {"error[E140]: `--profile"});
  check({"plan", "runs/small/latest"}, 2,
        {"error[E140]: `runs/small/latest` is a run, no config\n",
         "= help: `meshtrain resume runs/small/latest` continues it\n"});
}

TEST_CASE("a run that is done says that nothing is left") {
  const FinishedRun folder;
  const Result done = meshtrain({"resume", "runs/small/latest"}, folder.path());
  CHECK(done.exit_code == 0);
  CHECK_MESSAGE(contains(done.err, "\nnothing left to train: 2 epochs are done, fit.epochs is 2\n"),
                done.err);
  const Result fewer = meshtrain({"resume", "runs/small/latest", "--epochs", "1"}, folder.path());
  CHECK_MESSAGE(
      contains(fewer.err, "\nnothing left to train: 2 epochs are done, fit.epochs is 1\n"),
      fewer.err);
  const Result more = meshtrain({"resume", "runs/small/latest", "--epochs", "3"}, folder.path());
  CHECK(contains(more.out, "Epoch 3/3\n"));
  CHECK_FALSE(contains(more.err, "nothing left"));
}

TEST_CASE("an object that came or went is one line of what changed") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "callbacks=[{EarlyStopping: {patience: 9}}]",
                     "data.validation={source: random, samples: 8, shape: [6], classes: 3}", "-o",
                     "run", "-q"},
                    folder.path())
              .exit_code == 0);
  const Result gone =
      meshtrain({"resume", "run", "fit.epochs=3", "~callbacks", "-o", "next"}, folder.path());
  CHECK_MESSAGE(contains(gone.err,
                         "changed since\n"
                         "  fit.epochs                 2 -> 3\n"
                         "  callbacks.0.EarlyStopping  gone\n"),
                gone.err);
  const Result back = meshtrain(
      {"resume", "next", "fit.epochs=4", "callbacks=[{EarlyStopping: {patience: 9}}, TensorBoard]"},
      folder.path());
  CHECK_MESSAGE(contains(back.err,
                         "  callbacks.0.EarlyStopping  new\n"
                         "  callbacks.1.TensorBoard    new\n"),
                back.err);
  CHECK_FALSE(contains(back.err, "(none)"));
}

TEST_CASE("export takes a run with its config and weights") {
  const FinishedRun folder;
  const Result own = meshtrain({"export", "runs/small/latest", "-o", "own.npz"}, folder.path());
  CHECK(own.exit_code == 0);
  CHECK_MESSAGE(contains(own.err, "/weights.safetensors\nwrote own.npz\n"), own.err);
  REQUIRE(meshtrain({"export", "small.yaml", "-w", "runs/small/latest/weights.safetensors", "-o",
                     "named.npz"},
                    folder.path())
              .exit_code == 0);
  CHECK(folder.read("own.npz") == folder.read("named.npz"));
  // Of a run that was not finished, the newest checkpoint's.
  fs::remove(fs::canonical(folder.file("runs/small/latest")) / "weights.safetensors");
  REQUIRE(meshtrain({"export", "runs/small/latest", "-o", "kept.npz"}, folder.path()).exit_code ==
          0);
  CHECK(folder.read("kept.npz") == folder.read("named.npz"));
  CHECK(meshtrain({"export", "small.yaml", "-qw", "runs/small/latest", "-o", "x.keras"},
                  folder.path())
            .err.empty());
  CHECK(meshtrain({"export", "runs/small/latest", "-o", "model.json"}, folder.path()).err ==
        "wrote model.json\n");
  CHECK(meshtrain({"export", "runs/small", "-o", "x.npz"}, folder.path()).exit_code == 0);
  CHECK(folder.read("x.npz") == folder.read("named.npz"));
  CHECK(contains(meshtrain({"export", "runs", "-o", "x.npz"}, folder.path()).err,
                 "error[E400]: `runs` is no run and no checkpoint\n"));
  CHECK(contains(meshtrain({"export", "small.yaml", "-o", "x.npz"}, folder.path()).err,
                 "no weights given"));
}

TEST_CASE("export names the weights beside a script") {
  const FinishedRun folder;
  const Result with = meshtrain(
      {"export", "small.yaml", "-w", "runs/small/latest/weights.safetensors", "-o", "model.py"},
      folder.path());
  CHECK(with.err == "wrote model.py and model.weights.h5\n");
  const Result without = meshtrain({"export", "small.yaml", "-o", "model.py"}, folder.path());
  CHECK(without.err == "wrote model.py\n");
}

TEST_CASE("every template is listed with a whole sentence in a column of its own") {
  const std::vector<std::string> lines = lines_of(meshtrain({"init"}, ".").out);
  REQUIRE(lines.size() >= 10);
  const auto sentence_at = [](const std::string& line) {
    return line.find_first_not_of(' ', line.find(' '));
  };
  for (const std::string& line : lines) {
    CHECK_MESSAGE(line.back() == '.', line);
    CHECK_MESSAGE(line.size() < 200, line);
    CHECK_MESSAGE(sentence_at(line) == sentence_at(lines[0]), line);
  }
}

// Readers of YAML 1.1 take a bare `on` for true.
TEST_CASE("no key that is shown is a word of YAML 1.1") {
  const TemporaryFolder folder;
  for (const std::string& line : lines_of(meshtrain({"init"}, ".").out)) {
    const std::string name = line.substr(0, line.find(' '));
    folder.write(name + ".yaml", meshtrain({"init", name}, ".").out);
    const std::string shown = meshtrain({"config", "show", name + ".yaml"}, folder.path()).out;
    CHECK(contains(shown, "  \"on\": "));
    for (const std::string& text : {folder.read(name + ".yaml"), shown}) {
      CHECK_MESSAGE(!contains(text, " on: "), name);
      CHECK_MESSAGE(!contains(text, "{on: "), name);
    }
  }
}

}  // namespace
}  // namespace meshtrain
