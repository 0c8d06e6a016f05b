// meshtrain launch and --restarts, with a program in place of mpirun that writes down how it was
// called. What real processes do on hosts is in tests/cluster.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.h"
#include "example.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// A folder with the example and an `mpirun` that does what `script` says.
class LaunchFolder : public ExampleFolder {
 public:
  explicit LaunchFolder(const std::string& script) {
    fs::create_directory(file("bin"));
    write("bin/mpirun", "#!/bin/sh\n" + script);
    ::chmod(file("bin/mpirun").c_str(), 0755);
  }

  Command command(std::vector<std::string> args) const {
    Command out;
    out.args = std::move(args);
    out.folder = path();
    out.environment = {"PATH=" + file("bin") + ":" + std::getenv("PATH")};
    return out;
  }
};

constexpr const char* kWriteDown =
    "for word in \"$@\"; do printf '%s\\n' \"$word\"; done >words\n"
    "env | grep -E '^(OMPI|PMIX|MESHTRAIN)_' | sort >environment\n";

std::vector<std::string> words_after_program(const LaunchFolder& folder) {
  std::vector<std::string> words = lines_of(folder.read("words"));
  const auto program = std::find(words.begin(), words.end(), MESHTRAIN_BINARY);
  REQUIRE(program != words.end());
  return {program + 1, words.end()};
}

bool has_pair(const std::vector<std::string>& words, const std::string& a, const std::string& b) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == a && words[i + 1] == b) {
      return true;
    }
  }
  return false;
}

