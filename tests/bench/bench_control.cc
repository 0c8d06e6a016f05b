// What the heartbeat monitor costs: its calls in a step, its thread while nothing happens, a text
// that goes to all ranks and back.
//
//   bench_control [RANKS]     ranks are threads of this process (4), talking over loopback
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/host.h"
#include "comm/heartbeat_monitor.h"
#include "comm/tcp/tcp_group.h"
#include "support/own_address.h"

namespace meshtrain {
namespace {

double cpu_seconds(clockid_t clock) {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Nanoseconds of `call`, on the core it runs on; the best of several rounds.
template <class Call>
double nanoseconds(Call&& call) {
  constexpr int kCalls = 2000000;
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 1; i <= kCalls; ++i) {
      call(i);
    }
    best = std::min(best, (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start) / kCalls * 1e9);
  }
  return best;
}

void measure(HeartbeatMonitor& monitor, int ranks) {
  const bool first = monitor.rank() == 0;
  if (first) {
    fmt::print("{:<44} {:8.1f} ns\n", "progress()",
               nanoseconds([&](int i) { monitor.progress(i, 1, "forward"); }));
    fmt::print("{:<44} {:8.1f} ns\n", "enter() and leave()", nanoseconds([&](int) {
                 monitor.enter(1, "all-reduce of bucket 0");
                 monitor.leave();
               }));
    fmt::print("{:<44} {:8.1f} ns\n", "progress(), loss(), 4 x enter() and leave()",
               nanoseconds([&](int i) {
                 monitor.progress(i, 1, "forward");
                 for (int bucket = 0; bucket < 4; ++bucket) {
                   monitor.enter(1, "all-reduce of bucket 0");
                   monitor.leave();
                 }
                 monitor.loss(i, 0);
               }));
  }
  monitor.all_gather("after the calls", "");
  constexpr int kRounds = 500;
  double start = steady_seconds();
  for (int round = 0; round < kRounds; ++round) {
    monitor.all_gather("bench", "text");
  }
  if (first) {
    fmt::print("{:<44} {:8.1f} us\n", fmt::format("all_gather() over {} ranks", ranks),
               (steady_seconds() - start) / kRounds * 1e6);
  }
  monitor.all_gather("before the pause", "");
  start = steady_seconds();
  const double cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  ::usleep(5000000);
  if (first) {
    fmt::print("{:<44} {:8.4f} %\n", fmt::format("a core, by all {} idle threads together", ranks),
               (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (steady_seconds() - start) * 100);
  }
  monitor.finish();
}

}  // namespace
}  // namespace meshtrain

int main(int argc, char** argv) {
  using namespace meshtrain;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([rank, ranks] {
      TcpOptions options;
      options.rank = rank;
      options.size = ranks;
      options.host = test::own_address();
      options.port = 29500;
      options.one_host = true;
      TcpGroup group(options);
      HeartbeatOptions monitor_options;
      monitor_options.silence_seconds = 60;
      HeartbeatMonitor monitor(group, monitor_options);
      measure(monitor, ranks);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}
