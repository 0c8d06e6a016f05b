// Callbacks as users meet them: files, kills, the same command again.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "example.h"
#include "outcome.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kValidation =
    "data.validation={source: random, samples: 20, shape: [6], classes: 3, seed: 2}";

std::vector<Json> epochs_of(const ExampleFolder& folder, const std::string& run) {
  std::vector<Json> out;
  for (const std::string& line : lines_of(folder.read(run + "/metrics.jsonl"))) {
    const Json event = parse_json(line);
    if (event.at("event") == "epoch") {
      out.push_back({event.at("epoch"), event.at("logs")});
    }
  }
  return out;
}

std::vector<std::string> runs_of(const ExampleFolder& folder) {
  std::vector<std::string> names = names_below(folder.file("runs/small"));
  std::erase(names, "latest");
  return names;
}

// Kills the command once stdout shows `text`.
Result run_and_kill(const ExampleFolder& folder, std::vector<std::string> args,
                    const std::string& text) {
  Command command;
  command.args = std::move(args);
  command.folder = folder.path();
  command.watch = [text](const std::string& out, const std::string&, int pid) {
    return out.find(text) != std::string::npos && kill(pid, SIGKILL) == 0;
  };
  return run(command);
}

TEST_CASE("killed at any time a run with callbacks ends the same with the same command") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {
      "train",
      "small.yaml",
      "--epochs",
      "400",
      kValidation,
      "checkpoint.every=2 steps",
      "callbacks+={LearningRateScheduler: '=lr * 0.9999'}",
      "callbacks+={ReduceLROnPlateau: {patience: 6, factor: 0.5, min_delta: 0.0005, verbose: 1}}",
      "callbacks+={ModelCheckpoint: {filepath: 'best/{epoch:03d}.safetensors', save_best_only: "
      "true, keep: 4}}",
      "callbacks+={ModelCheckpoint: {filepath: 'all/{step:05d}', save_freq: 7, keep: 2}}",
      "callbacks+={EarlyStopping: {patience: 60, min_delta: 0.001, restore_best_weights: true, "
      "verbose: 1}}"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Result whole = meshtrain(with({"-o", "whole"}), folder.path());
  REQUIRE_MESSAGE(whole.exit_code == 0, whole.err);
  CHECK(whole.out.find("ReduceLROnPlateau reducing learning rate to 0.0") != std::string::npos);
  CHECK(whole.out.find("early stopping\nRestoring model weights from the end of the best epoch") !=
        std::string::npos);
  const std::vector<Json> epochs = epochs_of(folder, "whole");
  REQUIRE(epochs.size() < 400);
  int kills = 0;
  for (const size_t percent : {3, 20, 50, 80, 95}) {
    const size_t epoch = std::max<size_t>(epochs.size() * percent / 100, 1);
    const Result killed = run_and_kill(folder, with({"-o", "run", "--resume"}),
                                       "Epoch " + std::to_string(epoch) + "/");
    kills += killed.exit_code == 128 + SIGKILL ? 1 : 0;
  }
  CHECK(kills >= 3);
  const Result rest = meshtrain(with({"-o", "run", "--resume"}), folder.path());
  REQUIRE_MESSAGE(rest.exit_code == 0, rest.err);
  CHECK(epochs_of(folder, "run") == epochs);
  CHECK(folder.read("run/metrics.csv") == folder.read("whole/metrics.csv"));
  CHECK(lines_of(folder.read("run/metrics.csv")).size() == epochs.size() + 1);
  CHECK(folder.read("run/weights.safetensors") == folder.read("whole/weights.safetensors"));
  CHECK(names_below(folder.file("run/best")) == names_below(folder.file("whole/best")));
  CHECK(names_below(folder.file("run/best")).size() == 4);
  for (const std::string& name : names_below(folder.file("whole/best"))) {
    CHECK(folder.read("run/best/" + name) == folder.read("whole/best/" + name));
  }
  CHECK(names_below(folder.file("run/all")) == names_below(folder.file("whole/all")));
  // A run that stopped early has nothing more to do.
  const Result again = meshtrain(with({"-o", "run", "--resume"}), folder.path());
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("Epoch ") ==
        again.out.find("Epoch " + std::to_string(epochs.size()) + ": early stopping"));
  CHECK(folder.read("run/weights.safetensors") == folder.read("whole/weights.safetensors"));
  CHECK(folder.read("run/metrics.csv") == folder.read("whole/metrics.csv"));
}

