// Stopping, resuming and inspecting checkpoints by the command line.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "address_space.h"
#include "base/json.h"
#include "example.h"
#include "outcome.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Outcome outcome(const ExampleFolder& folder, const std::string& run) {
  return outcome_of(folder.file(run));
}

// More epochs than a run can be ahead of what `watch` has seen, which is some 8 KB of them: one
// that is to be stopped is never over before.
const std::string kStoppedEpochs = "300";

// Sends a signal once `out` shows three epochs.
Result run_with_signal(const ExampleFolder& folder, std::vector<std::string> args, int number) {
  Command command;
  command.args = std::move(args);
  command.folder = folder.path();
  command.watch = [number](const std::string& out, const std::string&, int pid) {
    size_t at = out.find("Epoch ");
    for (int epoch = 1; epoch < 3 && at != std::string::npos; ++epoch) {
      at = out.find("Epoch ", at + 1);
    }
    return at != std::string::npos && kill(pid, number) == 0;
  };
  return run(command);
}

// States that a checkpoint must have: those of a stateful layer, in the middle of an epoch as well.
const char* const kStateful = R"(seed: 7
distribution: {device_mesh: {shape: [2, 2], axis_names: [data, model]}}
data:
  shuffle: false
  train: {source: random, samples: 40, shape: [5, 3], labels: [2], seed: 1}
  validation: {source: random, samples: 16, shape: [5, 3], labels: [2], seed: 2}
model:
  layers:
    - Input: {shape: [5, 3], batch_size: 8}
    - RNN: {name: r, cell: [{LSTMCell: {units: 4, recurrent_dropout: 0.2}}, {GRUCell: 3}], stateful: true}
    - Dense: 2
compile: {loss: mse}
fit: {batch_size: 8}
)";

TEST_CASE("a stateful run that is resumed ends as the one that was not stopped") {
  for (const bool resets : {false, true}) {
    const ExampleFolder folder;
    std::ofstream(folder.file("stateful.yaml"))
        << kStateful << (resets ? "callbacks: [{ResetStates: {on_test_begin: false}}]\n" : "");
    const auto train = [&](const char* run, const char* epochs, std::vector<std::string> more) {
      std::vector<std::string> args = {
          "train",    "stateful.yaml", "-o", run,
          "--epochs", epochs,          "-q", "checkpoint.every=3 steps"};
      args.insert(args.end(), more.begin(), more.end());
      const Result result = meshtrain(args, folder.path());
      REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    };
    train("whole", "4", {});
    train("run", "1", {});
    train("run", "3", {"--resume"});
    train("run", "4", {"--resume"});
    CHECK(outcome(folder, "run") == outcome(folder, "whole"));
  }
}

TEST_CASE("a run that a signal stopped resumes with the same command and ends the same") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "whole", "--epochs", kStoppedEpochs, "-q"},
                    folder.path())
              .exit_code == 0);
  const std::vector<std::string> again = {"train",    "small.yaml",   "-o",      "run",
                                          "--epochs", kStoppedEpochs, "--resume"};
  int stops = 0;
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) {
    const Result result = run_with_signal(folder, again, number);
    stops += result.exit_code == 75 ? 1 : 0;
  }
  CHECK(stops > 0);
  const Result rest = meshtrain(again, folder.path());
  CHECK_MESSAGE(rest.exit_code == 0, rest.err);
  CHECK(rest.err.find("resumed     run/checkpoints/") != std::string::npos);
  CHECK(outcome(folder, "run") == outcome(folder, "whole"));
}

// Whether a handler of the process would run.
bool catches(int pid, int number) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:")) {
      return (std::stoull(line.substr(7), nullptr, 16) >> (number - 1)) & 1;
    }
  }
  return false;
}

// A config whose evaluation takes half a second at 1 us a step; weights are there when it begins.
constexpr const char* kEvaluated = R"(data:
  train: {source: random, samples: 40, shape: [6], classes: 3, seed: 1}
  test: {source: random, samples: 600000, shape: [6], classes: 3, seed: 2}
