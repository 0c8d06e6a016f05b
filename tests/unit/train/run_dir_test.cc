#include "record/run_dir.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "engine/weights.h"
#include "fake_runner.h"
#include "support/temp_folder.h"
#include "tensor/safetensors.h"
#include "train/load_weights.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// A folder of its own, removed at the end.
struct TemporaryFolder {
  TemporaryFolder() {
    char name[] = "/tmp/meshtrain-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

std::string text_of(const std::string& path) {
  return read_file(path, 1 << 20);
}

void no_trouble(const std::string& message) {
  FAIL_CHECK(message);
}

std::string code_of(const RunDirOptions& options) {
  Diagnostics diagnostics;
  check_run_dir(options, diagnostics);
  return diagnostics.list().empty() ? "" : diagnostics.list()[0].code;
}

TEST_CASE("what happened after the checkpoint is taken out of the metrics") {
  const std::string text =
      R"({"event":"start"}
{"event":"step","epoch":1,"step":1}
{"event":"step","epoch":1,"step":2}
{"event":"epoch","epoch":1}
{"event":"step","epoch":2,"step":1}
{"event":"warning","text":"w"}
{"event":"step","epoch":2,"step":2}
{"event":"epoch","epoch":2}
{"event":"evaluate"}
{"event":"end","exit_code":0}
{"event":"epo)";
  CHECK(rewound_metrics(text, {.step = 3, .epoch = 1, .batch = 1}) ==
        R"({"event":"start"}
{"event":"step","epoch":1,"step":1}
{"event":"step","epoch":1,"step":2}
{"event":"epoch","epoch":1}
{"event":"step","epoch":2,"step":1}
{"event":"warning","text":"w"}
{"event":"end","exit_code":0}
)");
  CHECK(rewound_metrics(text, {}) ==
        R"({"event":"start"}
{"event":"warning","text":"w"}
{"event":"end","exit_code":0}
)");
}

TEST_CASE("a warning that a resumed run gives again is taken out of the metrics") {
  const std::string text = R"({"event":"start"}
{"event":"warning","text":"of the start"}
{"event":"warning","text":"of the start, too"}
{"event":"warning","epoch":1,"step":2,"text":"a"}
{"event":"epoch","epoch":1}
{"event":"warning","epoch":1,"text":"b"}
{"event":"warning","epoch":2,"step":1,"text":"c"}
{"event":"warning","epoch":2,"step":2,"text":"d"}
{"event":"warning","epoch":2,"text":"e"}
)";
  const auto warnings = [&](const TrainPosition& position) {
    std::string out;
    for (const char letter : std::string("abcde")) {
      const std::string part = fmt::format("\"text\":\"{}\"", letter);
      out += rewound_metrics(text, position).find(part) != std::string::npos ? letter : '-';
    }
    return out;
  };
  CHECK(warnings({.epoch = 0, .batch = 1}) == "-----");
  CHECK(warnings({.epoch = 0, .batch = 2}) == "a----");
  CHECK(warnings({.epoch = 1}) == "ab---");
  CHECK(warnings({.epoch = 1, .batch = 1}) == "abc--");
  CHECK(warnings({.epoch = 1, .batch = 2, .epoch_trained = true}) == "abcd-");
  CHECK(warnings({.epoch = 2}) == "abcde");
  CHECK(rewound_metrics(text, {.epoch = 2}).find("of the start") == std::string::npos);
  const std::string older = R"({"event":"epoch","epoch":1}
{"event":"warning","text":"of an older version, without a place"}
)";
  CHECK(rewound_metrics(older, {.epoch = 1}) == older);
}

TEST_CASE("two runs of one name get folders of their own and latest is the newer") {
  TemporaryFolder folder;
  const RunDirOptions options{.name = "my_net", .root = folder / "runs"};
  const RunDir first(options, no_trouble);
  first.link_latest();
  const RunDir second(options, no_trouble);
  second.link_latest();
  RunDir third(options, no_trouble);  // does not begin
  third.discard();
  CHECK_FALSE(fs::exists(third.path()));
  CHECK(first.path() != second.path());
  CHECK(fs::is_directory(first.file("checkpoints")));
  CHECK(fs::exists(first.file("metrics.jsonl")));
  CHECK(fs::path(first.path()).parent_path() == folder / "runs/my_net");
  CHECK(fs::equivalent(folder / "runs/my_net/latest", second.path()));
  CHECK(fs::read_symlink(folder / "runs/my_net/latest").is_relative());
}

TEST_CASE("runs of different names share no folder") {
  const auto folder_of = [](const std::string& name) {
    return fs::path(runs_folder({.name = name, .root = "runs"})).filename().string();
  };
  for (const char* name : {"net", "a-b_c.1", "模型", "größe", "x.", ""}) {
    CHECK(folder_of(name) == (*name == '\0' ? "run" : name));
  }
  const std::string many(300, 'x');
  std::string wide;
  while (wide.size() < 300) {
    wide += "模";
  }
  std::set<std::string> folders;
  for (const std::string& name :
       {std::string("模型"), std::string("数据"), std::string("a_b"), std::string("a b"),
        std::string("a+b"), std::string("a/b"), std::string(".a"), std::string("_a"), many,
        many + "y", wide, wide + "y"}) {
    const std::string found = folder_of(name);
    CHECK(found.size() <= 255);
    CHECK(found.find_first_of("/ +") == std::string::npos);
    CHECK_MESSAGE(folders.insert(found).second, found);
  }
  CHECK(folder_of("a b").find("a_b_") == 0);
  CHECK(folder_of(wide).size() == 254);  // whole characters
}

TEST_CASE("a name too long for a folder is E142") {
  TemporaryFolder folder;
  try {
    const RunDir run({.dir = folder / std::string(300, 'x')}, no_trouble);
    FAIL("made");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kWriteFailed);
  }
}

