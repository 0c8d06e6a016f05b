#include "engine/run_mpirun.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/signals.h"

namespace meshtrain {
namespace {

// mpirun hands SIGUSR1 and SIGUSR2 to all processes, but kills them after SIGTERM or SIGINT, and
// ends of SIGQUIT: another signal becomes that of the two which does the same.
class MpirunSignals {
 public:
  // Throws ConfigError E140 where neither does.
  explicit MpirunSignals(const SignalChanges& changes);

  // Returns the signal that mpirun gets for one that this process got; 0: none.
  int translate(int number);

 private:
  SignalAction action(int number) const { return signal_action(number, changes_); }
  int carrier(int number) const;

  const SignalChanges& changes_;
  bool asked_ = false;
};

MpirunSignals::MpirunSignals(const SignalChanges& changes) : changes_(changes) {
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
  const bool kills = number == SIGINT || number == SIGTERM;
  if (kills && asks_to_stop(action(number)) && std::exchange(asked_, true)) {
    return SIGTERM;
  }
  return carrier(number);
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

bool is_own_code(int code) {
  constexpr int kOwn[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 74, 75, 130, 143};
  return std::find(std::begin(kOwn), std::end(kOwn), code) != std::end(kOwn);
}

}  // namespace

void check_mpirun(const MpirunOptions& mpirun, const SignalChanges& changes) {
  check_mpirun_hosts(mpirun.hosts);
  const MpirunSignals signals(changes);
}

ChildrenEnd run_mpirun(const MpirunOptions& mpirun, const std::vector<std::string>& words,
                       const Environment& environment, const SignalChanges& changes,
                       const SayLine& say, bool verbose) {
  const ChildCommand command = mpirun_command(mpirun, words, environment);
  if (verbose) {
    for (const auto& [name, value] : command.environment) {
      say(fmt::format("launch: {}", shell_quoted({name + "=" + value})));
    }
    say("launch: " + shell_quoted(command.words));
  }
  MpirunSignals signals(changes);
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
  if (!is_own_code(end.exit_code)) {
    say(
        fmt::format("mpirun ended with exit code {}: a process could not be started, or it or its "
                    "host was lost",
                    end.exit_code));
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return end;
}

}  // namespace meshtrain
