// Several GPUs with a process each, on emulated ones.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/host.h"
#include "comm/socket.h"
#include "ranks.h"
#include "support/own_address.h"

namespace meshtrain {
namespace {

constexpr const char* kConfig = R"(name: mlp
seed: 3
distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 2], axis_names: [data, model], devices: "gpu:0x4"}
  layout_map:
    "d1/kernel": [null, model]
    "d1/bias": [model]
    "d2/kernel": [model, null]
  reductions: fixed
  zero: 2
data:
  train: {source: random, samples: 56, shape: [12], classes: 4, seed: 1}
model:
  layers:
    - Input: {shape: [12]}
    - Dense: {name: d1, units: 16, activation: relu}
    - Dropout: 0.3
    - Dense: {name: d2, units: 4}
compile:
  optimizer: adam
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16, epochs: 4}
checkpoint: {every: epoch}
)";

// Without a word on devices or mesh.
constexpr const char* kPlain = R"(name: plain
seed: 3
data:
  train: {source: random, samples: 48, shape: [12], classes: 4, seed: 1}
model:
  layers:
    - Input: {shape: [12]}
    - Dense: {name: d1, units: 16, activation: relu}
    - Dense: {name: d2, units: 4}
compile:
  optimizer: adam
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
distribution: {reductions: fixed}
fit: {batch_size: 8, epochs: 2}
)";

class GpuFolder : public TemporaryFolder {
 public:
  GpuFolder() {
    write("mlp.yaml", kConfig);
    write("plain.yaml", kPlain);
    std::filesystem::create_directory(file("dev"));
    for (const char* driver_file : {"nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"})
      write(fmt::format("dev/{}", driver_file), "");
  }

  // With as many GPUs as the emulator has, for `auto` too.
  Command on_four(std::vector<std::string> args) const {
    return command(std::move(args),
                   {"MESHTRAIN_DEVICE_FOLDER=" + file("dev"), "CUDA_VISIBLE_DEVICES=0,1,2,3"});
  }

  Command command(std::vector<std::string> args, std::vector<std::string> environment = {}) const {
    Command out;
    out.args = std::move(args);
    out.folder = path();
    out.environment = {"MESHTRAIN_GPU_LIBRARY=" MESHTRAIN_EMULATOR, "MESHTRAIN_EMULATOR_GPUS=4",
                       "MESHTRAIN_EMULATOR_SEED=7", "MESHTRAIN_CACHE=" + file("cache")};
    out.environment.insert(out.environment.end(), environment.begin(), environment.end());
    return out;
  }
  Result train(const std::string& run, std::vector<std::string> more) const {
    std::vector<std::string> args = {"train", "mlp.yaml", "-o", run};
    args.insert(args.end(), more.begin(), more.end());
    return meshtrain::run(command(std::move(args)), 120);
  }
  // The run's weights, that it must have left.
  std::string weights(const std::string& run) const {
    REQUIRE(std::filesystem::exists(file(run + "/weights.safetensors")));
    return read(run + "/weights.safetensors");
  }
};

void require_gpus(const GpuFolder& folder) {
  const Result devices = run(folder.command({"devices"}));
  const std::string text = devices.out + devices.err;
  REQUIRE_MESSAGE(text.find("needs a C++ compiler") == std::string::npos, text);
}

bool says(const Result& result, const std::string& part) {
  CAPTURE(result.err);
  const bool found = result.err.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

std::vector<int> children_of(int pid) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", pid));
  std::vector<int> out;
  for (int child = 0; file >> child;)
    out.push_back(child);
  return out;
}

