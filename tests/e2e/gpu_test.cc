// `--devices gpu` from the command line, on the emulated GPU.
#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "example.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

Result run_on_gpu(std::vector<std::string> args, const std::string& folder,
                  decltype(Command::watch) watch = {},
                  const std::vector<std::string>& environment = {}) {
  Command command;
  command.args = std::move(args);
  command.folder = folder;
  command.environment = {"MESHTRAIN_GPU_LIBRARY=" MESHTRAIN_EMULATOR, "MESHTRAIN_EMULATOR_SEED=5"};
  command.environment.insert(command.environment.end(), environment.begin(), environment.end());
  command.watch = std::move(watch);
  return run(command, 120);
}

void require_gpu() {
  const Result devices = run_on_gpu({"devices"}, ".");
  const std::string text = devices.out + devices.err;
  REQUIRE_MESSAGE(text.find("needs a C++ compiler") == std::string::npos, text);
}

std::vector<Json> epochs_of(const TemporaryFolder& folder, const std::string& run) {
  std::vector<Json> out;
  for (const std::string& line : lines_of(folder.read(run + "/metrics.jsonl"))) {
    const Json event = parse_json(line);
    if (event.at("event") == "epoch")
      out.push_back(event.at("logs"));
  }
  return out;
}

// Each epoch's loss within 1e-4; predictions may fall on the other side of a tie.
void check_epochs(const std::vector<Json>& got, const std::vector<Json>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    for (const auto& [name, value] : want[i].items()) {
      const double number = value.get<double>(), other = got[i].at(name).get<double>();
      const bool is_loss = name.find("loss") != std::string::npos;
      CHECK_MESSAGE(std::abs(other - number) <= (is_loss ? 1e-4 * (1 + number) : 0.01), name,
                    " is ", other, ", not ", number);
    }
  }
}

TEST_CASE("a text is generated on a GPU as on the processor; remat trains alike") {
  require_gpu();
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "one two one two\nfour five\n";
  folder.write("t.txt", text);
  const auto config = [](const std::string& remat) {
    return R"(
data: {train: {source: text, path: t.txt, sequence_length: 8, stride: 9, target: sequence}}
model:
  layers:
    - Input: {shape: [8], dtype: int32}
    - TokenAndPositionEmbedding: {vocabulary_size: 12, sequence_length: 8, embedding_dim: 8}
    - TransformerDecoder: {name: decoder, intermediate_dim: 16, num_heads: 2}
    - Dense: {units: 12}
  remat: {decoder: )" +
           remat + R"(}
compile: {optimizer: {Adam: 0.02}, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 16, epochs: 2}
)";
  };
  for (const std::string remat : {"none", "block"}) {
    folder.write(remat + ".yaml", config(remat));
    const Result trained = run_on_gpu(
        {"train", remat + ".yaml", "-o", remat, "-q", "--devices", "gpu:0"}, folder.path());
    REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  }
  check_epochs(epochs_of(folder, "block"), epochs_of(folder, "none"));
  const auto words = [](const char* devices) {
    return std::vector<std::string>{
        "generate",         "none", "-p", "one",       "--samples", "2", "--sampler", "random",
        "--max-new-tokens", "7",    "-q", "--devices", devices};
  };
  const Result there = run_on_gpu(words("gpu:0"), folder.path());
  CHECK_MESSAGE(there.exit_code == 0, there.err);
  CHECK(there.out == meshtrain(words("cpu:1"), folder.path()).out);
}

TEST_CASE("the quickstart trains on a GPU as on the processor") {
  require_gpu();
  const TemporaryFolder folder;
  const std::string config = std::string(MESHTRAIN_SOURCE_DIR) + "/configs/quickstart.yaml";
  const std::vector<std::string> train = {"train",
                                          config,
                                          "--epochs",
                                          "2",
                                          "data.train={source: digits, slice: '[:1000]'}",
                                          "matmul_precision=highest",
                                          "-o"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), train.begin(), train.end());
    return more;
  };
  const Result cpu = meshtrain(with({"cpu", "--devices", "cpu:8"}), folder.path());
  REQUIRE_MESSAGE(cpu.exit_code == 0, cpu.err);
  const Result gpu = run_on_gpu(with({"gpu", "--devices", "gpu:0x8"}), folder.path());
  REQUIRE_MESSAGE(gpu.exit_code == 0, gpu.err);
  check_epochs(epochs_of(folder, "gpu"), epochs_of(folder, "cpu"));
  const Result again =
      run_on_gpu(with({"again", "--devices", "gpu:0x8", "--no-cuda-graph"}), folder.path());
  REQUIRE_MESSAGE(again.exit_code == 0, again.err);
  const bool same =
      folder.read("again/weights.safetensors") == folder.read("gpu/weights.safetensors");
  CHECK(same);
}