model: {layers: [{Input: {shape: [6]}}, {Dense: {units: 8}}, {Dense: {units: 3}}]}
compile:
  optimizer: {SGD: {learning_rate: 0.1, use_ema: true, ema_momentum: 0.9}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 4, epochs: 3}
evaluate: {batch_size: 1}
)";

// Sends a signal once the weights of the run in `run` are there.
Result stopped_in_evaluation(const ExampleFolder& folder, std::vector<std::string> args,
                             const std::string& run_folder, int number) {
  Command command;
  command.args = std::move(args);
  command.folder = folder.path();
  command.watch = [&](const std::string&, const std::string&, int pid) {
    return fs::exists(folder.file(run_folder + "/weights.safetensors")) && kill(pid, number) == 0;
  };
  return run(command);
}

TEST_CASE("a run that is stopped in the evaluation after training is saved and resumes") {
  const ExampleFolder folder;
  folder.write("evaluated.yaml", kEvaluated);
  REQUIRE(meshtrain({"train", "evaluated.yaml", "-o", "whole", "-q"}, folder.path()).exit_code ==
          0);
  for (const std::string every : {"never", "epoch"}) {
    CAPTURE(every);
    const Result stopped = stopped_in_evaluation(
        folder, {"train", "evaluated.yaml", "-o", every, "-v", "checkpoint.every=" + every}, every,
        SIGTERM);
    CHECK(stopped.exit_code == 75);
    CHECK_MESSAGE(contains(stopped.err,
                           "stopped by SIGTERM in the evaluation after training; all "
                           "of the training is saved"),
                  stopped.err);
    CHECK(fs::exists(folder.file(every + "/checkpoints/000030/manifest.json")));
    fs::remove(folder.file(every + "/weights.safetensors"));
    const Result rest = meshtrain({"resume", every, "-q"}, folder.path());
    CHECK_MESSAGE(rest.exit_code == 0, rest.err);
    CHECK(contains(rest.out + rest.err, "loss"));
    CHECK(folder.read(every + "/weights.safetensors") == folder.read("whole/weights.safetensors"));
  }
}

TEST_CASE("what is said of weights where an evaluation ends without saving is true") {
  const ExampleFolder folder;
  folder.write("evaluated.yaml", kEvaluated);
  const Result trained = stopped_in_evaluation(
      folder, {"train", "evaluated.yaml", "-o", "run", "-v", "run.on_signal={SIGTERM: exit}"},
      "run", SIGTERM);
  CHECK(trained.exit_code == 143);
  CHECK_MESSAGE(contains(trained.err,
                         "terminated after training, in the evaluation; the weights "
                         "are in run/weights.safetensors"),
                trained.err);
  Command command;
  command.args = {"evaluate", "evaluated.yaml", "-w", "run/weights.safetensors"};
  command.folder = folder.path();
  command.watch = [](const std::string&, const std::string&, int pid) {
    return catches(pid, SIGTERM) && kill(pid, SIGTERM) == 0;
  };
  const Result evaluated = run(command);
  CHECK(evaluated.exit_code == 143);
  CHECK_MESSAGE(contains(evaluated.err, "terminated after step "), evaluated.err);
  CHECK(!contains(evaluated.err, "weights were not saved"));
}