bool has_line(const std::string& text, const std::string& line) {
  const std::vector<std::string> lines = lines_of(text);
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

TEST_CASE("launch hands what train takes to mpirun word by word") {
  const LaunchFolder folder(kWriteDown);
  const Result result = run(folder.command(
      {"launch", "-vv", "--hosts", "a:2,b:2", "small.yaml", "--mesh", "data=2,model=2",
       "fit.epochs=3", "-o", "a run", "--resume", "name='it''s; $(touch x) `id`'", "-q",
       "--remote-agent", "my agent", "--restarts", "2", "--set", "fit.batch_size=8"}));
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> words = lines_of(folder.read("words"));
  CHECK(has_pair(words, "--host", "a:2,b:2"));
  CHECK(has_pair(words, "-n", "4"));
  CHECK(has_pair(words, "plm_rsh_agent", "my agent"));
  CHECK(has_pair(words, "-x", "MESHTRAIN_RESTART"));
  std::vector<std::string> passed = words_after_program(folder);
  std::sort(passed.begin(), passed.end());
  std::vector<std::string> expected = {"train",
                                       "small.yaml",
                                       "fit.epochs=3",
                                       "name='it''s; $(touch x) `id`'",
                                       "--run-dir=a run",
                                       "--resume=auto",
                                       "--quiet=true",
                                       "--verbose=true",
                                       "--verbose=true",
                                       "--mesh=data=2,model=2",
                                       "--set=fit.batch_size=8"};
  std::sort(expected.begin(), expected.end());
  CHECK(passed == expected);
  CHECK_FALSE(fs::exists(folder.file("x")));
  // With -v it says how.
  CHECK(result.err.find("launch: OMPI_MCA_oob_tcp_keepalive_time=10\n") != std::string::npos);
  CHECK(result.err.find("--host a:2,b:2 -n 4") != std::string::npos);
}

TEST_CASE("launch makes the safe settings of MPI where they are not made") {
  const LaunchFolder folder(kWriteDown);
  Command command = folder.command({"launch", "--processes", "4", "small.yaml", "-q"});
  command.environment.push_back("OMPI_MCA_oob_tcp_keepalive_time=77");
  command.environment.push_back("MESHTRAIN_COLLECTIVE_TIMEOUT=9");
  CHECK(run(command).exit_code == 0);
  const std::string environment = folder.read("environment");
  CHECK(has_line(environment, "OMPI_MCA_oob_tcp_keepalive_time=77"));
  CHECK(has_line(environment, "OMPI_MCA_oob_tcp_keepalive_intvl=5"));
  CHECK(has_line(environment, "OMPI_MCA_coll=^han,adapt"));
  CHECK(has_line(environment, "PMIX_MCA_gds=hash"));
  CHECK(has_pair(lines_of(folder.read("words")), "-x", "MESHTRAIN_COLLECTIVE_TIMEOUT"));
  CHECK(has_pair(lines_of(folder.read("words")), "--host", "localhost:4"));
}

TEST_CASE("launch refuses what it cannot start before anything starts") {
  const LaunchFolder folder(kWriteDown);
  folder.write("hosts", "a slots=2\nb slots=none\n");
  struct Case {
    std::vector<std::string> args;
    int exit_code;
    const char* message;
  };
  const Case cases[] = {
      {{"small.yaml"}, 2, "`launch` needs `--processes` or `--hosts`"},
      {{"--processes", "0", "small.yaml"}, 2, "E140"},
      {{"--hosts", "a:2,a:2", "small.yaml"}, 2, "host `a` is there twice"},
      {{"--hosts", "a:x", "small.yaml"}, 2, "`x` in `a:x` is no number of processes"},
      {{"--hosts", "a,localhost", "small.yaml"}, 2, "`localhost` is another machine for each"},
      {{"--hosts", "a:2", "--processes", "4", "small.yaml"},
       2,
       "--processes 4, but the hosts take 2 processes"},
      {{"--hostfile", "hosts", "small.yaml"}, 2, "hosts:2:1"},
      {{"--hostfile", "hosts", "--hosts", "a", "small.yaml"}, 2, "both --hosts and --hostfile"},
      {{"--hostfile", "none", "small.yaml"}, 2, "cannot open `none`"},
      {{"--processes", "3", "small.yaml"}, 4, "3 processes"},
      {{"--processes", "4", "none.yaml"}, 2, "none.yaml"},
      {{"--processes", "4", "small.yaml", "fit.epochs=ten"}, 2, "fit.epochs"},
      {{"--processes", "4", "-"}, 2, "cannot share standard input"},
      {{"--hosts", "[::1]:2", "small.yaml"}, 2, "mpirun takes no IPv6 address as a host: `::1`"},
      {{"--processes", "4", "small.yaml", "run.on_signal={SIGINT: exit}"},
       2,
       "neither of which does what SIGINT should (exit)"},
      {{"--processes", "4", "small.yaml", "run.on_signal={SIGUSR1: checkpoint}"},
       2,
       "neither of which does what SIGTERM should (checkpoint-exit)"},
      {{"--processes", "4", "small.yaml", "--interface", "eth77"},
       8,
       "interface `eth77` not found"},
      {{"--processes", "4", "small.yaml", "--no-such-flag"}, 2, "unknown option `--no-such-flag`"}};
  for (const Case& c : cases) {
    CAPTURE(c.message);
    std::vector<std::string> args = {"launch"};
    args.insert(args.end(), c.args.begin(), c.args.end());
    const Result result = run(folder.command(args));
    CHECK_MESSAGE(result.exit_code == c.exit_code, result.err);
    CHECK_MESSAGE(result.err.find(c.message) != std::string::npos, result.err);
    CHECK_FALSE(fs::exists(folder.file("words")));
  }
}

TEST_CASE("hosts that nobody knows are refused one by one before anything starts") {
  for (const char* name : {"SLURM_JOB_ID", "OMPI_MCA_plm_rsh_agent"}) {  // others look for hosts
    ::unsetenv(name);
  }
  ::setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);  // where nothing answers
  const LaunchFolder folder(kWriteDown);
  // What ssh has in its configuration it reaches by another name, or through another host.
  folder.write("bin/ssh",
               "#!/bin/sh\n[ \"$1\" = -G ] || exit 9\necho user me\n"
               "case $2 in by-config.invalid) echo hostname 127.0.0.1 ;;\n"
               "behind.invalid) echo hostname behind.invalid; echo proxyjump gate ;;\n"
               "*) echo hostname $2; echo proxycommand none ;; esac\n");
  ::chmod(folder.file("bin/ssh").c_str(), 0755);
  const auto launch = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "launch");
    args.insert(args.end(), {"small.yaml", "-q"});
    return run(folder.command(args));
  };
  const Result unknown = launch({"--hosts", "gone.invalid:2,192.0.2.1:1,Lost.invalid:1"});
  CHECK(unknown.exit_code == 2);
  CHECK_MESSAGE(unknown.err.find("error[E140]: `--hosts`: host `gone.invalid` cannot be found: ") !=
                    std::string::npos,
                unknown.err);
  CHECK(unknown.err.find("host `Lost.invalid` cannot be found") != std::string::npos);
  CHECK(unknown.err.find("host `192.0.2.1`") == std::string::npos);
  folder.write("hosts", "by-config.invalid slots=2\ngone.invalid slots=2\n");
  const Result in_file = launch({"--hostfile", "hosts"});
  CHECK(in_file.exit_code == 2);
  CHECK_MESSAGE(
      in_file.err.find("error[E140]: `--hostfile hosts`: host `gone.invalid`") != std::string::npos,
      in_file.err);
  CHECK(in_file.err.find("by-config") == std::string::npos);
  CHECK_FALSE(fs::exists(folder.file("words")));
  CHECK(launch({"--hosts", "by-config.invalid:2,behind.invalid:2"}).exit_code == 0);
  CHECK(has_pair(lines_of(folder.read("words")), "--host", "by-config.invalid:2,behind.invalid:2"));
  // Another agent knows its hosts itself.
  CHECK(launch({"--hosts", "gone.invalid:4", "--remote-agent", "mine"}).exit_code == 0);
}

