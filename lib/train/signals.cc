#include "train/signals.h"

#include <signal.h>

namespace meshtrain {
namespace {

volatile sig_atomic_t g_stop_signal = 0;

extern "C" void note_stop_signal(int number) {
  g_stop_signal = number;
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = note_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() {
  return g_stop_signal;
}

void forget_stop_signal() {
  g_stop_signal = 0;
}

void throw_if_stopped(const std::string& done) {
  const int number = g_stop_signal;
  if (number == 0) {
    return;
  }
  const bool interrupted = number == SIGINT;
  throw StopRequested(interrupted ? ExitCode::kInterrupted : ExitCode::kTerminated,
                      fmt::format("{} after {}; weights were not saved",
                                  interrupted ? "interrupted" : "terminated", done));
}

}  // namespace meshtrain