TEST_CASE("a run resumes from the GPU on the processor and back") {
  require_gpu();
  const ExampleFolder folder;
  const auto args = [](const char* run, const char* devices, const char* epochs) {
    return std::vector<std::string>{"train", "small.yaml", "-o",    run,       "--epochs",
                                    epochs,  "--devices",  devices, "--resume"};
  };
  REQUIRE(meshtrain(args("whole", "cpu:4", "30"), folder.path()).exit_code == 0);
  const Result stopped =
      run_on_gpu(args("run", "gpu:0x4", "100000"), folder.path(),
                 [](const std::string& out, const std::string&, int pid) {
                   return out.find("Epoch 3/") != std::string::npos && kill(pid, SIGTERM) == 0;
                 });
  CHECK_MESSAGE(stopped.exit_code == 75, stopped.err);
  const size_t before = epochs_of(folder, "run").size();
  REQUIRE(before < 30);
  const std::string more = std::to_string(before + 2);
  const Result on_cpu = meshtrain(args("run", "cpu:4", more.c_str()), folder.path());
  CHECK_MESSAGE(on_cpu.exit_code == 0, on_cpu.err);
  const Result back = run_on_gpu(args("run", "gpu:0x4", "30"), folder.path());
  CHECK_MESSAGE(back.exit_code == 0, back.err);
  check_epochs(epochs_of(folder, "run"), epochs_of(folder, "whole"));
}

constexpr const char* kLarge = R"(
data: {train: {source: random, samples: 1024, shape: [1024], classes: 10}}
model:
  layers:
    - Input: {shape: [1024]}
    - Dense: {units: 2048, activation: relu}
    - Dense: {units: 2048, activation: relu}
    - Dense: {units: 10}
compile:
  optimizer: adam
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 1024, limit_steps: 1}
)";

// As E630 says it: "`batch_size: 40`".
std::string advised_batch(const std::string& text) {
  const std::string key = "`batch_size: ";
  const size_t found = text.find(key);
  REQUIRE_MESSAGE(found != std::string::npos, text);
  return std::to_string(std::atoi(text.c_str() + found + key.size()));
}

TEST_CASE("what does not fit on a GPU is refused with what is largest and what would fit") {
  require_gpu();
  const TemporaryFolder folder;
  folder.write("large.yaml", kLarge);
  const auto train = [&](int megabytes, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"train", "large.yaml", "--devices", "gpu:0", "-o", "run"};
    args.insert(args.end(), more.begin(), more.end());
    return run_on_gpu(args, folder.path(), {},
                      {fmt::format("MESHTRAIN_EMULATOR_BYTES={}", megabytes << 20)});
  };
  const Result variables = train(100);
  CHECK(variables.exit_code == 4);
  CHECK(variables.err.find("error[E630]: weights (24 MiB) and optimizer state (48 MiB) need 72 MiB "
                           "of GPU memory; 100 MiB of 100 MiB are free") == 0);
  CHECK(variables.err.find("16 MiB: dense_1/kernel float32 (2048, 2048), replicated") !=
        std::string::npos);
  CHECK(variables.err.find("a smaller model, or `devices: cpu`") != std::string::npos);

  // With less state it fits, with batches as small as is said.
  const Result adam = train(130);
  CHECK(adam.exit_code == 4);
  CHECK(adam.err.find("saves up to 48 MiB: `optimizer: SGD` fits with `batch_size: ") !=
        std::string::npos);
  const Result sgd = train(130, {"compile.optimizer=SGD", "--batch-size", advised_batch(adam.err)});
  CHECK_MESSAGE(sgd.exit_code == 0, sgd.err);
  std::filesystem::remove_all(folder.path() + "/run");

  const Result step = train(200);
  CHECK(step.exit_code == 4);
  CHECK(step.err.find("error[E630]: a train step with a batch of 1024 needs") == 0);
  const std::string batch = advised_batch(step.err);
  const std::string larger = std::to_string(std::stoi(batch) + 1);
  CHECK(train(200, {"--batch-size", larger}).exit_code == 4);
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/run"));
  const Result fits = train(200, {"--batch-size", batch});
  CHECK_MESSAGE(fits.exit_code == 0, fits.err);
}