TEST_CASE("a new run's folder has the name that was chosen for it, or there is none") {
  TemporaryFolder folder;
  const RunDirOptions options{
      .name = "net", .root = folder / "runs", .new_folder = new_folder_name()};
  const RunDir run(options, no_trouble);
  run.link_latest();
  CHECK(run.path() == folder / ("runs/net/" + options.new_folder));
  CHECK(fs::read_symlink(folder / "runs/net/latest") == options.new_folder);
  CHECK_THROWS_AS(RunDir(options, no_trouble), ConfigError);
}

TEST_CASE("a run that another process has trained since it was looked at is E455") {
  const TemporaryFolder folder;
  ResumeTarget target;
  check_unchanged(target, folder.path);
  fs::create_directories(folder / "checkpoints/000002");
  try {
    check_unchanged(target, folder.path);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().list()[0].code == "E455");
    CHECK(error.diagnostics().list()[0].message.find("000002") != std::string::npos);
  }
  target.newest_step = 2;
  target.run.resume = true;
  check_unchanged(target, folder.path);
}

TEST_CASE("a given folder is used as it is when it is absent or empty") {
  TemporaryFolder folder;
  const RunDir deep({.dir = folder / "a/b"}, no_trouble);
  CHECK(deep.path() == folder / "a/b");
  fs::create_directory(folder / "empty");
  CHECK(code_of({.dir = folder / "empty"}).empty());
  const RunDir empty({.dir = folder / "empty"}, no_trouble);
  CHECK(fs::exists(empty.file("metrics.jsonl")));
  CHECK_FALSE(fs::exists(folder / "latest"));
}

TEST_CASE("a folder of another run is refused before and at its use") {
  TemporaryFolder folder;
  {
    RunDir run({.dir = folder / "run"}, no_trouble);
    // Killed here it would have left nothing: the run is begun again.
    CHECK(code_of({.dir = folder / "run"}) == "");
    write_file_atomic(folder / "run/checkpoints/LOCK", "");  // it had begun to look for room
    CHECK(code_of({.dir = folder / "run"}) == "");
    run.metrics().append(R"({"event":"start"})");
  }
  CHECK(code_of({.dir = folder / "run"}) == "E141");
  CHECK_THROWS_AS(RunDir({.dir = folder / "run"}, no_trouble), ConfigError);
  write_file_atomic(folder / "file", "text");
  CHECK(code_of({.dir = folder / "file"}) == "E141");
  Diagnostics diagnostics;
  check_run_dir({.dir = folder / "run"}, diagnostics);
  CHECK(diagnostics.exit_code() == ExitCode::kConfig);
}

