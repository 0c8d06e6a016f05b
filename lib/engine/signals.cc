#include "engine/signals.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>

#include "base/system_calls.h"

namespace meshtrain {
namespace {

// Handlers run on any thread.
std::atomic<int> g_stop_signal = 0;
std::atomic<bool> g_stop_saves = false;
std::atomic<bool> g_checkpoint = false;
std::atomic<bool> g_report = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void note_stop(int number) {
  g_stop_signal = number;
}
extern "C" void note_stop_and_save(int number) {
  g_stop_saves = true;
  g_stop_signal = number;
}
extern "C" void note_checkpoint(int) {
  g_checkpoint = true;
}
extern "C" void note_report(int) {
  g_report = true;
}

struct KnownSignal {
  const char* name;
  int number;
  SignalAction action;
};
constexpr KnownSignal kSignals[] = {{"SIGTERM", SIGTERM, SignalAction::kCheckpointExit},
                                    {"SIGUSR1", SIGUSR1, SignalAction::kCheckpointExit},
                                    {"SIGINT", SIGINT, SignalAction::kCheckpointExit},
                                    {"SIGUSR2", SIGUSR2, SignalAction::kCheckpoint},
                                    {"SIGHUP", SIGHUP, SignalAction::kCheckpoint},
                                    {"SIGQUIT", SIGQUIT, SignalAction::kReport}};

void catch_signal(int number, SignalAction what) {
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  switch (what) {
    case SignalAction::kCheckpointExit:
      action.sa_handler = note_stop_and_save;
      action.sa_flags |= static_cast<int>(SA_RESETHAND);
      break;
    case SignalAction::kExit:
      action.sa_handler = note_stop;
      action.sa_flags |= static_cast<int>(SA_RESETHAND);
      break;
    case SignalAction::kCheckpoint:
      action.sa_handler = note_checkpoint;
      break;
    case SignalAction::kReport:
      action.sa_handler = note_report;
      break;
    case SignalAction::kIgnore:
      action.sa_handler = SIG_IGN;
      break;
  }
  sigaction(number, &action, nullptr);
}

// Returns the action that `changes` sets for a signal.
std::optional<SignalAction> changed_action(const KnownSignal& known, const SignalChanges& changes) {
  const auto change = std::find_if(changes.begin(), changes.end(),
                                   [&](const auto& entry) { return entry.first == known.name; });
  return change == changes.end() ? std::nullopt : std::optional(change->second);
}

}  // namespace

void catch_run_signals(const SignalChanges& changes) {
  use_handler_stack();
  for (const KnownSignal& known : kSignals) {
    if (const std::optional<SignalAction> action = changed_action(known, changes)) {
      catch_signal(known.number, *action);
    } else if (!is_ignored(known.number)) {  // as nohup has it when the process begins
      catch_signal(known.number, known.action);
    }
  }
  // Where this process was started with them held (comm/child_processes.h).
  sigset_t held;
  sigemptyset(&held);
  for (const int number : {SIGUSR1, SIGUSR2, SIGHUP}) {
    sigaddset(&held, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

SignalAction signal_action(int number, const SignalChanges& changes) {
  const auto known = std::find_if(std::begin(kSignals), std::end(kSignals),
                                  [&](const KnownSignal& entry) { return entry.number == number; });
  MESHTRAIN_CHECK(known != std::end(kSignals), "signal {}", number);
  return changed_action(*known, changes).value_or(known->action);
}

bool asks_to_stop(SignalAction action) {
  return action == SignalAction::kCheckpointExit || action == SignalAction::kExit;
}

std::vector<int> changed_signals(const SignalChanges& changes) {
  std::vector<int> out;
  for (const KnownSignal& known : kSignals) {
    if (changed_action(known, changes)) {
      out.push_back(known.number);
    }
  }
  return out;
}

bool stays_ignored(int number, const SignalChanges& changes) {
  const std::vector<int> changed = changed_signals(changes);
  return is_ignored(number) && std::find(changed.begin(), changed.end(), number) == changed.end();
}

void catch_stop_signals() {
  use_handler_stack();
  catch_signal(SIGINT, SignalAction::kExit);
  catch_signal(SIGTERM, SignalAction::kExit);
}

int stop_signal() {
  return g_stop_signal;
}

bool stop_saves() {
  return g_stop_saves;
}

std::string signal_name(int number) {
  const auto known = std::find_if(std::begin(kSignals), std::end(kSignals),
                                  [&](const KnownSignal& entry) { return entry.number == number; });
  return known == std::end(kSignals) ? fmt::format("signal {}", number) : known->name;
}

bool take_checkpoint_request() {
  return g_checkpoint.exchange(false);
}

bool take_report_request() {
  return g_report.exchange(false);
}

void forget_stop_signal() {
  g_stop_signal = 0;
  g_stop_saves = false;
}

void throw_if_stopped(const std::string& done) {
  const int number = g_stop_signal;
  if (number != 0) {
    throw_stopped(number, done);
  }
}

void throw_stopped(int number, const std::string& done) {
  const bool interrupted = number == SIGINT;
  throw StopRequested(interrupted ? ExitCode::kInterrupted : ExitCode::kTerminated,
                      fmt::format("{} after {}", interrupted ? "interrupted" : "terminated", done));
}

}  // namespace meshtrain