TEST_CASE("the same command again begins from the newest file of ModelCheckpoint") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {
      "train", "small.yaml",
      "callbacks+={ModelCheckpoint: {filepath: 'ckpt/ckpt-{epoch}.keras', restore: true}}"};
  const Result first = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(first.exit_code == 0, first.err);
  CHECK(first.err.find("begun from") == std::string::npos);
  const std::string run = "runs/small/" + runs_of(folder).at(0);
  CHECK(names_below(folder.file(run + "/ckpt")) ==
        std::vector<std::string>{"ckpt-1.keras", "ckpt-2.keras"});
  const Result second = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(second.exit_code == 0, second.err);
  CHECK(second.err.find("begun from  " + run + "/ckpt/ckpt-2.keras: its weights\n") !=
        std::string::npos);
  REQUIRE(runs_of(folder).size() == 2);
  // The same with the path of the weights in the config.
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "given", "-q",
                     "fit.initial_weights=" + run + "/ckpt/ckpt-2.keras"},
                    folder.path())
              .exit_code == 0);
  CHECK(folder.read("runs/small/latest/weights.safetensors") ==
        folder.read("given/weights.safetensors"));
  CHECK(epochs_of(folder, "runs/small/latest") == epochs_of(folder, "given"));
}

TEST_CASE("a folder as ModelCheckpoint's path keeps the optimizer too") {
  const ExampleFolder folder;
  const std::string place = folder.file("shared/ckpt-{epoch}");
  const std::vector<std::string> words = {
      "train", "small.yaml", "compile.optimizer={SGD: {learning_rate: 0.1, momentum: 0.9}}",
      "callbacks+={ModelCheckpoint: {filepath: '" + place + "', restore: true, verbose: 1}}"};
  const auto with_dir = [&](const char* dir) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"-o", dir});
    return all;
  };
  const Result first = meshtrain(with_dir("one"), folder.path());
  REQUIRE_MESSAGE(first.exit_code == 0, first.err);
  CHECK(first.out.find("\nEpoch 2: saving model to " + folder.file("shared/ckpt-2") + "\n") !=
        std::string::npos);
  CHECK(first.out.find("\nEpoch 2: finished saving model to ") != std::string::npos);
  CHECK(meshtrain({"verify", "shared/ckpt-2"}, folder.path()).exit_code == 0);
  const Result second = meshtrain(with_dir("two"), folder.path());
  REQUIRE_MESSAGE(second.exit_code == 0, second.err);
  CHECK(second.err.find("shared/ckpt-2: weights and optimizer\n") != std::string::npos);
  CHECK(meshtrain({"verify", "shared/ckpt-2"}, folder.path()).exit_code == 0);
  CHECK(names_below(folder.file("shared")) == std::vector<std::string>{"ckpt-1", "ckpt-2"});
  // A checkpoint like any other: resumable in the middle of its epoch.
  const Result resumed = meshtrain(
      {"train", "small.yaml", "-o", "three", "fit.epochs=3",
       "compile.optimizer={SGD: {learning_rate: 0.1, momentum: 0.9}}", "--resume=shared/ckpt-1"},
      folder.path());
  CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
  CHECK(resumed.out.find("Epoch 2/3\n") == 0);
}