TEST_CASE("signals that save only or report leave the run alone") {
  const ExampleFolder folder;
  for (const int number : {SIGUSR2, SIGHUP}) {
    const Result saved =
        run_with_signal(folder,
                        {"train", "small.yaml", "-o", fmt::format("run{}", number), "--epochs",
                         kStoppedEpochs, "-v", "checkpoint.every=never"},
                        number);
    CHECK(saved.exit_code == 0);
    CHECK(saved.err.find("saved step ") != std::string::npos);
    CHECK(saved.out.find("Epoch 300/300") != std::string::npos);
  }
  const Result reported = run_with_signal(
      folder,
      {"train", "small.yaml", "-o", "other", "--epochs", kStoppedEpochs, "checkpoint.every=never"},
      SIGQUIT);
  CHECK(reported.exit_code == 0);
  CHECK(std::regex_search(reported.err, std::regex("epoch \\d+/300, step \\d \\(\\d+ in all\\)")));
  const Result ignored =
      run_with_signal(folder,
                      {"train", "small.yaml", "-o", "third", "--epochs", kStoppedEpochs,
                       "checkpoint.every=never", "run.on_signal={SIGTERM: ignore}"},
                      SIGTERM);
  CHECK(ignored.exit_code == 0);
}

// oneDNN's sgemm, as it stands in Debian 12, computes with the stack pointer in a buffer of the
// heap.
TEST_CASE("signals do not hurt what is being computed") {
  const ExampleFolder folder;
  folder.write(
      "wide.yaml",
      "data: {train: digits}\n"
      "model: {layers: [{Input: {shape: [28, 28, 1]}}, Flatten, {Dense: {units: 128, "
      "activation: relu}}, {Dense: {units: 64, activation: relu}}, {Dense: {units: 10}}]}\n"
      "compile: {optimizer: {SGD: {learning_rate: 0.01}},\n"
      "  loss: {SparseCategoricalCrossentropy: {from_logits: true}}}\n"
      "fit: {epochs: 8}\n"
      "run: {on_signal: {SIGUSR1: report}}\n");
  Command command;
  command.folder = folder.path();
  command.args = {"train", "wide.yaml", "-o", "calm", "--devices", "cpu:1"};
  REQUIRE(run(command).exit_code == 0);
  command.args[3] = "stormy";
  std::jthread storm;
  command.watch = [&](const std::string& out, const std::string&, int pid) {
    if (out.find("Epoch 1/") == std::string::npos) {
      return false;
    }
    storm = std::jthread([pid](const std::stop_token& ended) {
      while (!ended.stop_requested() && kill(pid, SIGUSR1) == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
    return true;
  };
  const Result result = run(command);
  storm.request_stop();
  CHECK_MESSAGE(result.exit_code == 0, result.err.substr(0, 2000));
  CHECK(outcome(folder, "stormy") == outcome(folder, "calm"));
}

TEST_CASE("a second interrupt ends the run at once") {
  const TemporaryFolder folder;
  // A step takes seconds, and the first interrupt waits for its end.
  folder.write("slow.yaml",
               "name: slow\n"
               "data: {train: {source: random, samples: 8192, shape: [512], labels: [512]}}\n"
               "model: {layers: [{Input: {shape: [512]}}, {Dense: {units: 4096}},\n"
               "  {Dense: {units: 4096}}, {Dense: {units: 512}}]}\n"
               "compile: {optimizer: sgd, loss: mse}\n"
               "fit: {batch_size: 8192, epochs: 2}\n");
  Command command;
  command.folder = folder.path();
  command.args = {"train", "slow.yaml", "-o", "run", "--devices", "cpu:1"};
  bool interrupted = false;
  command.watch = [&](const std::string& out, const std::string&, int pid) {
    if (!interrupted) {
      interrupted = out.find("Epoch 1/2") != std::string::npos && kill(pid, SIGINT) == 0;
      return false;
    }
    return !catches(pid, SIGINT) && kill(pid, SIGINT) == 0;
  };
  const Result result = run(command);
  CHECK_MESSAGE(result.exit_code == 130, result.err);
  CHECK(result.err.find("stopped by") == std::string::npos);
  CHECK_FALSE(fs::exists(folder.file("run/checkpoints/000001")));
}

TEST_CASE("the time limit saves and leaves") {
  const ExampleFolder folder;
  const Result result = meshtrain({"train", "small.yaml", "-o", "run", "--epochs", "1000000",
                                   "checkpoint.every=never", "--max-time", "0.5s"},
                                  folder.path());
  CHECK(result.exit_code == 75);
  CHECK(result.err.find("stopped by run.max_time after step") != std::string::npos);
  CHECK(meshtrain({"verify", "run", "--checksums"}, folder.path()).exit_code == 0);
}

TEST_CASE("a time limit shorter than the start lets each start do a step") {
  const ExampleFolder folder;
  for (const char* done : {"after step 1 of epoch 1", "after step 2 of epoch 1"}) {
    const Result result = meshtrain({"train", "small.yaml", "-o", "run", "--resume",
                                     "checkpoint.every=never", "--max-time", "0.001s"},
                                    folder.path());
    CHECK(result.exit_code == 75);
    CHECK(result.err.find(done) != std::string::npos);
  }
}

TEST_CASE("a run that the last checks refuse leaves no folder and is not the newest") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q"}, folder.path()).exit_code == 0);
  const Result valid =
      meshtrain({"validate", "small.yaml", "checkpoint.monitor=acc"}, folder.path());
  CHECK(valid.exit_code == 2);
  CHECK(valid.err.find("E113") != std::string::npos);
  const Result refused =
      meshtrain({"train", "small.yaml", "-q", "checkpoint.keep=1000000000"}, folder.path());
  CHECK(refused.exit_code == 74);
  CHECK_MESSAGE(refused.err.find("E420") != std::string::npos, refused.err);
  CHECK(meshtrain({"evaluate", "runs/small", "-q"}, folder.path()).exit_code == 0);
  const fs::directory_iterator entries(folder.file("runs/small"));
  CHECK(std::distance(fs::begin(entries), fs::end(entries)) == 2);  // the run and `latest`
}

TEST_CASE("what nobody wrote stays a default when a run is resumed") {
  const ExampleFolder folder;
  // `monitor: val_loss` without validation, a batch of 32 for 10 samples, an archive without `y`.
  folder.write("few.yaml", R"(data:
  train: {source: random, samples: 10, shape: [6], classes: 3, seed: 1}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: 3
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {epochs: 1}
callbacks:
  - ModelCheckpoint: {filepath: "models/{epoch}.safetensors"}
)");
  REQUIRE(meshtrain({"train", "few.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const Result resumed = meshtrain({"resume", "run", "fit.epochs=2", "-q"}, folder.path());
  CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
  CHECK(meshtrain({"verify", "run"}, folder.path()).exit_code == 0);
  const Result again =
      meshtrain({"train", "run/config.resolved.yaml", "-o", "again", "-q"}, folder.path());
  CHECK_MESSAGE(again.exit_code == 0, again.err);
  // A value that somebody wrote into that file counts as one.
  std::string text = folder.read("run/config.resolved.yaml");
  const size_t at = text.find("batch_size: 32");
  REQUIRE(at != std::string::npos);
  text.replace(at, 14, "batch_size: 64");
  folder.write("run/config.resolved.yaml", text);
  CHECK(meshtrain({"train", "run/config.resolved.yaml", "-o", "more"}, folder.path())
            .err.find("W316") != std::string::npos);
}

TEST_CASE("a run with an expectation resumes after an epoch whose log is no number") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {
      "compile.metrics=[{Lambda: {function: \"=log(y_pred - 1e6)\"}}]",
      "expect={logs: {loss: \"< 100\"}}"};
  std::vector<std::string> train = {"train", "small.yaml", "-o", "run", "-q"};
  train.insert(train.end(), words.begin(), words.end());
  REQUIRE(meshtrain(train, folder.path()).exit_code == 0);
  const Result resumed = meshtrain({"resume", "run", "fit.epochs=3", "-q"}, folder.path());
  CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
}

TEST_CASE("nothing to resume is an error unless a fresh start is meant") {
  const ExampleFolder folder;
  const Result latest =
      meshtrain({"train", "small.yaml", "-o", "run", "--resume=latest"}, folder.path());
  CHECK(latest.exit_code == 6);
  CHECK(latest.err.find("error[E400]: there is no checkpoint in `run`") == 0);
  CHECK(meshtrain({"resume", "nowhere"}, folder.path()).exit_code == 6);
  CHECK(
      meshtrain({"train", "small.yaml", "-o", "run", "--resume", "-q"}, folder.path()).exit_code ==
      0);
  CHECK(meshtrain({"train", "small.yaml", "-o", "short", "-r", "-q"}, folder.path()).exit_code ==
        0);
  const Result occupied = meshtrain({"train", "small.yaml", "-o", "run"}, folder.path());
  CHECK(occupied.exit_code == 2);
  CHECK(occupied.err.find("--resume to continue it") != std::string::npos);
  // Without a folder: the newest run of the name.
  REQUIRE(meshtrain({"train", "small.yaml", "-q"}, folder.path()).exit_code == 0);
  const Result again = meshtrain({"train", "small.yaml", "run.resume=auto"}, folder.path());
  CHECK(again.exit_code == 0);
  CHECK(again.err.find("resumed     runs/small/") != std::string::npos);
}

TEST_CASE("a damaged checkpoint is reported and passed over") {
  const ExampleFolder folder;
  REQUIRE(
      meshtrain({"train", "small.yaml", "-o", "run", "-q", "checkpoint.every=epoch"}, folder.path())
          .exit_code == 0);
  const auto expected = outcome(folder, "run");
  CHECK(meshtrain({"verify", "run"}, folder.path()).exit_code == 0);
  const std::string shard =
      "run/checkpoints/000006/model/shard-00001-model-00001-of-00001.safetensors";
  std::string bytes = folder.read(shard);
  bytes[bytes.size() - 3] ^= 16;
  folder.write(shard, bytes);
  const Result verified = meshtrain({"verify", "run"}, folder.path());
  CHECK(verified.exit_code == 6);
  CHECK(verified.out.find("run/checkpoints/000006: damaged\nrun/checkpoints/000003: good") == 0);
  CHECK(verified.err.find("error[E404]") == 0);
  CHECK(meshtrain({"train", "small.yaml", "-o", "x", "--resume=run/checkpoints/000006"},
                  folder.path())
            .exit_code == 6);
  const char* lost = "warning: checkpoint 000006 is damaged; step 3 is taken, 3 steps are lost";
  fs::rename(folder.file("run/weights.safetensors"), folder.file("last.safetensors"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"evaluate", "run"},
        {"export", "run", "-o", "w.npz"},
        {"train", "small.yaml", "-o", "y", "fit.initial_weights=run", "fit.epochs=1"}}) {
    const Result read = meshtrain(words, folder.path());
    CHECK_MESSAGE(read.exit_code == 0, read.err);
    CHECK_MESSAGE(read.err.find(lost) != std::string::npos, read.err);
  }
  const Result checked =
      meshtrain({"validate", "small.yaml", "fit.initial_weights=run"}, folder.path());
  CHECK(checked.exit_code == 0);
  CHECK_MESSAGE(contains(checked.err,
                         "warning[W402]: checkpoint 000006 is damaged; step 3 is taken, 3 steps"),
                checked.err);
  fs::rename(folder.file("last.safetensors"), folder.file("run/weights.safetensors"));
  const Result rest = meshtrain({"resume", "run"}, folder.path());
  CHECK(rest.exit_code == 0);
  CHECK(rest.err.find(lost) != std::string::npos);
  CHECK(outcome(folder, "run") == expected);
}

TEST_CASE("inspect shows tensors and config") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const Result text = meshtrain({"inspect", "run"}, folder.path());
  CHECK(text.exit_code == 0);
  CHECK(text.out.find("d1/kernel") != std::string::npos);
  CHECK(text.out.find("[null, model]") != std::string::npos);
  CHECK(text.out.find("name: small") != std::string::npos);
  const Json json = parse_json(
      meshtrain({"inspect", "run/checkpoints/000006", "--format", "json"}, folder.path()).out);
  CHECK(json.at("step") == 6);
  CHECK(json.at("plan_signature").get<std::string>().size() == 32);
  CHECK(json.at("tensors").at(0).at("path") == "d1/kernel");
  CHECK(json.at("tensors").at(0).at("pieces") == 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_CASE("without memory for a copy of the state training waits until it is saved") {
  const TemporaryFolder folder;
  folder.write("large.yaml",
               "name: large\n"
               "data: {train: {source: random, samples: 16, shape: [4000], labels: [8000]}}\n"
               "model: {layers: [{Input: {shape: [4000]}}, {Dense: {units: 8000}}]}\n"
               "compile: {optimizer: adam, loss: mse}\n"
               "fit: {batch_size: 16, epochs: 2}\n"
               "checkpoint: {memory: 4GiB}\n");
  constexpr rlim_t kState = rlim_t{366} << 20;  // weights, momenta and velocities
  rlim_t peak = 0;
  Command command;
  command.folder = folder.path();
  command.args = {"train", "large.yaml", "-o", "sync", "checkpoint.async=false"};
  command.watch = [&](const std::string&, const std::string&, int pid) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmPeak:")) {
        peak = std::max<rlim_t>(peak, std::stoull(line.substr(7)) * 1024);
      }
    }
    return false;
  };
  REQUIRE(run(command).exit_code == 0);
  REQUIRE(peak > kState);
  const AddressSpace limit(peak + kState / 2);  // the last weights took a third at the end
  const Result result = meshtrain({"train", "large.yaml", "-o", "run"}, folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.find("training waits while checkpoints are written") != std::string::npos);
  CHECK(fs::exists(folder.file("run/checkpoints/000002/manifest.json")));
  CHECK(meshtrain({"verify", "run", "--checksums"}, folder.path()).exit_code == 0);
}

#endif

TEST_CASE("a run in use is named as such while its checkpoints come and go; readers read on") {
  const ExampleFolder folder;
  Command first;
  first.args = {
      "train", "small.yaml", "-o", "run", "--epochs", "1000000", "checkpoint.every=1 steps"};
  first.folder = folder.path();
  first.watch = [&](const std::string& out, const std::string&, int pid) {
    if (out.find("Epoch 3/") == std::string::npos) {
      return false;
    }
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"resume", "run"},
          {"train", "small.yaml", "-o", "run", "--resume"},
          {"train", "small.yaml", "-o", "run", "--resume=best"}}) {
      const Result result = meshtrain(words, folder.path());
      CHECK(result.exit_code == 6);
      CHECK_MESSAGE(result.err.find("error[E455]") == 0, result.err);
    }
    for (const std::vector<std::string>& words : {std::vector<std::string>{"inspect", "run"},
                                                  {"evaluate", "run"},
                                                  {"export", "run", "-o", "w.npz"}}) {
      const Result result = meshtrain(words, folder.path());
      CHECK_MESSAGE(result.exit_code == 0, result.err);
      CHECK_MESSAGE(result.err.find("damaged") == std::string::npos, result.err);
    }
    return kill(pid, SIGTERM) == 0;
  };
  CHECK(run(first).exit_code == 75);
}