// Model and optimizer stay: their state is split over the GPUs, no more of it than is needed.
TEST_CASE("what is too large for each GPU is split where that is enough") {
  const GpuFolder folder;
  require_gpus(folder);
  std::string large = R"(
data: {train: {source: random, samples: 64, shape: [1024], classes: 10}}
compile:
  optimizer: adam
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 32, limit_steps: 1}
model:
  layers:
    - Input: {shape: [1024]}
)";
  for (int layer = 0; layer < 6; ++layer)
    large += "    - Dense: {units: 1024, activation: relu}\n";
  folder.write("large.yaml", large + "    - Dense: {units: 10}\n");
  const auto train = [&](int megabytes, int zero) {
    return run(folder.command({"train", "large.yaml", "--devices", "gpu:0-1", "-o",
                               fmt::format("run-{}-{}", megabytes, zero),
                               fmt::format("distribution.zero={}", zero)},
                              {fmt::format("MESHTRAIN_EMULATOR_BYTES={}", megabytes << 20)}),
               120);
  };
  const auto fits = [](int zero) {
    return fmt::format("help: `distribution.zero: {}` fits\n", zero);
  };
  const Result refused = train(208, 0);
  CHECK(refused.exit_code == 4);
  says(refused, "error[E630]: a train step with a batch of 32 needs");
  says(refused, fits(1));
  CHECK(train(208, 1).exit_code == 0);
  const Result less = train(196, 1);
  CHECK(less.exit_code == 4);
  says(less, fits(3));
  CHECK(train(196, 2).exit_code == 4);
  CHECK(train(196, 3).exit_code == 0);
  const Result none = train(134, 0);
  CHECK(none.exit_code == 4);
  says(none, "error[E630]: weights (24 MiB) and optimizer state (48 MiB) need 72 MiB");
  says(none, "help: a smaller model, or `devices: cpu`");
}

TEST_CASE("one GPU and two and four leave the same weights byte for byte") {
  const GpuFolder folder;
  require_gpus(folder);
  REQUIRE(folder.train("one", {}).exit_code == 0);
  const std::string one = folder.weights("one");
  for (const char* devices : {"gpu:0-3", "gpu:0-1x2", "gpu:all", "gpu:1,3x2", "gpu:3,1,0,2"}) {
    CAPTURE(devices);
    const std::string run = fmt::format("run-{}", devices);
    const Result result = folder.train(run, {"--devices", devices});
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(count(result.out, "Epoch 4/4") == 1);  // one of them speaks
    const bool same = folder.weights(run) == one;
    CHECK(same);
  }
  const Result stream = folder.train("stream", {"--devices", "gpu:0-3", "--no-cuda-graph"});
  CHECK_MESSAGE(stream.exit_code == 0, stream.err);
  CHECK((folder.weights("stream") == one));
}

