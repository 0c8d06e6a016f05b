// A real run under crash: every state that a power cut may leave, a kill before every file call,
// every call failing. With a broken variant that the checks must find.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "crash/crash_states.h"
#include "train/checkpoint_reader.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using crash::Bytes;
using crash::Disk;
using crash::Names;

constexpr const char* kConfig = R"(name: tiny
seed: 3
distribution: {device_mesh: {shape: [2], axis_names: [data], devices: "cpu:2"}, zero: 1}
data:
  train: {source: random, samples: 20, shape: [4], classes: 3, seed: 1}
  validation: {source: random, samples: 8, shape: [4], classes: 3, seed: 2}
model:
  layers:
    - Input: {shape: [4]}
    - Dense: {units: 4, activation: relu}
    - Dropout: 0.2
    - Dense: {units: 3}
compile:
  optimizer: {Adam: {learning_rate: 0.05}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 4, epochs: 2}
checkpoint: {every: 2 steps, keep: 2, async: false}
evaluate: {on: none}
)";

// In memory where there is such a place: syncing a disk for each of thousands of states is slow.
class FastFolder {
 public:
  FastFolder() {
    std::string name = fs::is_directory("/dev/shm") && access("/dev/shm", W_OK) == 0
                           ? "/dev/shm/meshtrain-crash-XXXXXX"
                           : "/tmp/meshtrain-crash-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fs::create_directory(file("work"));
    std::ofstream(file("tiny.yaml")) << kConfig;
  }
  ~FastFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  FastFolder(const FastFolder&) = delete;
  FastFolder& operator=(const FastFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct Recording {
  std::vector<std::string> more;         // arguments
  std::vector<std::string> environment;  // of the recorder
};

// meshtrain train in `work` below the folder, under the recorder.
Result run_recorded(const FastFolder& folder, const Recording& recording) {
  Command command;
  command.args = {"train", "../tiny.yaml", "-o", "run", "-v"};
  command.args.insert(command.args.end(), recording.more.begin(), recording.more.end());
  command.folder = folder.file("work");
  // AddressSanitizer wants to be the first library, but it does without.
  command.environment = {"ASAN_OPTIONS=verify_asan_link_order=0", "LD_PRELOAD=" MESHTRAIN_RECORDER,
                         "MESHTRAIN_RECORD_FOLDER=" + folder.file("work"),
                         "MESHTRAIN_RECORD=" + folder.file("calls")};
  command.environment.insert(command.environment.end(), recording.environment.begin(),
                             recording.environment.end());
  return run(command);
}

void start_again(const FastFolder& folder) {
  fs::remove_all(folder.file("work"));
  fs::create_directory(folder.file("work"));
  fs::remove(folder.file("calls"));
}

struct Findings {
  int states = 0, lost = 0, damaged = 0, saves = 0;
};

// Looks at every state of every prefix of the recorded calls.
Findings check_states(const FastFolder& folder) {
  Findings out;
  Disk disk;
  const std::vector<crash::Call> calls = crash::read_calls(folder.file("calls"));
  REQUIRE(calls.size() > 20);
  for (const crash::Call& call : calls) {
    disk.apply(call);
    out.saves += call.kind == 'A' ? 1 : 0;
    for (const Bytes bytes : {Bytes::kKeep, Bytes::kLose, Bytes::kHalve, Bytes::kZero}) {
      for (const Names names : {Names::kKeep, Names::kLose, Names::kEven, Names::kOdd}) {
        fs::remove_all(folder.file("state"));
        disk.rebuild(folder.file("state"), bytes, names);
        const NewestCheckpoint newest = newest_checkpoint(folder.file("state/run/checkpoints"));
        const int64_t step = newest.reader ? newest.reader->manifest().step : -1;
        ++out.states;
        out.damaged += newest.damaged.empty() ? 0 : 1;
        out.lost += step < disk.acknowledged() ? 1 : 0;
      }
    }
  }
  return out;
}

// The final weights and what was reported of each epoch.
std::pair<std::string, std::string> outcome(const FastFolder& folder) {
  const auto text = [&](const std::string& name) {
    std::ifstream stream(folder.file("work/run/" + name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  std::string epochs;
  for (const std::string& line : lines_of(text("metrics.jsonl"))) {
    const nlohmann::json event = nlohmann::json::parse(line);
    if (event.at("event") == "epoch") {
      epochs += event.at("epoch").dump() + event.at("logs").dump() + "\n";
    }
  }
  return {text("weights.safetensors"), epochs};
}

int count_calls(const FastFolder& folder) {
  int count = 0;
  for (const crash::Call& call : crash::read_calls(folder.file("calls"))) {
    count += call.kind == 'A' ? 0 : 1;
  }
  return count;
}

bool verifies(const std::string& checkpoint) {
  try {
    CheckpointReader(checkpoint).verify();
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST_CASE("no saved step is lost in any state that a power cut may leave") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const Findings found = check_states(folder);
  MESSAGE(found.states << " states of " << found.saves << " saves");
  CHECK(found.saves >= 5);
  CHECK(found.lost == 0);
  CHECK(found.damaged == 0);
}

TEST_CASE("nor when saves are written while training goes on") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = {"checkpoint.async=true"}, .environment = {}}).exit_code ==
          0);
  const Findings found = check_states(folder);
  CHECK(found.saves >= 5);
  CHECK(found.lost == 0);
  CHECK(found.damaged == 0);
}

TEST_CASE("nor when every step is saved and one save follows upon the other") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = {"checkpoint.async=true", "checkpoint.every=1 steps"},
                                .environment = {}})
              .exit_code == 0);
  const Findings found = check_states(folder);
  CHECK(found.saves >= 8);
  CHECK(found.lost == 0);
  CHECK(found.damaged == 0);
}