TEST_CASE("more processes than GPUs of this machine compute on its processors") {
  const LaunchFolder folder(kWriteDown);
  fs::create_directory(folder.file("dev"));
  for (const char* driver_file : {"nvidiactl", "nvidia0", "nvidia1"})
    folder.write(std::string("dev/") + driver_file, "");
  Command command =
      folder.command({"launch", "--hosts", "localhost:4", "small.yaml", "-q", "--devices", "auto"});
  command.environment.insert(
      command.environment.end(),
      {"MESHTRAIN_DEVICE_FOLDER=" + folder.file("dev"), "MESHTRAIN_GPU_LIBRARY=" MESHTRAIN_BINARY});
  CHECK(run(command).exit_code == 0);
  CHECK(fs::exists(folder.file("words")));  // by mpirun
}

TEST_CASE("launch without an mpirun says which package has it") {
  const ExampleFolder folder;
  Command command;
  command.args = {"launch", "--processes", "4", "small.yaml"};
  command.folder = folder.path();
  command.environment = {"PATH=" + folder.path()};
  const Result result = run(command);
  CHECK(result.exit_code == 8);
  CHECK_MESSAGE(result.err.find("error[E614]: there is no `mpirun` on PATH") != std::string::npos,
                result.err);
  CHECK(result.err.find("apt-get install openmpi-bin") != std::string::npos);
}

TEST_CASE("the codes of processes are passed on and those of mpirun mean a lost host") {
  const LaunchFolder no_daemon("exit 127\n");
  const Result missing =
      run(no_daemon.command({"launch", "--processes", "4", "--restarts", "3", "small.yaml"}));
  CHECK(missing.exit_code == 8);
  CHECK_MESSAGE(missing.err.find("error[E614]: mpirun found no `orted` on another host") == 0,
                missing.err);
  for (const auto& [code, expected] : {std::pair(0, 0),
                                       {1, 8},  // its own; a process has 70 for its 1
                                       {2, 2},
                                       {75, 75},
                                       {74, 74},
                                       {8, 8},
                                       {137, 8},
                                       {139, 8},
                                       {205, 8},
                                       {9, 8}}) {
    const LaunchFolder folder(fmt::format("exit {}\n", code));
    const Result result = run(folder.command({"launch", "--processes", "4", "small.yaml"}));
    CHECK(result.exit_code == expected);
    const bool says = result.err.find(fmt::format("exit code {}:", code)) != std::string::npos;
    CHECK(says == (code != expected));
  }
}

// In place of a process that catches signals: another program than that in place of mpirun. `ready`
// comes once the shell knows which one to kill: a process that is left keeps the output open.
constexpr const char* kRank =
    "cp \"$(command -v bash)\" rank\n"
    "./rank -c 'trap : USR1 USR2; echo >catches; while :; do sleep 0.05; done' &\nrank=$!\n"
    "until [ -e catches ]; do sleep 0.01; done\necho >ready\n";

TEST_CASE("an unexpected failure of a process has another code than mpirun's own") {
  const LaunchFolder folder("exit 70\n");
  CHECK(run(folder.command({"launch", "--processes", "4", "small.yaml"})).exit_code == 1);
}

