// A whole run within this process: trained, stopped by a signal, resumed, proved.
#include "train/training_run.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <fstream>

#include "base/file.h"
#include "engine/signals.h"
#include "support/temp_folder.h"
#include "train/exit_report.h"
#include "train/verify_resume.h"

namespace meshtrain::test {
namespace {

constexpr const char* kConfig = R"(
name: small
seed: 5
distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 2], axis_names: [data, model], devices: cpu:4}
  layout_map: {d1/kernel: [null, model]}
data: {train: {source: random, samples: 40, shape: [6], classes: 3, seed: 1}}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8, activation: relu}
    - Dropout: {name: drop, rate: 0.25}
    - Dense: {name: d2, units: 3, activation: softmax}
compile: {optimizer: adam, loss: sparse_categorical_crossentropy}
fit: {batch_size: 8, epochs: 3}
checkpoint: {every: epoch}
)";

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One run's output, and what is done when some text is written.
struct Terminal {
  std::string out, err;
  std::string trigger;  // in a text to stdout: raises SIGTERM
};

RunRequest request_of(const std::string& config, const std::string& folder, Terminal& terminal) {
  RunRequest request;
  request.load.files = {config};
  request.shown_name = "small.yaml";
  request.version = "test";
  request.run_dir = folder;
  request.engine.num_workers = 1;
  request.console.now = seconds;
  request.console.out = [&terminal](std::string_view text) {
    terminal.out += text;
    if (!terminal.trigger.empty() && text.find(terminal.trigger) != std::string_view::npos) {
      raise(SIGTERM);
    }
  };
  request.console.err = [&terminal](std::string_view text) { terminal.err += text; };
  request.started_at = seconds();
  return request;
}

// Trains in `folder`, from its newest checkpoint where it has one.
int train(const std::string& config, const std::string& folder, Terminal& terminal) {
  TrainingRun run(request_of(config, folder, terminal));
  bool started = false;
  return run.run(find_resume_target("auto", run_dir_options(folder, run.config())), started);
}

TEST_CASE("a run trains, stops, is resumed and is proved within one process") {
  const TempFolder folder;
  const std::string config = folder.file("small.yaml");
  std::ofstream(config) << kConfig;
  Terminal whole;
  CHECK(train(config, folder.file("whole"), whole) == 0);
  CHECK(whole.out.find("Epoch 3/3") != std::string::npos);
  CHECK(whole.err.find("parameters  83") != std::string::npos);

  Terminal stopped;
  stopped.trigger = "Epoch 2/3";
  CHECK_THROWS_AS(train(config, folder.file("parts"), stopped), StopRequested);
  forget_stop_signal();
  CHECK(stopped.out.find("Epoch 3/3") == std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("parts/weights.safetensors")));
  Terminal resumed;
  CHECK(train(config, folder.file("parts"), resumed) == 0);
  CHECK(resumed.out.find("Epoch 3/3") != std::string::npos);
  constexpr uint64_t kMost = 1 << 20;
  CHECK(read_file(folder.file("parts/weights.safetensors"), kMost) ==
        read_file(folder.file("whole/weights.safetensors"), kMost));

  Terminal replayed;
  RunRequest request = request_of(config, "", replayed);
  request.load.files.clear();
  const ResumeProof proof = verify_resume(folder.file("whole"), std::move(request), folder.path());
  CHECK(proof.from == 10);
  CHECK(proof.to == 15);
  CHECK(proof.differences.empty());
  CHECK(replayed.out.empty());
}

TEST_CASE("a proof of resume notices a checkpoint that the run cannot have made") {
  const TempFolder folder;
  const std::string config = folder.file("small.yaml");
  std::ofstream(config) << kConfig;
  std::string other = kConfig;
  other.replace(other.find("rate: 0.25"), 10, "rate: 0.75");
  const std::string changed = folder.file("changed.yaml");
  std::ofstream(changed) << other;
  Terminal terminal;
  CHECK(train(config, folder.file("run"), terminal) == 0);
  CHECK(train(changed, folder.file("changed"), terminal) == 0);
  // The checkpoint at the end becomes that of another run, whose dropout has another rate.
  std::filesystem::remove_all(folder.file("run/checkpoints/000015"));
  std::filesystem::copy(folder.file("changed/checkpoints/000015"),
                        folder.file("run/checkpoints/000015"),
                        std::filesystem::copy_options::recursive);
  RunRequest request = request_of(config, "", terminal);
  request.load.files.clear();
  const ResumeProof proof = verify_resume(folder.file("run"), std::move(request), folder.path());
  CHECK_FALSE(proof.differences.empty());
}

TEST_CASE("error_text: a message has one code, its own before that of its kind") {
  const auto text = [](const char* message) { return error_text(ExitCode::kWriteFailed, message); };
  CHECK(text("cannot write") == "error[E142]: cannot write\n");
  CHECK(text("[E420] step 5 was not saved") == "error[E420]: step 5 was not saved\n");
  CHECK(text("the last [E420] step 5") == "error[E420]: the last step 5\n");
  CHECK(text("a list [Empty] of") == "error[E142]: a list [Empty] of\n");
}

}  // namespace
}  // namespace meshtrain::test
