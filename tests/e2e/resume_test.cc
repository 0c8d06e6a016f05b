// Stopping, going on, looking at checkpoints: the command line's side of it.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "address_space.h"
#include "base/json.h"
#include "example.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What counts in the end: weights, and each epoch once.
std::pair<std::string, std::string> outcome(const ExampleFolder& folder, const std::string& run) {
  std::string epochs;
  for (const std::string& line : lines_of(folder.read(run + "/metrics.jsonl"))) {
    const Json event = parse_json(line);
    if (event.at("event") == "epoch") {
      epochs += json_text(event.at("epoch")) + " " + json_text(event.at("logs")) + "\n";
    }
  }
  return {folder.read(run + "/weights.safetensors"), epochs};
}

// Sends a signal once `out` shows the third epoch.
Result run_with_signal(const ExampleFolder& folder, std::vector<std::string> args, int number) {
  Command command;
  command.args = std::move(args);
  command.folder = folder.path();
  command.watch = [number](const std::string& out, const std::string&, int pid) {
    return out.find("Epoch 3/") != std::string::npos && kill(pid, number) == 0;
  };
  return run(command);
}

TEST_CASE("a run that a signal stopped goes on with the same command and ends the same") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "whole", "--epochs", "300", "-q"}, folder.path())
              .exit_code == 0);
  const std::vector<std::string> again = {"train",    "small.yaml", "-o",      "run",
                                          "--epochs", "300",        "--resume"};
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

TEST_CASE("signals that save only or report leave the run alone") {
  const ExampleFolder folder;
  const Result saved = run_with_signal(
      folder,
      {"train", "small.yaml", "-o", "run", "--epochs", "100", "-v", "checkpoint.every=never"},
      SIGUSR2);
  CHECK(saved.exit_code == 0);
  CHECK(saved.err.find("saved step ") != std::string::npos);
  const Result reported =
      run_with_signal(folder, {"train", "small.yaml", "-o", "other", "--epochs", "100"}, SIGQUIT);
  CHECK(reported.exit_code == 0);
  CHECK(std::regex_search(reported.err, std::regex("epoch \\d+/100, step \\d \\(\\d+ in all\\)")));
  const Result ignored = run_with_signal(
      folder,
      {"train", "small.yaml", "-o", "third", "--epochs", "100", "run.on_signal={SIGTERM: ignore}"},
      SIGTERM);
  CHECK(ignored.exit_code == 0);
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

TEST_CASE("resume takes the config of the run and shows what changes") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "whole", "fit.epochs=4", "-q"}, folder.path())
              .exit_code == 0);
  fs::remove(folder.file("small.yaml"));
  const Result result = meshtrain({"resume", "run", "fit.epochs=4"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("changed since\n  fit.epochs  2 -> 4\n") != std::string::npos);
  CHECK(result.out.find("Epoch 3/4\n") == 0);
  CHECK(outcome(folder, "run") == outcome(folder, "whole"));
  const Result moved =
      meshtrain({"resume", "run/checkpoints/000012", "fit.epochs=5", "--mesh", "4x1", "-o", "new"},
                folder.path());
  CHECK_MESSAGE(moved.exit_code == 0, moved.err);
  CHECK(moved.err.find("re-laid from 2 x 2 to 4 x 1") != std::string::npos);
  CHECK(fs::exists(folder.file("new/checkpoints/000015")));
  const Result refused =
      meshtrain({"resume", "run", "fit.epochs=9", "model.layers.d1.units=4"}, folder.path());
  CHECK(refused.exit_code == 6);
  CHECK(refused.err.find("error[E410]") == 0);
  CHECK(refused.err.find("other: d1/kernel is float32 (6, 8) in the checkpoint") !=
        std::string::npos);
}