constexpr const char* kValidated = R"(
data:
  train: {source: random, samples: 1500, shape: [64], classes: 10}
  validation: {source: random, samples: 700, shape: [64], classes: 10, seed: 2}
model:
  layers:
    - Input: {shape: [64]}
    - Dense: {units: 2048, activation: gelu}
    - Dense: {units: 10}
compile:
  optimizer: sgd
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 1024, epochs: 2}
)";

// Programs of the last, smaller batches, of the validation and of the evaluation behind it.
TEST_CASE("the advised batch size fits with all that the run computes") {
  require_gpu();
  const TemporaryFolder folder;
  folder.write("validated.yaml", kValidated);
  const auto train = [&](const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> args = {"train", "validated.yaml", "--devices", "gpu:0", "-o", run};
    args.insert(args.end(), more.begin(), more.end());
    return run_on_gpu(args, folder.path(), {},
                      {fmt::format("MESHTRAIN_EMULATOR_BYTES={}", 90 << 20)});
  };
  const Result refused = train("refused", {});
  CHECK(refused.exit_code == 4);
  CHECK_MESSAGE(refused.err.find("error[E630]: a train step with a batch of 1024 with the run's "
                                 "other steps (train 476, test 700) needs") == 0,
                refused.err);
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/refused"));
  const std::string batch = advised_batch(refused.err);
  CHECK(std::stoi(batch) > 100);
  const Result fits = train("run", {"--batch-size", batch});
  CHECK_MESSAGE(fits.exit_code == 0, fits.err);
  CHECK(train("more", {"--batch-size", std::to_string(std::stoi(batch) + 1)}).exit_code == 4);
  // A validation that alone is too large is named, too.
  const Result validation =
      train("refused", {"--batch-size", "32", "fit.validation_batch_size=4000",
                        "data.validation={source: random, samples: 4000, shape: [64], classes: "
                        "10}"});
  CHECK(validation.exit_code == 4);
  CHECK_MESSAGE(validation.err.find("fits: write `validation_batch_size: ") != std::string::npos,
                validation.err);
  CHECK(validation.err.find("`batch_size: ") == std::string::npos);
}

TEST_CASE("GPUs that are not there are refused with those that are") {
  require_gpu();
  const TemporaryFolder folder;
  folder.write("large.yaml", kLarge);
  const auto train = [&](const char* devices) {
    return run_on_gpu({"train", "large.yaml", "-o", "run", "--devices", devices}, folder.path());
  };
  const Result other = train("gpu:3");
  CHECK(other.exit_code == 4);
  CHECK(other.err.find("error[E620]: there is no GPU number 3; there is 1") == 0);
  CHECK(other.err.find("the first one is `gpu:0`") != std::string::npos);
  const Result several = run_on_gpu(
      {"train", "large.yaml", "-o", "run", "--devices", "gpu:0-1", "--mesh", "2"}, folder.path());
  CHECK(several.exit_code == 4);
  CHECK(several.err.find("error[E620]: there is no GPU number 1; there is 1") == 0);
  CHECK(train("gpu:0x0").exit_code == 2);
  const Result none = run_on_gpu({"train", "large.yaml", "-o", "run", "--devices", "gpu"},
                                 folder.path(), {}, {"MESHTRAIN_GPU_LIBRARY=/nowhere.so"});
  CHECK(none.exit_code == 4);
  CHECK(none.err.find("error[E620]: `gpu` cannot be used here: cannot load /nowhere.so") == 0);
}

}  // namespace
}  // namespace meshtrain
