// One rank of a run, for control_process_test.cc:
//   control_program RANK SIZE HOST PORT WHAT [WHO]
// Writes "ready" to standard output when the heartbeat monitor is there and a step is done; reads a
// line from standard input where WHAT says so.
//   train     does steps until it is ended
//   finish    does 20 steps and finishes
//   exit      rank WHO ends like a program that is done, the others train
//   fail      rank WHO fails with 5, the others train
//   hang      rank WHO stays in its data when a line came, the others train
//   parent    does steps until the process that started it has ended
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "comm/heartbeat_monitor.h"
#include "comm/tcp/tcp_group.h"

namespace meshtrain {
namespace {

void say(const char* word) {
  std::fputs(word, stdout);
  std::fflush(stdout);
}

void wait_for_line() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {
  }
}

void do_step(HeartbeatMonitor& monitor, TcpGroup& group, int step) {
  monitor.progress(step, 1, "forward");
  monitor.enter(11, "all-reduce of bucket 0");
  group.all_gather("gradients");
  monitor.leave();
  monitor.loss(step, static_cast<uint64_t>(step));
}

int run(int rank, const std::string& what, int who, const TcpOptions& options) {
  TcpGroup group(options);
  HeartbeatOptions monitor_options = HeartbeatOptions::from_environment();
  monitor_options.parent = what == "parent" ? ::getppid() : 0;
  monitor_options.resume_command = "the same command with --resume";
  HeartbeatMonitor monitor(group, monitor_options);
  const auto hook = monitor.on_abort([] { say("hook\n"); });
  try {
    do_step(monitor, group, 1);
    monitor.set_last_checkpoint(1);
    say("ready\n");
    for (int step = 2; what != "finish" || step < 20; ++step) {
      if (rank == who && what != "train" && what != "parent") {
        wait_for_line();
        if (what == "exit") {
          std::exit(0);
        } else if (what == "fail") {
          monitor.fail(5, "error[E501]: loss is NaN\n");
        }
        monitor.progress(step, 1, "data");
        while (true) {
          ::pause();
        }
      }
      do_step(monitor, group, step);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const Error& error) {
    monitor.fail(static_cast<int>(error.exit_code()), error.what());
  }
  monitor.finish();
  return 0;
}

}  // namespace
}  // namespace meshtrain

int main(int argc, char** argv) {
  using namespace meshtrain;
  if (argc < 6) {
    return 2;
  }
  const std::string what = argv[5];
  const int rank = std::atoi(argv[1]);
  return run(
      rank, what, argc > 6 ? std::atoi(argv[6]) : -1,
      TcpOptions::from_environment(rank, std::atoi(argv[2]), argv[3], std::atoi(argv[4]), true));
}