TEST_CASE("data that an extended file or the command line names are found from any folder") {
  const ExampleFolder folder;
  fs::create_directories(folder.file("base/data"));
  fs::create_directories(folder.file("child"));
  fs::create_directories(folder.file("away"));
  const auto npy = [](std::string header, size_t num_bytes) {
    header.resize(117, ' ');
    return std::string("\x93NUMPY\x01\0v\0", 10) + header + "\n" + std::string(num_bytes, '\0');
  };
  folder.write("base/data/x.npy",
               npy("{'descr': '<f4', 'fortran_order': False, 'shape': (40, 6), }", 40 * 6 * 4));
  folder.write("base/data/y.npy",
               npy("{'descr': '<i4', 'fortran_order': False, 'shape': (40,), }", 40 * 4));
  folder.write("base/base.yaml", kExample);
  folder.write("base/data.yaml",
               "extends: base.yaml\n"
               "data: {train: {source: npy, x: [data/x.npy], y: data/y.npy}}\n");
  folder.write("c.yaml", "extends: base/data.yaml\nname: child\n");
  folder.write("child/c.yaml", "name: child\n");
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{"c.yaml"}, {"child/c.yaml", "base/data.yaml"}}) {
    std::vector<std::string> train = {"train", "-o", files[0] + ".run", "-q"};
    train.insert(train.end(), files.begin(), files.end());
    const Result first = meshtrain(train, folder.path());
    REQUIRE_MESSAGE(first.exit_code == 0, first.err);
    const Result result =
        meshtrain({"resume", folder.file(files[0] + ".run"), "fit.epochs=3"}, folder.file("away"));
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(result.err.find("changed since\n  fit.epochs  2 -> 3\n") != std::string::npos);
  }
  // On the command line paths begin where the command is given.
  const Result word =
      meshtrain({"train", "base/base.yaml", "-o", "word", "-q",
                 "data.train={source: npy, x: base/data/x.npy, y: base/data/y.npy}"},
                folder.path());
  REQUIRE_MESSAGE(word.exit_code == 0, word.err);
  CHECK(meshtrain({"resume", "../word", "fit.epochs=3"}, folder.file("away")).exit_code == 0);
}

TEST_CASE("weights of another model are taken as far as they fit when that is said") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const std::vector<std::string> other = {"train",
                                          "small.yaml",
                                          "-o",
                                          "other",
                                          "fit.initial_weights=run/weights.safetensors",
                                          "model.layers.d2.units=4",
                                          "compile.optimizer.SGD.learning_rate=1e-30"};
  const Result refused = meshtrain(other, folder.path());
  CHECK(refused.exit_code == 6);
  CHECK(refused.err.find("error[E410]") == 0);
  CHECK(refused.err.find("`train --partial` takes those that fit") != std::string::npos);
  std::vector<std::string> partial = other;
  partial.push_back("--partial");
  const Result taken = meshtrain(partial, folder.path());
  CHECK_MESSAGE(taken.exit_code == 0, taken.err);
  CHECK(taken.err.find("warning: run/weights.safetensors: other shape: d2/kernel is (8, 3) in the "
                       "file, (8, 4) in the model") != std::string::npos);
  const auto kernel_of = [&](const char* run) {
    const std::string bytes = folder.read(std::string(run) + "/weights.safetensors");
    const auto header = static_cast<size_t>(static_cast<unsigned char>(bytes[0])) +
                        (static_cast<size_t>(static_cast<unsigned char>(bytes[1])) << 8);
    const Json about = parse_json(bytes.substr(8, header)).at("d1/kernel").at("data_offsets");
    return bytes.substr(8 + header + about[0].get<size_t>(),
                        about[1].get<size_t>() - about[0].get<size_t>());
  };
  CHECK(kernel_of("run") == kernel_of("other"));
  partial[4] = "fit.initial_weights=nothing.safetensors";
  partial[3] = "third";
  CHECK(meshtrain(partial, folder.path()).exit_code == 6);
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
  const Result occupied = meshtrain({"train", "small.yaml", "-o", "run"}, folder.path());
  CHECK(occupied.exit_code == 2);
  CHECK(occupied.err.find("--resume to go on with it") != std::string::npos);
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
  const Result rest = meshtrain({"resume", "run"}, folder.path());
  CHECK(rest.exit_code == 0);
  CHECK(rest.err.find("checkpoint 000006 is damaged; step 3 is taken, 3 steps are lost") !=
        std::string::npos);
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

TEST_CASE("two processes do not write into one run") {
  const ExampleFolder folder;
  Command first;
  first.args = {"train", "small.yaml", "-o", "run", "--epochs", "1000000"};
  first.folder = folder.path();
  int second = -1;
  first.watch = [&](const std::string& out, const std::string&, int pid) {
    if (out.find("Epoch 3/") == std::string::npos) {
      return false;
    }
    const Result result = meshtrain(
        {"train", "small.yaml", "-o", "run", "--epochs", "1000000", "--resume"}, folder.path());
    second = result.exit_code;
    CHECK_MESSAGE(result.err.find("error[E455]") != std::string::npos, result.err);
    return kill(pid, SIGTERM) == 0;
  };
  CHECK(run(first).exit_code == 75);
  CHECK(second == 6);
}

}  // namespace
}  // namespace meshtrain
