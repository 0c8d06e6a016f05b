#include "comm/child_processes.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/diagnostic.h"
#include "base/host.h"
#include "comm/socket.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

ChildCommand shell(const std::string& script) {
  return {"child", {"sh", "-c", script}, {}};
}

// A zombie whose parent has not asked for it counts as gone.
bool is_running(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] != 'Z';
}

template <class Condition>
bool comes_true(Condition&& condition, double seconds = 20) {
  for (int i = 0; i < seconds * 100; ++i) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// In this thread and those that it starts, so that they wait for run_children().
class BlockedSignals {
 public:
  explicit BlockedSignals(std::initializer_list<int> numbers) {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int number : numbers) {
      sigaddset(&blocked, number);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

TEST_CASE("children end with the first code that is not zero") {
  CHECK(run_children({shell("exit 0"), shell("exit 0")}, {}).exit_code == 0);
  CHECK(run_children({shell("exit 0"), shell("exit 3")}, {}).exit_code == 3);
  std::vector<std::string> said;
  const ChildrenEnd end = run_children({shell("kill -9 $$")},
                                       {.say = [&](const std::string& s) { said.push_back(s); }});
  CHECK(end.exit_code == 137);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("was ended by signal 9 (Killed)") != std::string::npos);
}

TEST_CASE("children get their own environment beside this one") {
  const test::TempFolder folder;
  setenv("MESHTRAIN_TEST_VARIABLE", "outer", 1);
  ChildCommand command =
      shell("printf '%s|%s' \"$MESHTRAIN_TEST_VARIABLE\" \"$HOME\" >'" + folder.file("out") + "'");
  command.environment = {{"MESHTRAIN_TEST_VARIABLE", "a 'b' $(c)"}};
  CHECK(run_children({command}, {}).exit_code == 0);
  CHECK(folder.read("out") == "a 'b' $(c)|" + std::string(getenv("HOME") ? getenv("HOME") : ""));
}

TEST_CASE("the others are ended after one has failed even if they do not want to") {
  const test::TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  const ChildrenEnd end = run_children(
      {shell("exit 8"),
       shell("trap '' TERM; echo $$ >'" + folder.file("pid") + "'; while :; do sleep 1; done")},
      {});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(end.exit_code == 8);
  CHECK(seconds >= 4.5);  // they had their time
  CHECK(seconds < 60);
  CHECK_FALSE(is_running(std::stoi(folder.read("pid"))));
}

TEST_CASE("the others may run for as long as they need after one stopped on request") {
  const test::TempFolder folder;
  const ChildrenEnd end = run_children(
      {shell("exit 75"), shell("sleep 6; echo done >'" + folder.file("out") + "'")}, {});
  CHECK(end.exit_code == 75);
  CHECK(folder.read("out") == "done\n");
}

TEST_CASE("one that fails after another stopped on request ends the others") {
  const auto begin = std::chrono::steady_clock::now();
  const ChildrenEnd end =
      run_children({shell("exit 75"), shell("sleep 1; exit 8"), shell("exec sleep 300")}, {});
  CHECK(end.exit_code == 75);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(200));
}

TEST_CASE("signals are passed on once and translated") {
  const test::TempFolder folder;
  const std::string script = "trap 'echo usr >>'" + folder.file("out") +
                             "'; exit 75' USR1; echo >'" + folder.file("ready") +
                             "'; while :; do sleep 0.05; done";
  const BlockedSignals blocked({SIGTERM});
  std::thread sender([&, self = getpid()] {
    comes_true([&] { return folder.read("ready") == "\n"; });
    kill(self, SIGTERM);
  });
  const ChildrenEnd end = run_children({shell(script)}, {.say = {}, .translate = [](int number) {
                                                           return number == SIGTERM ? SIGUSR1 : 0;
                                                         }});
  sender.join();
  CHECK(end.exit_code == 75);
  CHECK(end.signals == std::set<int>{SIGUSR1});
  CHECK(folder.read("out") == "usr\n");
}

TEST_CASE("what was ignored when a process began is not passed on unless that is wanted") {
  const auto before = signal(SIGHUP, SIG_IGN);  // as nohup does
  for (const bool wanted : {false, true}) {
    const test::TempFolder folder;
    const BlockedSignals blocked({SIGHUP, SIGUSR2});
    std::thread sender([&, self = getpid()] {
      comes_true([&] { return folder.read("ready") == "\n"; });
      kill(self, SIGHUP);
      kill(self, SIGUSR2);
    });
    const ChildrenEnd end =
        run_children({shell("trap 'exit 75' USR2; echo >'" + folder.file("ready") +
                            "'; while :; do sleep 0.05; done")},
                     {.even_if_ignored = wanted ? std::vector<int>{SIGHUP} : std::vector<int>{}});
    sender.join();
    CHECK(end.exit_code == 75);
    CHECK(end.signals == (wanted ? std::set<int>{SIGHUP, SIGUSR2} : std::set<int>{SIGUSR2}));
  }
  signal(SIGHUP, before);
}

TEST_CASE("a program that cannot be started is an error and leaves none of the others") {
  const test::TempFolder folder;
  const test::Caught caught = test::caught([&] {
    run_children({shell("echo $$ >'" + folder.file("pid") + "'; exec sleep 1000"),
                  {"other", {"/no/such/program"}, {}}},
                 {});
  });
  CHECK(caught.exit_code == 8);
  CHECK_MESSAGE(caught.says("cannot start `/no/such/program`: No such file or directory"),
                caught.text);
  const std::string pid = folder.read("pid");
  if (!pid.empty()) {  // it came so far
    CHECK_FALSE(is_running(std::stoi(pid)));
  }
}

TEST_CASE("children end with the process that started them even if that is killed") {
  const test::TempFolder folder;
  const pid_t parent = fork();
  if (parent == 0) {
    run_children({shell("echo $$ >'" + folder.file("pid") + "'; exec sleep 1000")}, {});
    _exit(0);
  }
  CHECK(comes_true([&] { return folder.read("pid").find('\n') != std::string::npos; }));
  const pid_t child = std::stoi(folder.read("pid"));
  CHECK(is_running(child));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  CHECK(comes_true([&] { return !is_running(child); }));
}

TEST_CASE("processes of a run know their rank and share a token that others do not") {
  const test::TempFolder folder;
  const std::string script =
      "echo \"$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
      "$MORE\" >'" +
      folder.path() + "'/r$RANK; echo $MESHTRAIN_TOKEN $MASTER_PORT >'" + folder.path() +
      "'/t$RANK; readlink /proc/self/fd/$MESHTRAIN_SOCKET >'" + folder.path() +
      "'/s$RANK; ls -l /proc/self/fd | grep -c socket: >'" + folder.path() + "'/n$RANK; exit 0";
  setenv("MASTER_PORT", "torchrun's", 1);  // where this process could have been started from
  CHECK(run_processes({"sh", "-c", script}, 3, {{"MORE", "x y"}}, {}).exit_code == 0);
  unsetenv("MASTER_PORT");
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(folder.read(fmt::format("r{}", rank)) ==
          fmt::format("{} 3 {} 3 127.0.0.1 x y\n", rank, rank));
    CHECK(folder.read(fmt::format("t{}", rank)) == folder.read("t0"));
  }
  CHECK(folder.read("t0").find(' ') == 64);
  CHECK(std::atoi(folder.read("t0").substr(65).c_str()) > 0);
  CHECK(folder.read("s0").starts_with("socket:"));  // only rank 0 has the port
  CHECK(folder.read("s1").find("socket:") == std::string::npos);
  CHECK(std::atoi(folder.read("n0").c_str()) == std::atoi(folder.read("n1").c_str()) + 1);
}