TEST_CASE("a run is finished when its last word is an end without an error") {
  TemporaryFolder folder;
  RunDir run({.dir = folder / "run"}, no_trouble);
  CHECK_FALSE(is_finished_run(run.path()));
  run.metrics().append(R"({"event":"end","exit_code":75})");
  CHECK_FALSE(is_finished_run(run.path()));
  run.metrics().append(R"({"event":"end","exit_code":0})");
  CHECK(is_finished_run(run.path()));
  run.metrics().append(R"({"event":"start"})");
  CHECK_FALSE(is_finished_run(run.path()));
}

TEST_CASE("a folder on the way that may be entered but not read keeps no run from saving") {
  TemporaryFolder folder;
  const std::string closed = folder / "closed", own = closed + "/own";
  fs::create_directories(own);
  // One who may read everything is nobody in a process of its own.
  constexpr uid_t kNobody = 65534;
  const bool is_root = geteuid() == 0;
  chmod(folder.path.c_str(), 0711);
  chmod(closed.c_str(), is_root ? 0711 : 0311);
  REQUIRE((!is_root || chown(own.c_str(), kNobody, kNobody) == 0));
  const pid_t child = fork();
  if (child == 0) {
    if (is_root && (setgid(kNobody) != 0 || setuid(kNobody) != 0))
      _exit(2);
    try {
      const RunDir run({.dir = own + "/run"}, [](const std::string&) { _exit(3); });
      run.sync();
      _exit(0);
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  chmod(closed.c_str(), 0755);
}

TEST_CASE("a place that cannot hold results is E142 and exit code 74") {
  TemporaryFolder folder;
  write_file_atomic(folder / "file", "text");
  Diagnostics diagnostics;
  check_run_dir({.dir = folder / "file/run"}, diagnostics);
  REQUIRE(diagnostics.list().size() == 1);
  CHECK(diagnostics.list()[0].code == "E142");
  CHECK(diagnostics.exit_code() == ExitCode::kWriteFailed);
  CHECK(code_of({.dir = "/proc/no/run"}) == "E142");
  try {
    RunDir({.dir = "/proc/no/run"}, no_trouble);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kWriteFailed);
  }
}

TEST_CASE("weights that will have no room are E142 before the run") {
  TemporaryFolder folder;
  const RunDir run({.dir = folder / "run"}, no_trouble);
  run.check_room(1000);
  try {
    run.check_room(int64_t{1} << 60);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kWriteFailed);
    CHECK(error.diagnostics().list()[0].message.find("no room for the weights in `") == 0);
  }
  CHECK(code_of({.dir = folder / "run"}) == "");  // the same command may come again
}