TEST_CASE("two processes do not write into one run") {
  const ExampleFolder folder;
  Command first;
  first.args = {
      "train", "small.yaml", "-o", "run", "--epochs", "1000000", "checkpoint.every=never"};
  first.folder = folder.path();
  int second = -1;
  first.watch = [&](const std::string& out, const std::string&, int pid) {
    if (out.find("Epoch 3/") == std::string::npos) {
      return false;
    }
    const Result result = meshtrain({"train", "small.yaml", "-o", "run", "--epochs", "1000000",
                                     "checkpoint.every=never", "--resume"},
                                    folder.path());
    second = result.exit_code;
    CHECK_MESSAGE(result.err.find("error[E455]") != std::string::npos, result.err);
    return kill(pid, SIGTERM) == 0;
  };
  CHECK(run(first).exit_code == 75);
  CHECK(second == 6);
  // And the one that is refused leaves the other's files alone.
  const std::vector<std::string> lines = lines_of(folder.read("run/metrics.jsonl"));
  REQUIRE_FALSE(lines.empty());
  CHECK(parse_json(lines.back()).at("event") == "end");
  int64_t epochs = 0;
  for (const std::string& line : lines) {
    const Json event = parse_json(line);
    epochs += event.at("event") == "epoch" && event.at("epoch") == epochs + 1 ? 1 : 0;
  }
  CHECK(epochs >= 2);
}