TEST_CASE("nor when a killed run is cleaned up and goes on") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const int calls = count_calls(folder);
  for (const int percent : {35, 55, 75}) {
    CAPTURE(percent);
    start_again(folder);
    const std::string fault = fmt::format("MESHTRAIN_FAULT={}:KILL", calls * percent / 100);
    REQUIRE(run_recorded(folder, {.more = {}, .environment = {fault}}).exit_code == 128 + SIGKILL);
    REQUIRE(run_recorded(folder, {.more = {"--resume"}, .environment = {}}).exit_code == 0);
    const Findings found = check_states(folder);
    CHECK(found.saves >= 4);
    CHECK(found.lost == 0);
    CHECK(found.damaged == 0);
  }
}

// A model saved over the one before, under one name, is there in every state.
TEST_CASE("a model that is saved under one name again and again is never lost") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {.more = {"callbacks=[{ModelCheckpoint: {filepath: saved}}]",
                                         "checkpoint.every=never", "fit.epochs=3"},
                                .environment = {}})
              .exit_code == 0);
  Disk disk;
  bool named = false, certain = false;
  int replaced = 0, lost = 0;
  for (const crash::Call& call : crash::read_calls(folder.file("calls"))) {
    disk.apply(call);
    replaced += call.kind == 'X' && call.b == "run/saved" ? 1 : 0;
    named = named || call.b == "run/saved";
    certain = certain || (named && call.kind == 'F' && call.a == "run");
    for (const Bytes bytes : {Bytes::kKeep, Bytes::kLose, Bytes::kHalve, Bytes::kZero}) {
      for (const Names names : {Names::kKeep, Names::kLose, Names::kEven, Names::kOdd}) {
        fs::remove_all(folder.file("state"));
        if (certain) {
          disk.rebuild(folder.file("state"), bytes, names);
          lost += verifies(folder.file("state/run/saved")) ? 0 : 1;
        }
      }
    }
  }
  CHECK(replaced == 2);
  CHECK(lost == 0);
}

TEST_CASE("a program that does not sync folders or anything is found out") {
  for (const char* kind : {"folders", "all"}) {
    CAPTURE(kind);
    FastFolder folder;
    REQUIRE(run_recorded(folder,
                         {.more = {}, .environment = {std::string("MESHTRAIN_UNSYNCED=") + kind}})
                .exit_code == 0);
    CHECK(check_states(folder).lost > 0);
  }
}