TEST_CASE("a stop before any process can save ends mpirun and has the signal's code") {
  for (const auto& [number, code] : {std::pair(SIGTERM, 143), {SIGINT, 130}, {SIGUSR1, 143}}) {
    // The one in the background is as a process that mpirun has forked, and that is none yet.
    const LaunchFolder folder(
        "trap 'echo usr1 >got' USR1\n(trap : USR1; while :; do sleep 0.05; done) &\nfork=$!\n"
        "trap 'kill $fork; echo term >got; exit 0' TERM\necho >ready\n"
        "while :; do sleep 0.05; done\n");
    Command command = folder.command({"launch", "--processes", "4", "small.yaml"});
    command.watch = [&, sent = number](const std::string&, const std::string&, int pid) {
      return fs::exists(folder.file("ready")) && kill(pid, sent) == 0;
    };
    const Result result = run(command);
    CHECK_MESSAGE(result.exit_code == code, result.err);
    CHECK(folder.read("got") == "term\n");
  }
}

TEST_CASE("launch on one of several processes is refused") {
  for (const char* rank : {"RANK=0", "RANK=1"}) {
    const LaunchFolder folder(kWriteDown);
    Command command = folder.command({"launch", "--processes", "2", "small.yaml"});
    command.environment.insert(command.environment.end(),
                               {rank, "WORLD_SIZE=2", "MASTER_ADDR=x", "MASTER_PORT=1"});
    const Result result = run(command);
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(result.err.find("`launch` starts the processes itself") != std::string::npos,
                  result.err);
    CHECK_FALSE(fs::exists(folder.file("words")));
  }
}

TEST_CASE("the first signal that stops becomes the one that mpirun hands to all") {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    const LaunchFolder folder(std::string("trap 'echo usr1 >got; kill $rank; exit 75' USR1\n"
                                          "trap 'echo other >got; kill $rank' TERM INT\n") +
                              kRank + "while :; do sleep 0.05; done\n");
    Command command =
        folder.command({"launch", "--processes", "4", "small.yaml", "--restarts", "3"});
    command.watch = [&](const std::string&, const std::string&, int pid) {
      return fs::exists(folder.file("ready")) && kill(pid, number) == 0;
    };
    const Result result = run(command);
    CHECK_MESSAGE(result.exit_code == 75, result.err);
    CHECK(folder.read("got") == "usr1\n");
  }
}

TEST_CASE("a signal becomes the one of mpirun's that does the same") {
  const LaunchFolder folder(std::string("trap 'echo usr1 >>got' USR1\n"
                                        "trap 'echo usr2 >>got; kill $rank; exit 75' USR2\n") +
                            kRank + "while :; do sleep 0.05; done\n");
  Command command = folder.command(
      {"launch", "--processes", "4", "small.yaml",
       "run.on_signal={SIGUSR1: checkpoint, SIGUSR2: checkpoint-exit, SIGINT: ignore}"});
  std::vector<int> numbers = {SIGTERM, SIGHUP, SIGINT};  // taken from the end
  command.watch = [&](const std::string&, const std::string&, int pid) {
    const bool has_got =
        numbers.size() == 1 ? folder.read("got") == "usr1\n" : fs::exists(folder.file("ready"));
    if (has_got) {
      kill(pid, numbers.back());
      numbers.pop_back();
    }
    return numbers.empty();
  };
  const Result result = run(command);
  CHECK_MESSAGE(result.exit_code == 75, result.err);
  CHECK(folder.read("got") == "usr1\nusr2\n");
}

TEST_CASE("a run that was asked to save is started again when it is lost") {
  for (const auto& [number, actions] :
       {std::pair(SIGUSR2, "{}"), {SIGUSR1, "{SIGUSR1: checkpoint, SIGUSR2: checkpoint-exit}"}}) {
    const LaunchFolder folder(
        std::string("[ -e ready ] && exit 0\ntrap 'kill $rank; exit 8' USR1 USR2\n") + kRank +
        "while :; do sleep 0.05; done\n");
    Command command = folder.command({"launch", "--processes", "4", "small.yaml", "--restarts", "3",
                                      std::string("run.on_signal=") + actions});
    command.watch = [&, wanted = number](const std::string&, const std::string&, int pid) {
      return fs::exists(folder.file("ready")) && kill(pid, wanted) == 0;
    };
    const Result result = run(command);
    CHECK_MESSAGE(result.exit_code == 0, result.err);
  }
}