TEST_CASE("a held port is nobody else's and refuses connections until it listens") {
  const Socket held = hold_port();
  const Address address = local_address(held);
  CHECK(address.text() == "127.0.0.1");
  size_t index = 0;
  CHECK_FALSE(listen_at(address));
  CHECK_FALSE(connect_to_any({address}, steady_seconds() + 30, &index));
  CHECK(start_listening(held));
  CHECK(connect_to_any({address}, steady_seconds() + 30, &index));
}

TEST_CASE("one of several processes that a signal ended is a lost rank") {
  const auto quiet = [](const std::string&) {};
  CHECK(run_processes({"sh", "-c", "[ $RANK = 1 ] && kill -9 $$; exit 0"}, 3, {}, {.say = quiet})
            .exit_code == 8);
  CHECK(run_processes({"sh", "-c", "kill -9 $$"}, 1, {}, {.say = quiet}).exit_code == 137);
}

TEST_CASE("words come back from a shell as they were") {
  const test::TempFolder folder;
  const std::vector<std::string> words = {
      "printf", "%s|", "a b", "it's", "$(touch x)", "", "`id`", "\\", "x\ny", "~", "*", "=z", "-n"};
  const std::string line = shell_quoted(words) + " >'" + folder.file("out") + "'";
  CHECK(run_children({shell(line)}, {}).exit_code == 0);
  CHECK(folder.read("out") == "a b|it's|$(touch x)||`id`|\\|x\ny|~|*|=z|-n|");
}

}  // namespace
}  // namespace meshtrain