TEST_CASE("checkpoints that stay for ever stay when the run is resumed") {
  for (const std::string every : {"2 epochs", "6 steps"}) {
    const ExampleFolder folder;
    const Result begun =
        meshtrain({"train", "small.yaml", "-q", "-o", "run", "fit.epochs=4", "checkpoint.keep=2",
                   "checkpoint.every=epoch", "checkpoint.keep_every=" + every},
                  folder.path());
    REQUIRE_MESSAGE(begun.exit_code == 0, begun.err);
    const std::string checkpoints = folder.file("run/checkpoints");
    CHECK(names_below(checkpoints) ==
          std::vector<std::string>{"000006", "000009", "000012", "LOCK"});
    folder.write("run/checkpoints/000009/state.json", "");  // of which epoch nobody knows now
    const Result rest = meshtrain({"resume", "run", "-q", "fit.epochs=8"}, folder.path());
    REQUIRE_MESSAGE(rest.exit_code == 0, rest.err);
    std::vector<std::string> expected = {"000006", "000012", "000018", "000021", "000024", "LOCK"};
    if (every == "2 epochs") {
      expected.insert(expected.begin() + 1, "000009");
    }
    CHECK(names_below(checkpoints) == expected);
  }
}

TEST_CASE("a run that is resumed through a link stays in its folder when the link moves") {
  const std::vector<std::vector<std::string>> ways = {
      {"train", "small.yaml", "-o", "runs/small/latest", "--resume"},
      {"resume", "runs/small/latest/checkpoints/000006"}};
  for (std::vector<std::string> words : ways) {
    const ExampleFolder folder;
    const std::vector<std::string> train = {"train", "small.yaml", "-q"};
    REQUIRE(meshtrain(train, folder.path()).exit_code == 0);
    const std::string runs = folder.file("runs/small/");
    const std::string first = fs::read_symlink(runs + "latest").string();
    words.insert(words.end(), {"fit.epochs=1000000", "checkpoint.every=never"});
    std::string second;
    std::vector<std::string> saved;
    Command command;
    command.args = words;
    command.folder = folder.path();
    command.watch = [&](const std::string& out, const std::string&, int pid) {
      if (out.find("Epoch 4/") == std::string::npos) {
        return false;
      }
      CHECK(meshtrain(train, folder.path()).exit_code == 0);
      second = fs::read_symlink(runs + "latest").string();
      saved = names_below(runs + second + "/checkpoints");
      return kill(pid, SIGTERM) == 0;
    };
    const Result stopped = run(command);
    CHECK(stopped.exit_code == 75);
    CHECK_MESSAGE(stopped.err.find("/" + first + "/checkpoints/") != std::string::npos,
                  stopped.err);
    REQUIRE(second != first);
    CHECK(names_below(runs + second + "/checkpoints") == saved);
    CHECK(names_below(runs + first + "/checkpoints").size() > saved.size());
  }
}

}  // namespace
}  // namespace meshtrain