// Runs the program alone; the first `kills` times it is killed once it has saved anew.
std::string killing_script(int kills) {
  return fmt::format(
      "while [ \"$1\" != '{}' ]; do shift; done\n"
      "count=$(cat count 2>/dev/null || echo 0); echo $((count + 1)) >count\n"
      "before=$(ls run/checkpoints 2>/dev/null | grep -c '^[0-9]*$')\n"
      "last=$(ls run/checkpoints 2>/dev/null | grep '^[0-9]*$' | tail -1)\n"
      "\"$@\" &\n"
      "if [ $count -lt {} ]; then\n"
      "  while [ \"$(ls run/checkpoints 2>/dev/null | grep '^[0-9]*$' | tail -1)\" = \"$last\" ]; "
      "do sleep 0.02; done\n"
      "  kill -9 $!; wait $!; exit 137\n"
      "fi\n"
      "wait $!\n",
      MESHTRAIN_BINARY, kills);
}

const std::vector<std::string> kManyEpochs = {"small.yaml", "fit.epochs=400",
                                              "checkpoint.every=50 steps"};

std::vector<std::string> with(std::vector<std::string> first,
                              const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

TEST_CASE("a run that is lost twice is started again twice and ends the same") {
  const LaunchFolder folder(killing_script(2));
  REQUIRE(run(folder.command(with({"train", "-q", "-o", "whole"}, kManyEpochs))).exit_code == 0);
  const Result result = run(folder.command(
      with({"launch", "--processes", "4", "--restarts", "3", "-q", "-o", "run"}, kManyEpochs)));
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("restart 1 of 3 after exit code 8 of mpirun, from step ") !=
        std::string::npos);
  CHECK(result.err.find("restart 2 of 3") != std::string::npos);
  CHECK(result.err.find("restart 3 of 3") == std::string::npos);
  CHECK(folder.read("run/weights.safetensors") == folder.read("whole/weights.safetensors"));
}

TEST_CASE("another run of the same name does not take the place of one that is started again") {
  const LaunchFolder folder(fmt::format(
      "while [ \"$1\" != '{0}' ]; do shift; done\n"
      "[ -e first ] && exec \"$@\"\n"
      "\"$@\" &\n"
      "until ls runs/small/latest/checkpoints 2>/dev/null | grep -q '^[0-9]'; do sleep 0.02; done\n"
      "kill -9 $!; wait $!\n"
      "basename $(readlink runs/small/latest) >first\n"
      "unset MESHTRAIN_RESTART MESHTRAIN_NEW_FOLDER\n"
      "'{0}' train -q small.yaml || exit 1\n"
      "exit 137\n",
      MESHTRAIN_BINARY));
  REQUIRE(run(folder.command(with({"train", "-q", "-o", "whole"}, kManyEpochs))).exit_code == 0);
  const Result result = run(
      folder.command(with({"launch", "--processes", "4", "--restarts", "1", "-q"}, kManyEpochs)));
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const std::string own = "runs/small/" + lines_of(folder.read("first")).at(0);
  CHECK_FALSE(fs::equivalent(folder.file(own), folder.file("runs/small/latest")));
  CHECK_MESSAGE(result.err.find(" of " + own + "\n") != std::string::npos, result.err);
  CHECK(folder.read(own + "/weights.safetensors") == folder.read("whole/weights.safetensors"));
}

