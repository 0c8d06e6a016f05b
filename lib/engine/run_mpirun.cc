#include "engine/run_mpirun.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "comm/hosts.h"
#include "engine/signals.h"

namespace meshtrain {

namespace fs = std::filesystem;

namespace {

// mpirun hands SIGUSR1 and SIGUSR2 to all processes, but kills them after SIGTERM or SIGINT, and
// ends of SIGQUIT: another signal becomes that of the two which does the same.
class MpirunSignals {
 public:
  // Throws ConfigError E140 where neither does. `is_here`: some processes are on this host.
  MpirunSignals(const SignalChanges& changes, bool is_here);

  // Returns the signal that mpirun gets for one that this process got; 0: none.
  int translate(int number);
  // The first signal that asked to stop, 0: none; and whether no process could have saved then.
  int asked_by() const { return asked_by_; }
  bool came_early() const { return came_early_; }

 private:
  SignalAction action(int number) const { return signal_action(number, changes_); }
  int carrier(int number) const;

  const SignalChanges& changes_;
  const bool is_here_;
  int asked_by_ = 0;
  bool came_early_ = false;
};

std::vector<std::string> words_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istream_iterator<std::string>(file), {}};
}

std::vector<std::string> children_of(const std::string& process) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& thread : fs::directory_iterator("/proc/" + process + "/task", error)) {
    const std::vector<std::string> some = words_of_file(thread.path().string() + "/children");
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

bool catches_usr1(const std::string& process) {
  const std::vector<std::string> status = words_of_file("/proc/" + process + "/status");
  const auto caught = std::find(status.begin(), status.end(), "SigCgt:");
  return caught != status.end() && caught + 1 != status.end() &&
         ((std::stoull(caught[1], nullptr, 16) >> (SIGUSR1 - 1)) & 1) == 1;
}

std::string program_of(const std::string& process) {
  std::error_code error;
  return fs::read_symlink("/proc/" + process + "/exe", error).string();
}

// Whether one of the processes that `mpirun` started here, by whatever stands between, takes
// SIGUSR1 by now: main() of this program sees to that first. A process that was forked a moment ago
// and is still its parent's program has the handlers of that one.
bool is_any_ready(const std::string& mpirun) {
  const std::vector<std::string> started = children_of(mpirun);
  return std::any_of(started.begin(), started.end(), [&](const std::string& process) {
    return (catches_usr1(process) && program_of(process) != program_of(mpirun)) ||
           is_any_ready(process);
  });
}

MpirunSignals::MpirunSignals(const SignalChanges& changes, bool is_here)
    : changes_(changes), is_here_(is_here) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    const bool is_lost = carrier(number) == 0 && action(number) != SignalAction::kIgnore &&
                         !stays_ignored(number, changes);
    if (is_lost && !(number == SIGQUIT && action(number) == SignalAction::kReport)) {
      throw ConfigError(
          "E140", {},
          fmt::format("run.on_signal: mpirun passes on SIGUSR1 ({}) and SIGUSR2 ({}), neither of "
                      "which does what {} should ({})",
                      word_of(action(SIGUSR1)), word_of(action(SIGUSR2)), signal_name(number),
                      word_of(action(number))))
          .help(fmt::format("the same action for {} and one of the two", signal_name(number)));
    }
  }
}

int MpirunSignals::translate(int number) {
  if (!asks_to_stop(action(number))) {
    return carrier(number);
  }
  const bool is_first = asked_by_ == 0;
  asked_by_ = is_first ? number : asked_by_;
  if (is_first && is_here_) {
    const std::vector<std::string> own = children_of("self");
    came_early_ = std::none_of(own.begin(), own.end(),
                               [](const std::string& mpirun) { return is_any_ready(mpirun); });
  }
  if (came_early_) {
    return SIGTERM;
  }
  const bool kills = number == SIGINT || number == SIGTERM;
  return kills && !is_first ? SIGTERM : carrier(number);
}

int MpirunSignals::carrier(int number) const {
  if (number == SIGUSR1 || number == SIGUSR2) {
    return number;
  }
  for (const int passed : {SIGUSR1, SIGUSR2}) {
    if (action(passed) == action(number) && action(number) != SignalAction::kIgnore) {
      return passed;
    }
  }
  return 0;
}

constexpr const char* kLaunchedVariable = "MESHTRAIN_LAUNCHED";
constexpr int kUnexpectedInLaunch = 70;  // mpirun's own code for what it does not know is 1

bool is_own_code(int code) {
  constexpr int kOwn[] = {0, 2, 3, 4, 5, 6, 7, 8, 74, 75, 130, 143, kUnexpectedInLaunch};
  return std::find(std::begin(kOwn), std::end(kOwn), code) != std::end(kOwn);
}

}  // namespace

bool is_launched() {
  return std::getenv(kLaunchedVariable) != nullptr;
}

int exit_code_in_launch(int code) {
  const bool is_unexpected = code == static_cast<int>(ExitCode::kUnexpected);
  return is_unexpected && is_launched() ? kUnexpectedInLaunch : code;
}

void check_mpirun(const MpirunOptions& mpirun, const SignalChanges& changes) {
  check_mpirun_hosts(mpirun.hosts);
  const MpirunSignals signals(changes, false);
}

ChildrenEnd run_mpirun(const MpirunOptions& mpirun, const std::vector<std::string>& words,
                       const Environment& environment, const SignalChanges& changes,
                       const SayLine& say, bool verbose) {
  Environment of_ranks = environment;
  of_ranks.emplace_back(kLaunchedVariable, "1");
  const ChildCommand command = mpirun_command(mpirun, words, of_ranks);
  if (verbose) {
    for (const auto& [name, value] : command.environment) {
      say(fmt::format("launch: {}", shell_quoted({name + "=" + value})));
    }
    say("launch: " + shell_quoted(command.words));
  }
  const bool is_here = std::any_of(mpirun.hosts.begin(), mpirun.hosts.end(),
                                   [](const Host& host) { return is_this_host(host.name); });
  MpirunSignals signals(changes, is_here);
  ChildrenEnd end =
      run_children({command}, {.say = say,
                               .translate = [&](int number) { return signals.translate(number); },
                               .even_if_ignored = changed_signals(changes)});
  constexpr int kNotFound = 127;  // by the shell of another host
  if (end.exit_code == kNotFound) {
    throw ConfigError(
        "E614", {},
        fmt::format(
            "mpirun found no `orted` on another host (exit code {}): Open MPI must be on the "
            "PATH that `{}` gives there",
            end.exit_code, mpirun.agent.empty() ? "ssh" : mpirun.agent));
  }
  // mpirun says 0, too, of processes on other hosts that it gave up starting.
  const bool is_of_mpirun = !is_own_code(end.exit_code) || (end.exit_code == 0 && !is_here);
  if (signals.came_early() || (signals.asked_by() != 0 && is_of_mpirun)) {
    end.exit_code = static_cast<int>(signals.asked_by() == SIGINT ? ExitCode::kInterrupted
                                                                  : ExitCode::kTerminated);
    return end;
  }
  if (end.exit_code == kUnexpectedInLaunch) {
    end.exit_code = static_cast<int>(ExitCode::kUnexpected);
  } else if (end.exit_code != 0 && is_of_mpirun) {
    say(
        fmt::format("mpirun ended with exit code {}: a process could not be started, or it or its "
                    "host was lost",
                    end.exit_code));
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return end;
}

}  // namespace meshtrain