TEST_CASE("killed before any file call a run goes on to the same bits") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const auto expected = outcome(folder);
  const int calls = count_calls(folder);
  const int stride = std::getenv("MESHTRAIN_CRASH_ALL") != nullptr ? 1 : 5;
  for (int n = 1; n <= calls; n += stride) {
    CAPTURE(n);
    start_again(folder);
    const Result killed = run_recorded(
        folder, {.more = {}, .environment = {fmt::format("MESHTRAIN_FAULT={}:KILL", n)}});
    REQUIRE(killed.exit_code == 128 + SIGKILL);
    Command command;
    command.args = {"train", "../tiny.yaml", "-o", "run", "-q", "--resume"};
    command.folder = folder.file("work");
    // Killed before metrics.jsonl was there: nothing of a run but its empty folder.
    if (!fs::exists(folder.file("work/run/metrics.jsonl"))) {
      fs::remove_all(folder.file("work/run"));
    }
    const Result rest = run(command);
    REQUIRE_MESSAGE(rest.exit_code == 0, rest.err);
    CHECK(outcome(folder) == expected);
  }
}

TEST_CASE("a failing call never takes the checkpoints before with it") {
  FastFolder folder;
  REQUIRE(run_recorded(folder, {}).exit_code == 0);
  const int calls = count_calls(folder);
  const char* const kinds[] = {"ENOSPC", "EDQUOT", "EIO", "EACCES", "EROFS", "SHORT", "EINTR"};
  const bool all = std::getenv("MESHTRAIN_CRASH_ALL") != nullptr;
  int refused = 0;
  for (int n = 1; n <= calls; n += all ? 1 : 4) {
    for (size_t k = 0; k < std::size(kinds); ++k) {
      if (!all && static_cast<size_t>(n / 4) % std::size(kinds) != k) {
        continue;
      }
      for (const char* stays : {"", "+"}) {
        const std::string fault = fmt::format("MESHTRAIN_FAULT={}{}:{}", n, stays, kinds[k]);
        CAPTURE(fault);
        start_again(folder);
        const Result result = run_recorded(folder, {.more = {}, .environment = {fault}});
        const bool harmless = kinds[k] == std::string("SHORT") || kinds[k] == std::string("EINTR");
        CHECK_MESSAGE((result.exit_code == 0 || (!harmless && result.exit_code == 74)), result.err);
        refused += result.exit_code == 74 ? 1 : 0;
        int64_t acknowledged = -1;
        if (fs::exists(folder.file("calls"))) {
          Disk disk;
          for (const crash::Call& call : crash::read_calls(folder.file("calls"))) {
            if (call.kind == 'A') {
              disk.apply(call);
            }
          }
          acknowledged = disk.acknowledged();
        }
        const NewestCheckpoint newest = newest_checkpoint(folder.file("work/run/checkpoints"));
        CHECK(newest.damaged.empty());
        CHECK((newest.reader ? newest.reader->manifest().step : -1) >= acknowledged);
      }
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("killed at random moments a run still ends with the same bits") {
  FastFolder folder;
  const std::vector<std::string> longer = {"fit.epochs=40", "checkpoint.every=3 steps",
                                           "checkpoint.async=true"};
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(run_recorded(folder, {.more = longer, .environment = {}}).exit_code == 0);
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - start;
  const auto expected = outcome(folder);
  start_again(folder);
  const char* wanted = std::getenv("MESHTRAIN_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 8;
  int killed = 0, ended = 0, in_training = 0;
  uint64_t random = 12345;
  while (killed < kills || ended == 0) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    Command command;
    command.args = {"train", "../tiny.yaml", "-o", "run", "-q", "--resume"};
    command.args.insert(command.args.end(), longer.begin(), longer.end());
    command.folder = folder.file("work");
    if (killed < kills) {
      const double wait = 0.6 * whole.count() * static_cast<double>(random >> 40) / (1 << 24);
      command.watch = [wait](const std::string&, const std::string&, int pid) {
        usleep(static_cast<useconds_t>(wait));
        kill(pid, SIGKILL);
        return true;
      };
    }
    const Result result = run(command);
    if (result.exit_code == 128 + SIGKILL) {
      ++killed;
      const std::string checkpoints = folder.file("work/run/checkpoints");
      in_training += fs::exists(checkpoints) && !checkpoint_steps(checkpoints).empty() ? 1 : 0;
      if (!fs::exists(folder.file("work/run/metrics.jsonl"))) {
        fs::remove_all(folder.file("work/run"));
      }
      continue;
    }
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(outcome(folder) == expected);
    ++ended;
    start_again(folder);
  }
  MESSAGE(killed << " kills, " << in_training << " of them after a first save, " << ended
                 << " runs that came to their end");
  CHECK(in_training * 4 > killed);
}

}  // namespace
}  // namespace meshtrain