TEST_CASE("the run that is gone on with is chosen before the processes start") {
  const LaunchFolder folder(kWriteDown);
  REQUIRE(run(folder.command({"train", "-q", "small.yaml"})).exit_code == 0);
  const std::string latest =
      "runs/small/" + fs::read_symlink(folder.file("runs/small/latest")).string();
  const auto words = [&](const std::vector<std::string>& more) {
    const Result result = run(folder.command(
        with({"launch", "--processes", "4", "--restarts", "1", "small.yaml"}, more)));
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    return words_after_program(folder);
  };
  const auto has = [](const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  CHECK(has(words({"--resume"}), "--run-dir=" + latest));
  CHECK(has(words({"run.resume=latest"}), "--run-dir=" + latest));
  CHECK_FALSE(has(words({}), "--run-dir=" + latest));
  // One that has come to its end is not gone on with.
  const std::string backup = "callbacks+={BackupAndRestore: {save_freq: 2}}";
  CHECK_FALSE(has(words({backup}), "--run-dir=" + latest));
  std::ofstream(folder.file(latest + "/metrics.jsonl"), std::ios::app) << "{}\n";
  CHECK(has(words({backup}), "--run-dir=" + latest));
}

TEST_CASE("a run is started again as often as was said and not more") {
  const LaunchFolder folder(killing_script(5));
  const Result result = run(folder.command(
      with({"launch", "--processes", "4", "--restarts", "1", "-q", "-o", "run"}, kManyEpochs)));
  CHECK_MESSAGE(result.exit_code == 8, result.err);
  CHECK(folder.read("count") == "2\n");
}

TEST_CASE("a run that saves nothing more is not started for ever") {
  const LaunchFolder folder("echo x >>count\nexit 139\n");
  const Result result = run(folder.command(
      with({"launch", "--processes", "4", "--restarts", "9", "-o", "run"}, kManyEpochs)));
  CHECK_MESSAGE(result.exit_code == 8, result.err);
  CHECK(folder.read("count") == "x\nx\n");
  CHECK(result.err.find("restart 1 of 9 after exit code 8 of mpirun, from the beginning: there is "
                        "no checkpoint yet") != std::string::npos);
  CHECK(result.err.find("no checkpoint was added since restart 1") != std::string::npos);
}

TEST_CASE("the time that a run may take is for all its starts together") {
  const LaunchFolder folder("echo \"$*\" >>calls\nsleep 1.2\nexit 139\n");
  const std::vector<std::string> args = {"launch",     "--processes", "4",
                                         "--restarts", "9",           "-o",
                                         "run",        "small.yaml",  "run.max_time=100s"};
  CHECK(run(folder.command(args)).exit_code == 8);
  const std::string calls = folder.read("calls");
  CHECK(lines_of(calls).size() == 2);
  const size_t left = calls.find("--max-time=");
  REQUIRE_MESSAGE(left != std::string::npos, calls);
  CHECK(std::stoi(calls.substr(left + std::string("--max-time=").size())) <= 98);
  CHECK(calls.find("run.max_time=", calls.find('\n')) == std::string::npos);  // given once
  std::vector<std::string> shorter = args;
  shorter.back() = "run.max_time=1s";
  const Result result = run(folder.command(shorter));
  CHECK(result.exit_code == 8);
  CHECK_MESSAGE(result.err.find("run.max_time is over") != std::string::npos, result.err);
}

TEST_CASE("what a restart would not change is not started again") {
  for (const int code : {0, 2, 3, 4, 5, 6, 74, 75}) {
    const LaunchFolder folder(fmt::format("echo x >>count\nexit {}\n", code));
    CHECK(run(folder.command({"launch", "--processes", "4", "--restarts", "3", "small.yaml"}))
              .exit_code == code);
    CHECK(folder.read("count") == "x\n");
  }
}

// The only child of a process, or 0.
pid_t child_of(pid_t pid) {
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", pid, pid));
  pid_t child = 0;
  children >> child;
  return child;
}

TEST_CASE("train with restarts resumes after it was killed") {
  const ExampleFolder folder;
  REQUIRE(meshtrain(with({"train", "-q", "-o", "whole"}, kManyEpochs), folder.path()).exit_code ==
          0);
  Command command;
  command.args = with({"train", "--restarts", "2", "-q"}, kManyEpochs);
  command.folder = folder.path();
  int kills = 0;
  pid_t current = 0, killed = 0;
  std::string before;  // the newest checkpoint when the current child was first seen
  command.watch = [&](const std::string&, const std::string&, int pid) {
    const pid_t child = child_of(pid);
    // Killed once it has saved; the folder is one that the run chose itself.
    std::error_code error;
    const fs::path run = fs::path(folder.path()) / "runs/small/latest/checkpoints";
    std::string newest;
    for (const auto& entry : fs::directory_iterator(run, error)) {
      const std::string name = entry.path().filename().string();
      newest = name.find_first_not_of("0123456789") == std::string::npos ? std::max(newest, name)
                                                                         : newest;
    }
    if (child != current && child != killed) {  // the last save of the one before is there by now
      current = child;
      before = newest;
    } else if (child != 0 && child == current && newest > before && kill(child, SIGKILL) == 0) {
      killed = child;
      current = 0;
      ++kills;
    }
    return kills == 2;
  };
  const Result result = run(command);
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("restart 2 of 2 after exit code 137 of rank 0, from step ") !=
        std::string::npos);
  CHECK(folder.read("runs/small/latest/weights.safetensors") ==
        folder.read("whole/weights.safetensors"));
}

}  // namespace
}  // namespace meshtrain