// The losses of a run's steps.
std::vector<double> losses_of(const GpuFolder& folder, const std::string& run) {
  std::vector<double> out;
  std::istringstream lines(folder.read(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json event = nlohmann::json::parse(line);
    if (event.at("event") == "step")
      out.push_back(event.at("loss").get<double>());
  }
  return out;
}

TEST_CASE("eight GPUs leave the weights of one whatever is split and close ones with fast sums") {
  const GpuFolder folder;
  require_gpus(folder);
  const std::string split = "distribution.layout_map={d1/kernel: [null, model], d1/bias: [model]}";
  const std::vector<std::pair<std::string, std::vector<std::string>>> layouts = {
      {"ZeRO-1", {"distribution.device_mesh.shape=[8,1]", "distribution.zero=1"}},
      {"ZeRO-2", {"distribution.device_mesh.shape=[8,1]", "distribution.zero=2"}},
      {"FSDP", {"distribution.device_mesh.shape=[8,1]", "distribution.zero=3"}},
      {"tensor-parallel", {split, "distribution.device_mesh.shape=[2,4]", "distribution.zero=0"}},
      {"HSDP",
       {"distribution.device_mesh.shape=[2,4]", "distribution.batch_dim_name=[data, model]",
        "distribution.layout_map={}", "distribution.zero=3", "distribution.zero_axes=[model]"}},
  };
  for (const auto& [name, layout] : layouts) {
    CAPTURE(name);
    const auto train = [&](const std::string& run_name, const std::string& devices,
                           const std::string& reductions) {
      std::vector<std::string> args = {"train",
                                       "mlp.yaml",
                                       "-q",
                                       "-o",
                                       run_name,
                                       "--devices",
                                       devices,
                                       "distribution.reductions=" + reductions,
                                       "run.log_steps=true",
                                       "fit.epochs=1",
                                       "fit.limit_steps=3",
                                       "checkpoint.every=never"};
      args.insert(args.end(), layout.begin(), layout.end());
      const Result result = run(folder.command(args, {"MESHTRAIN_EMULATOR_GPUS=8"}), 120);
      REQUIRE_MESSAGE(result.exit_code == 0, result.err);
      return losses_of(folder, run_name);
    };
    const std::vector<double> one = train(name + "-1", "gpu:0x8", "fixed");
    REQUIRE(one.size() == 3);
    for (const char* devices : {"gpu:0-7", "gpu:0-3x2"}) {
      CAPTURE(devices);
      const std::string run_name = fmt::format("{}-{}", name, devices);
      CHECK(train(run_name, devices, "fixed") == one);
      CHECK((folder.weights(run_name) == folder.weights(name + "-1")));
    }
    const std::vector<double> fast = train(name + "-fast", "gpu:0-7", "fast");
    REQUIRE(fast.size() == one.size());
    for (size_t i = 0; i < one.size(); ++i)
      CHECK(std::abs(fast[i] - one[i]) <= 1e-4 * std::max(1.0, one[i]));
  }
}

TEST_CASE("a run on four GPUs resumes on one and on two") {
  const GpuFolder folder;
  require_gpus(folder);
  REQUIRE(folder.train("whole", {}).exit_code == 0);
  REQUIRE(folder.train("run", {"--devices", "gpu:0-3", "--epochs", "2"}).exit_code == 0);
  std::filesystem::copy(
      folder.file("run"), folder.file("copy"),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  for (const auto& [run_name, devices] :
       {std::pair{"run", "gpu:0x4"}, std::pair{"copy", "gpu:0-1x2"}}) {
    CAPTURE(devices);
    const Result more =
        run(folder.command({"resume", run_name, "--devices", devices, "--epochs", "4"}), 120);
    CHECK_MESSAGE(more.exit_code == 0, more.err);
    CHECK((folder.weights(run_name) == folder.weights("whole")));
  }
}

TEST_CASE("evaluate and predict start a process for each GPU too") {
  const GpuFolder folder;
  require_gpus(folder);
  REQUIRE(folder.train("run", {}).exit_code == 0);
  const auto evaluate = [&](const char* devices) {
    return run(folder.command({"evaluate", "mlp.yaml", "-w", "run/weights.safetensors", "--devices",
                               devices, "--log-format", "json"}),
               120);
  };
  const Result one = evaluate("gpu:0x4"), four = evaluate("gpu:0-3");
  CHECK_MESSAGE(four.exit_code == 0, four.err);
  CHECK(count(four.out, "\"event\":\"evaluate\"") == 1);
  const auto logs = [](const Result& result) {
    const size_t begin = result.out.find("\"logs\"");
    return begin == std::string::npos ? result.out
                                      : result.out.substr(begin, result.out.find('}') - begin);
  };
  CHECK(logs(one) == logs(four));
}

TEST_CASE("who is killed takes all others along and is named") {
  const GpuFolder folder;
  require_gpus(folder);
  std::vector<int> started;
  Command command = folder.command(
      {"train", "mlp.yaml", "-o", "run", "--devices", "gpu:0-3", "--epochs", "100000"});
  command.watch = [&](const std::string& out, const std::string&, int pid) {
    started = children_of(pid);
    if (out.find("Epoch 3/") == std::string::npos || started.size() != 4)
      return false;
    return kill(started[2], SIGKILL) == 0;
  };
  const Result result = run(command, 120);
  CHECK(result.exit_code == 8);
  // Named by who watches the processes, or by a GPU that was waiting for it.
  const auto has = [&](const std::string& part) {
    return result.err.find(part) != std::string::npos;
  };
  const bool is_named =
      (has("error[E601]: rank ") && has(fmt::format("(pid {})", started.at(2)))) ||
      (has("error[E605]: gpu:") && has(" has gone, at step `"));
  CHECK_MESSAGE(is_named, result.err);
  for (const int pid : started)
    CHECK(kill(pid, 0) != 0);
}

// What torchrun would start: `size` processes with an environment each. The exit codes by rank are
// on stdout.
Result by_hand(const GpuFolder& folder, int size, const std::string& arguments,
               const std::function<std::string(int rank)>& environment) {
  std::string script;
  const int port = test::free_port();
  for (int rank = 0; rank < size; ++rank) {
    script += fmt::format(
        "{} RANK={} LOCAL_RANK={} WORLD_SIZE={} LOCAL_WORLD_SIZE={} MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={} {} {} & P{}=$!\n",
        environment(rank), rank, rank, size, size, port, MESHTRAIN_BINARY, arguments, rank);
  }
  for (int rank = 0; rank < size; ++rank)
    script += fmt::format("wait $P{}; echo rank {} $?\n", rank, rank);
  Command command = folder.on_four({"-c", script});
  command.program = "sh";
  return run(command, 120);
}

TEST_CASE("GPUs of processes that mpirun or launch started leave the weights of one") {
  if (std::string(MESHTRAIN_MPIRUN).empty()) {
    return;
  }
  const GpuFolder folder;
  require_gpus(folder);
  REQUIRE(folder.train("one", {}).exit_code == 0);
  const std::vector<std::string> words = {"mlp.yaml", "--devices", "gpu:0-1x2", "-o"};
  const auto start = [&](Command command, const std::string& run_name) {
    command.args.insert(command.args.end(), words.begin(), words.end());
    command.args.push_back(run_name);
    const Result result = run(command, 120);
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(count(result.out, "Epoch 4/4") == 1);
    CHECK((folder.weights(run_name) == folder.weights("one")));
  };
  Command mpirun = folder.command(
      {"--oversubscribe", "--allow-run-as-root", "-np", "2", MESHTRAIN_BINARY, "train"});
  mpirun.program = MESHTRAIN_MPIRUN;
  start(mpirun, "by-mpirun");
  start(folder.command({"launch", "--processes", "2"}), "by-launch");
}

TEST_CASE("two processes on one GPU are refused unless they are on hosts of their own") {
  const GpuFolder folder;
  require_gpus(folder);
  const std::string train = "train mlp.yaml --devices gpu:0x2 -q -o ";
  const Result same = by_hand(folder, 2, train + "same", [](int) { return ""; });
  CHECK(count(same.err, "error[E615]: ranks 0 and 1 share GPU number 0 of " + host_name()) == 1);
  says(same, "NCCL_HOSTID");
  CHECK(same.out.find("rank 0 4\nrank 1 4\n") != std::string::npos);
  const Result apart = by_hand(folder, 2, train + "apart",
                               [](int rank) { return fmt::format("NCCL_HOSTID=host-{}", rank); });
  CHECK_MESSAGE(apart.out.find("rank 0 0\nrank 1 0\n") != std::string::npos, apart.out, apart.err);
  REQUIRE(folder.train("one", {}).exit_code == 0);
  CHECK((folder.weights("apart") == folder.weights("one")));
}

TEST_CASE("a config without devices and mesh takes all GPUs in every subcommand") {
  const GpuFolder folder;
  require_gpus(folder);
  const Result plain = run(folder.on_four({"train", "plain.yaml", "-o", "all"}), 120);
  REQUIRE_MESSAGE(plain.exit_code == 0, plain.err);
  says(plain, "4 x gpu");
  REQUIRE(
      run(folder.on_four({"train", "plain.yaml", "-q", "-o", "said", "--devices", "gpu:0-3"}), 120)
          .exit_code == 0);
  CHECK((folder.weights("all") == folder.weights("said")));
  // What the run did is what plan said.
  for (const char* devices : {"auto", "gpu:all"}) {
    const Result plan =
        run(folder.on_four({"plan", "plain.yaml", "--format", "json", "--devices", devices}));
    REQUIRE_MESSAGE(plan.exit_code == 0, plan.err);
    const auto mesh = nlohmann::json::parse(plan.out).at("mesh");
    CHECK(mesh.at("shape") == nlohmann::json::array({4}));
    CHECK(mesh.at("kind") == "4 x gpu");
  }
  CHECK(run(folder.on_four({"validate", "plain.yaml"})).exit_code == 0);
  const Result odd = run(folder.on_four({"validate", "plain.yaml", "fit.batch_size=6"}));
  CHECK(odd.exit_code == 2);
  says(odd, "error[E211]: a batch of 6 does not split over `batch` = 4");
  says(odd, "or `devices: gpu:0-2`");
  CHECK(run(folder.on_four({"summary", "plain.yaml"})).out.find("Layout") != std::string::npos);
  const Result evaluated =
      run(folder.on_four({"evaluate", "plain.yaml", "-w", "all/weights.safetensors"}), 120);
  CHECK_MESSAGE(evaluated.exit_code == 0, evaluated.err);
  // GPUs that a mesh has no use for.
  const Result unused = run(folder.on_four({"plan", "plain.yaml", "--mesh", "8"}));
  CHECK(unused.out.find("the 4 GPUs here are not used: the mesh has 8 devices") !=
        std::string::npos);
}

TEST_CASE("processes that see one GPU each take it and must not all see the same") {
  const GpuFolder folder;
  require_gpus(folder);
  const auto task = [](int gpu) {
    return fmt::format(
        "CUDA_VISIBLE_DEVICES=0 MESHTRAIN_EMULATOR_GPUS=1 MESHTRAIN_EMULATOR_FIRST={}", gpu);
  };
  const Result own = by_hand(folder, 2, "train plain.yaml -o own", task);
  CHECK_MESSAGE(own.out.find("rank 0 0\nrank 1 0\n") != std::string::npos, own.out, own.err);
  says(own, "2 x gpu");
  REQUIRE(
      run(folder.command({"train", "plain.yaml", "-q", "-o", "two", "--devices", "gpu:0-1"}), 120)
          .exit_code == 0);
  CHECK((folder.weights("own") == folder.weights("two")));
  const Result same =
      by_hand(folder, 2, "train plain.yaml -q -o same", [&](int) { return task(2); });
  CHECK(count(same.err, "error[E615]: ranks 0 and 1 share GPU number 2 of ") == 1);
  says(same, "`devices: cpu:2`");
  // More processes than GPUs, which nobody gave them one by one.
  const Result crowded = by_hand(folder, 4, "train plain.yaml -q -o crowded",
                                 [](int) { return "CUDA_VISIBLE_DEVICES=0,1"; });
  CHECK(count(crowded.err, "error[E614]") == 1);
  says(crowded, "GPUs that this process sees: 2");
}

TEST_CASE("GPUs of several kinds are refused with both") {
  const GpuFolder folder;
  require_gpus(folder);
  const Result mixed = by_hand(folder, 2, "train plain.yaml -q -o mixed", [](int rank) {
    return fmt::format("MESHTRAIN_EMULATOR_NAME=Model-{}", rank);
  });
  CHECK(mixed.out.find("rank 0 2\nrank 1 2\n") != std::string::npos);
  CHECK(count(mixed.err, "error[E611]") == 1);
  says(mixed, fmt::format("rank 1 on host {0} computes with something else than rank 0 on host {0}",
                          host_name()));
  says(mixed, "GPU: `Model-1`, rank 0 has `Model-0`");
  CHECK(!std::filesystem::exists(folder.file("mixed")));
}

TEST_CASE("what cannot run on several GPUs says why") {
  const GpuFolder folder;
  require_gpus(folder);
  const Result missing = folder.train("run", {"--devices", "gpu:2-5"});
  CHECK(missing.exit_code == 4);
  says(missing, "error[E620]: there is no GPU number 4; there are 4");
  const Result few = folder.train("run", {"--devices", "gpu:0-1"});
  CHECK(few.exit_code == 4);
  says(few, "error[E210]: the mesh (2, 2) needs 4 devices, `gpu:0-1` has 2");
  says(few, "write `--devices gpu:0-3`");
  CHECK(folder.train("run", {"--devices", "gpu:0,0"}).exit_code == 2);
  CHECK(folder.train("run", {"--devices", "gpu:3-0"}).exit_code == 2);
  Command input = folder.command({"train", "-", "--devices", "gpu:0-3"});
  input.input = kConfig;
  const Result shared = run(input);
  CHECK(shared.exit_code == 2);
  says(shared, "several processes cannot share standard input");
  input.args = {"train", "-", "--devices", "cpu:4", "-o", "alone"};
  CHECK(run(input).exit_code == 0);
  CHECK(!std::filesystem::exists(folder.file("run")));
}

}  // namespace
}  // namespace meshtrain