TEST_CASE("checking a place leaves nothing there") {
  TemporaryFolder folder;
  CHECK(code_of({.dir = folder / "x/y"}).empty());
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("lines that do not fit on the disk wait and nothing is half written") {
  TemporaryFolder folder;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  int troubles = 0;
  {
    LineLog log(folder / "metrics.jsonl", [&](const std::string& message) {
      ++troubles;
      CHECK(message.find("cannot write `" + folder.path) == 0);
    });
    log.append("first");
    const rlimit tight = {10, before.rlim_max};  // four bytes more than the first line
    setrlimit(RLIMIT_FSIZE, &tight);
    log.append("second");
    log.append("third");
    CHECK(text_of(folder / "metrics.jsonl") == "first\n");
    setrlimit(RLIMIT_FSIZE, &before);
    log.append("fourth");
    CHECK(text_of(folder / "metrics.jsonl") == "first\nsecond\nthird\nfourth\n");
    CHECK(troubles == 1);
    setrlimit(RLIMIT_FSIZE, &tight);
    log.append("fifth");
    try {
      log.close();
      FAIL_CHECK("no error");
    } catch (const FileError& error) {
      CHECK(error.exit_code() == ExitCode::kWriteFailed);
    }
    setrlimit(RLIMIT_FSIZE, &before);
  }
  CHECK(text_of(folder / "metrics.jsonl") == "first\nsecond\nthird\nfourth\n");
}

FakeRunner runner_with_weights() {
  FakeRunner runner;
  runner.weights["d1/kernel"] = tensor_of<double>(DType::kFloat32, {2, 2}, {1, 2, 3, 4});
  runner.weights["d1/bias"] = tensor_of<double>(DType::kFloat64, {2}, {5, 6});
  return runner;
}

TEST_CASE("weights come back as they were saved") {
  TemporaryFolder folder;
  const FakeRunner saved = runner_with_weights();
  save_weights(saved, folder / "weights.safetensors");
  const SafetensorsFile file = read_safetensors(folder / "weights.safetensors");
  CHECK(file.tensors.size() == 2);
  FakeRunner loaded;
  loaded.weights["d1/kernel"] = HostTensor(DType::kFloat64, {2, 2});
  loaded.weights["d1/bias"] = HostTensor(DType::kFloat32, {2});
  load_weights(loaded, folder / "weights.safetensors", {});
  CHECK(loaded.weights["d1/kernel"].dtype() == DType::kFloat64);
  CHECK(loaded.weights["d1/kernel"].at(3) == 4);
  CHECK(loaded.weights["d1/bias"].at(1) == 6);
}

TEST_CASE("weights that do not fit are listed all together and change nothing") {
  TemporaryFolder folder;
  save_weights(runner_with_weights(), folder / "weights.safetensors");
  FakeRunner other;
  other.weights["d1/kernel"] = HostTensor(DType::kFloat32, {3, 2});
  other.weights["d1/bias"] = HostTensor(DType::kFloat32, {2});
  other.weights["d2/kernel"] = HostTensor(DType::kFloat32, {2, 1});
  FakeRunner more = runner_with_weights();
  more.weights.erase("d1/bias");
  try {
    load_weights(other, folder / "weights.safetensors", {});
    FAIL_CHECK("no error");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kCheckpoint);
    const Diagnostic& diagnostic = error.diagnostics().list()[0];
    CHECK(diagnostic.code == "E410");
    CHECK(diagnostic.notes ==
          std::vector<std::string>{
              "note: other shape: d1/kernel is (2, 2) in the file, (3, 2) in the model",
              "note: missing: d2/kernel (2, 1)",
              "help: `train --partial`, or `fit: {partial_weights: true}`, takes those that fit"});
  }
  CHECK(other.weights["d1/bias"].at(0) == 0);
  try {
    load_weights(more, folder / "weights.safetensors", {});
    FAIL_CHECK("no error");
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().list()[0].notes ==
          std::vector<std::string>{
              "note: unexpected: d1/bias (2,)",
              "help: `train --partial`, or `fit: {partial_weights: true}`, takes those that fit"});
  }
}

TEST_CASE("a model that does not train takes a file with more weights, and none with fewer") {
  TemporaryFolder folder;
  save_weights(runner_with_weights(), folder / "weights.safetensors");
  const auto load = [&](FakeRunner& runner, std::vector<std::string>* unfit) {
    return test::caught([&] {
      load_weights(runner, folder / "weights.safetensors", {}, nullptr, unfit, Coordinator(),
                   nullptr, true);
    });
  };
  std::vector<std::string> unfit;
  FakeRunner more = runner_with_weights();
  more.weights.erase("d1/bias");
  more.weights["d1/kernel"] = HostTensor(DType::kFloat32, {2, 2});
  const test::Caught refused = load(more, nullptr);
  CHECK(refused.code == "E410");
  CHECK_MESSAGE(refused.says("help: `fit.partial_weights=true` leaves out those"), refused.text);
  CHECK(load(more, &unfit).code.empty());
  CHECK(unfit == std::vector<std::string>{"unexpected: d1/bias (2,)"});
  CHECK(more.weights["d1/kernel"].at(3) == 4);
  FakeRunner fewer = runner_with_weights();
  fewer.weights["d2/kernel"] = HostTensor(DType::kFloat32, {2, 1});
  const test::Caught missing = load(fewer, &unfit);
  CHECK(missing.code == "E410");
  CHECK(missing.says("note: missing: d2/kernel (2, 1)"));
  CHECK_FALSE(missing.says("partial"));
}

}  // namespace
}  // namespace meshtrain