TEST_CASE("ModelCheckpoint with keep deletes nothing that it did not write") {
  const ExampleFolder folder;
  fs::create_directories(folder.file("mine/m-1"));
  folder.write("mine/m-1/thesis.txt", "mine");
  const std::string place = folder.file("mine/m-{epoch}");
  const Result result =
      meshtrain({"train", "small.yaml", "-o", "run", "fit.epochs=3",
                 "callbacks+={ModelCheckpoint: {filepath: '" + place + "', keep: 1}}"},
                folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("it is not replaced; training continues") != std::string::npos);
  CHECK(folder.read("mine/m-1/thesis.txt") == "mine");
  CHECK(names_below(folder.file("mine")) == std::vector<std::string>{"m-1", "m-3"});
  const Result both = meshtrain({"train", "small.yaml", "checkpoint.keep_every=2 epochs",
                                 "callbacks+={BackupAndRestore: {backup_dir: backup}}"},
                                folder.path());
  CHECK(both.exit_code == 2);
  CHECK(both.err.find("`BackupAndRestore` deletes all at the end") != std::string::npos);
}

TEST_CASE("BackupAndRestore: the same command resumes after a kill and begins anew after the end") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {
      "train", "small.yaml", "--epochs", "100",
      "callbacks+={BackupAndRestore: {backup_dir: backup, save_freq: 2}}"};
  REQUIRE(run_and_kill(folder, words, "Epoch 30/").exit_code == 128 + SIGKILL);
  const std::string run = "runs/small/" + runs_of(folder).at(0);
  CHECK(fs::exists(folder.file("backup/run/metrics.jsonl")));
  fs::remove(folder.file("runs/small/latest"));  // it is the backup that leads there
  const Result rest = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(rest.exit_code == 0, rest.err);
  CHECK(rest.err.find("resumed     ") != std::string::npos);
  CHECK(runs_of(folder).size() == 1);
  CHECK_FALSE(fs::exists(folder.file("backup")));
  CHECK(names_below(folder.file(run + "/checkpoints")) == std::vector<std::string>{"LOCK"});
  REQUIRE(meshtrain({"train", "small.yaml", "--epochs", "100", "-o", "whole", "-q"}, folder.path())
              .exit_code == 0);
  CHECK(folder.read(run + "/weights.safetensors") == folder.read("whole/weights.safetensors"));
  CHECK(meshtrain(words, folder.path()).exit_code == 0);
  CHECK(runs_of(folder).size() == 2);
}

TEST_CASE("a file where BackupAndRestore would put its link stays") {
  const ExampleFolder folder;
  fs::create_directory(folder.file("backup"));
  folder.write("backup/run", "mine");
  const Result result = meshtrain(
      {"train", "small.yaml", "-q", "callbacks+={BackupAndRestore: {backup_dir: backup}}"},
      folder.path());
  CHECK(result.exit_code == 74);
  CHECK_MESSAGE(result.err.find("cannot put a link at `backup/run`") != std::string::npos,
                result.err);
  CHECK(folder.read("backup/run") == "mine");
}

