#include "comm/child_processes.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/child.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"

namespace meshtrain {
namespace {

constexpr double kSecondsToTerminate = 3;
constexpr double kSecondsToKill = 5;

class Children {
 public:
  Children(const std::vector<ChildCommand>& commands, const ChildrenOptions& options)
      : options_(options) {
    try {
      for (const ChildCommand& command : commands) {
        children_.push_back(start_child(command, signals_));
      }
    } catch (...) {
      kill_running(children_);
      throw;
    }
  }

  ChildrenEnd run() {
    while (true) {
      reap_all();
      if (!is_any_running(children_)) {
        return end_;
      }
      hurry();
      wait();
    }
  }

 private:
  void reap_all() {
    for (RunningChild& child : children_) {
      const std::optional<ChildStatus> status = reap(child);
      if (!status) {
        continue;
      }
      const int code = status->exit_code;
      if (status->signal != 0 && !sent_kill_ && options_.say) {
        options_.say(fmt::format("{} (pid {}) was ended by signal {} ({})", child.name, child.pid,
                                 status->signal, strsignal(status->signal)));
      }
      if (code != 0 && end_.exit_code == 0) {
        end_.exit_code = code;
        end_.name = child.name;
      }
      // Children that stop on request still save, for as long as that takes.
      if (code != 0 && code != static_cast<int>(ExitCode::kStopped) && failed_at_ < 0) {
        failed_at_ = steady_seconds();
      }
    }
  }

  // After a failure: the others end by themselves, or are made to.
  void hurry() {
    if (failed_at_ < 0) {
      return;
    }
    const double passed = steady_seconds() - failed_at_;
    if (passed >= kSecondsToKill && !sent_kill_) {
      sent_kill_ = true;
      signal_running(children_, SIGKILL);
    } else if (passed >= kSecondsToTerminate && !sent_terminate_) {
      sent_terminate_ = true;
      signal_running(children_, SIGTERM);
    }
  }

  void wait() {
    // A SIGCHLD may be lost to a thread of a library that does not block it.
    for (const int number : signals_.wait(failed_at_ < 0 ? 1000 : 100)) {
      const int passed = options_.translate ? options_.translate(number) : number;
      if (passed != 0) {
        signal_running(children_, passed);
        end_.signals.insert(passed);
      }
    }
  }

  const ChildrenOptions& options_;
  HeldSignals signals_{options_.even_if_ignored};
  std::vector<RunningChild> children_;
  ChildrenEnd end_;
  double failed_at_ = -1;
  bool sent_terminate_ = false, sent_kill_ = false;
};

std::vector<ChildCommand> rank_commands(const std::vector<std::string>& words, int count,
                                        const Environment& environment) {
  // Not that of the environment: a launcher that started this process may listen there.
  Socket held = hold_port();
  if (!held) {
    throw RuntimeFailure(ExitCode::kRankLost, fmt::format("there is no free port on 127.0.0.1: {}",
                                                          std::strerror(errno)));
  }
  const std::string port = std::to_string(local_address(held).port());
  const std::string token = to_text(random_token());
  std::vector<ChildCommand> out;
  for (int rank = 0; rank < count; ++rank) {
    ChildCommand command{fmt::format("rank {}", rank), words, environment};
    for (const auto& [name, value] : Environment{{"MESHTRAIN_TOKEN", token},
                                                 {"RANK", std::to_string(rank)},
                                                 {"WORLD_SIZE", std::to_string(count)},
                                                 {"LOCAL_RANK", std::to_string(rank)},
                                                 {"LOCAL_WORLD_SIZE", std::to_string(count)},
                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                 {"MASTER_PORT", port}}) {
      command.environment.emplace_back(name, value);
    }
    out.push_back(std::move(command));
  }
  for (ChildCommand& command : out) {  // the others have a variable without a socket
    command.environment.emplace_back("MESHTRAIN_SOCKET",
                                     &command == &out[0] ? std::to_string(held.fd()) : "");
  }
  out[0].inherited = held.release();
  return out;
}

}  // namespace

ChildrenEnd run_children(const std::vector<ChildCommand>& commands,
                         const ChildrenOptions& options) {
  return Children(commands, options).run();
}

ChildrenEnd run_processes(const std::vector<std::string>& words, int count,
                          const Environment& environment, const ChildrenOptions& options) {
  constexpr int kFirstSignal = 129, kLastSignal = 128 + 64;
  ChildrenEnd end = run_children(rank_commands(words, count, environment), options);
  if (count > 1 && end.exit_code >= kFirstSignal && end.exit_code <= kLastSignal &&
      end.exit_code != static_cast<int>(ExitCode::kInterrupted) &&
      end.exit_code != static_cast<int>(ExitCode::kTerminated)) {
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return end;
}

std::string shell_quoted(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,@%";
  std::string out;
  for (const std::string& word : words) {
    out += out.empty() ? "" : " ";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) {
      out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    out += '\'';
  }
  return out;
}

}  // namespace meshtrain
