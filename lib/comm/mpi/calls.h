// Calls of MPI: their errors, and waiting without ever blocking in one of them.
#pragma once

#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <chrono>
#include <string_view>

namespace meshtrain::mpi {

// Throws RuntimeFailure (exit 8) with MPI's own text unless `code` is MPI_SUCCESS:
// check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank").
void check(int code, std::string_view call);

// Waits for other processes. It spins for the first microseconds, yields when processes share
// cores, and sleeps when the wait is long.
class Waiting {
 public:
  // Between two looks at what is awaited.
  void pause() {
    if (++looks_ <= kSpins) {
      return;
    }
    if (looks_ % kSpins == 0 && Clock::now() - begun_ > kPatience) {
      const timespec nap{0, 50'000};
      ::nanosleep(&nap, nullptr);
      looks_ = 2 * kSpins - 1;  // the next look's nap as well
      return;
    }
    ::sched_yield();
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begun_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpins = 100;
  static constexpr std::chrono::milliseconds kPatience{50};

  const Clock::time_point begun_ = Clock::now();
  int looks_ = 0;
};

// One request of a nonblocking call.
void wait(MPI_Request& request, std::string_view call);

}  // namespace meshtrain::mpi