TEST_CASE("a slash after the folder of ModelCheckpoint is none of its name") {
  const ExampleFolder folder;
  const Result result =
      meshtrain({"train", "small.yaml", "-q", "-o", "run",
                 "callbacks+={ModelCheckpoint: {filepath: 'all/{epoch}/', restore: true}}"},
                folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(names_below(folder.file("run/all")) == std::vector<std::string>{"1", "2"});
}

TEST_CASE(
    "a run that begins from a checkpoint with averages in the weights' place puts them back") {
  const ExampleFolder folder;
  const auto train = [&](bool swap, const std::string& rate) {
    const std::string optimizer =
        "compile.optimizer={Adam: {use_ema: true, ema_momentum: 0.9, "
        "learning_rate: " +
        rate + "}}";
    std::vector<std::string> words = {"train",
                                      "small.yaml",
                                      "-q",
                                      "--name",
                                      swap ? "swap" : "plain",
                                      optimizer,
                                      "callbacks=[{ModelCheckpoint: {filepath: \"all/{epoch}/\", "
                                      "restore: true}}]"};
    if (swap) {
      words.emplace_back("callbacks+={SwapEMAWeights: {swap_on_epoch: true}}");
    }
    const Result result = meshtrain(words, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  };
  for (const bool swap : {false, true}) {
    train(swap, "0.1");
    train(swap, "0.0");  // resumes from the weights as they are
  }
  CHECK(outcome_of(folder.file("runs/swap/latest")).epochs ==
        outcome_of(folder.file("runs/plain/latest")).epochs);
}

TEST_CASE("two runs of a name share a folder of TensorBoard beside them") {
  const ExampleFolder folder;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(meshtrain({"train", "small.yaml", "-q", "callbacks=[{TensorBoard: {log_dir: ../tb}}]"},
                      folder.path())
                .exit_code == 0);
  }
  CHECK(names_below(folder.file("runs/small/tb/train")).size() == 2);
}

TEST_CASE("SwapEMAWeights lets ModelCheckpoint save the averages and survives kills") {
  const ExampleFolder folder;
  const auto train = [](const std::string& dir, bool swap) {
    std::vector<std::string> words = {
        "train",     "small.yaml",
        "-o",        dir,
        "--epochs",  "60",
        kValidation, "compile.optimizer={Adam: {use_ema: true, ema_momentum: 0.9}}",
        "--resume",  "checkpoint.every=2 steps"};
    if (swap) {
      words.emplace_back("callbacks+={SwapEMAWeights: {swap_on_epoch: true}}");
    }
    words.emplace_back("callbacks+={ModelCheckpoint: {filepath: last.safetensors}}");
    return words;
  };
  REQUIRE(meshtrain(train("plain", false), folder.path()).exit_code == 0);
  const Result whole = meshtrain(train("whole", true), folder.path());
  REQUIRE_MESSAGE(whole.exit_code == 0, whole.err);
  const std::string averages = folder.read("whole/weights.safetensors");
  CHECK(folder.read("whole/last.safetensors") == averages);
  CHECK(folder.read("plain/weights.safetensors") == averages);
  CHECK(folder.read("plain/last.safetensors") != averages);
  CHECK(epochs_of(folder, "plain").back()[1]["loss"] ==
        epochs_of(folder, "whole").back()[1]["loss"]);
  CHECK(epochs_of(folder, "plain") != epochs_of(folder, "whole"));  // in val_loss
  run_and_kill(folder, train("run", true), "Epoch 20/");
  run_and_kill(folder, train("run", true), "Epoch 40/");
  REQUIRE(meshtrain(train("run", true), folder.path()).exit_code == 0);
  CHECK(folder.read("run/weights.safetensors") == averages);
  CHECK(epochs_of(folder, "run") == epochs_of(folder, "whole"));
}

TEST_CASE("a loss that is not finite ends training in Keras' words and nothing bad is saved") {
  const ExampleFolder folder;
  const auto train = [](const std::string& dir, const std::string& callback) {
    return std::vector<std::string>{
        "train",
        "small.yaml",
        "-o",
        dir,
        "compile.optimizer={SGD: {learning_rate: 1e25}}",
        "callbacks+={ModelCheckpoint: {filepath: 'at/{epoch}-{batch}.safetensors', save_freq: 1}}",
        "callbacks+=" + callback};
  };
  const Result said = meshtrain(train("said", "TerminateOnNaN"), folder.path());
  CHECK(said.exit_code == 5);
  CHECK(said.err.find("error[E501]: the loss is ") != std::string::npos);
  CHECK(said.out.find("Batch 1: Invalid loss, terminating training\n") != std::string::npos);
  CHECK(names_below(folder.file("said/at")) == std::vector<std::string>{"1-1.safetensors"});
  const Result raised =
      meshtrain(train("raised", "{TerminateOnNaN: {raise_error: true}}"), folder.path());
  CHECK(raised.exit_code == 5);
  CHECK(raised.out.find("Invalid loss") == std::string::npos);
  CHECK(raised.err.find("error[E501]: NaN or Inf loss encountered at batch 1. Loss value: ") !=
        std::string::npos);
}

TEST_CASE("places that cannot be written to are found before anything is made") {
  const ExampleFolder folder;
  const Result result = meshtrain(
      {"train", "small.yaml", "callbacks+={CSVLogger: /proc/none/log.csv}"}, folder.path());
  CHECK(result.exit_code == 74);
  CHECK(result.err.find("error[E142]: cannot write to `/proc/none`") == 0);
  CHECK_FALSE(fs::exists(folder.file("runs")));
}

TEST_CASE("a callback replaces no file that the run reads") {
  const ExampleFolder folder;
  const std::string table = "a,b,y\n1,2,0\n3,4,1\n5,6,2\n";
  folder.write("t.csv", table);
  folder.write("t.yaml", R"(
data: {train: {source: csv, path: t.csv, label: y}}
model: {layers: [{Input: {shape: [2]}}, {Dense: {units: 3, activation: softmax}}]}
compile: {loss: sparse_categorical_crossentropy}
)");
  for (const std::string& file : {folder.file("t.csv"), std::string("../t.csv")}) {
    const Result result = meshtrain(
        {"train", "t.yaml", "-q", "-o", "run", "callbacks=[{CSVLogger: {filename: " + file + "}}]"},
        folder.path());
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(result.err.find("error[E113]: `filename` of `CSVLogger` would replace `") == 0,
                  result.err);
    CHECK(folder.read("t.csv") == table);
    CHECK_FALSE(fs::exists(folder.file("run")));
  }
  CHECK(meshtrain({"validate", "t.yaml",
                   "callbacks=[{ModelCheckpoint: {filepath: " + folder.file("w.keras") +
                       "}}, {CSVLogger: {filename: " + folder.file("t.csv") + "}}]"},
                  folder.path())
            .exit_code == 2);
  CHECK(meshtrain({"train", "t.yaml", "-q", "-o", "run",
                   "callbacks=[{CSVLogger: {filename: ../log.csv}}]"},
                  folder.path())
            .exit_code == 0);
}

TEST_CASE("logs that are removed while a run trains are one plain warning") {
  const ExampleFolder folder;
  const Result result =
      meshtrain({"train", "small.yaml", "-o", "run",
                 "callbacks=[{RunCommand: {command: [rm, -f, run/metrics.jsonl, run/log.txt]}}]"},
                folder.path());
  CHECK(result.exit_code == 0);
  CHECK_MESSAGE(result.err.find("warning: `run/metrics.jsonl` was removed while the run trained: "
                                "there is no report") != std::string::npos,
                result.err);
  CHECK(result.err.find("E400") == std::string::npos);
}

TEST_CASE("a run killed before it said anything is begun again") {
  const ExampleFolder folder;
  for (const char* name : {"empty", "early", "silent"}) {
    fs::create_directories(folder.file(name) + (name[1] == 'm' ? "" : "/checkpoints"));
  }
  folder.write("silent/metrics.jsonl", "");
  for (const std::string name : {"empty", "early", "silent"}) {
    const Result resumed =
        meshtrain({"train", "small.yaml", "-q", "-o", name, "--resume"}, folder.path());
    CHECK_MESSAGE(resumed.exit_code == 0, name, resumed.err);
    CHECK(epochs_of(folder, name).size() == 2);
  }
  fs::create_directories(folder.file("again/checkpoints"));
  CHECK(meshtrain({"train", "small.yaml", "-q", "-o", "again"}, folder.path()).exit_code == 0);
  const Result taken = meshtrain({"train", "small.yaml", "-q", "-o", "again"}, folder.path());
  CHECK(taken.exit_code == 2);
  CHECK(taken.err.find("error[E141]: `again` holds another run") == 0);
  fs::create_directories(folder.file("mine/checkpoints"));
  folder.write("mine/notes.txt", "");
  CHECK(meshtrain({"train", "small.yaml", "-o", "mine", "--resume"}, folder.path()).exit_code == 2);
}

}  // namespace
}  // namespace meshtrain
