// How busy the machine is, for tests of limits in seconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace meshtrain::test {

// Seconds that a CPU-second of this thread takes now, at least 1: limits of programs that share the
// machine with others are multiplied by it. Takes 0.1 CPU-seconds.
inline double load_factor() {
  const auto cpu_seconds = [] {
    timespec time = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double cpu_start = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  double cpu = 0;
  while (cpu < 0.1) {
    cpu = cpu_seconds() - cpu_start;
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  return std::max(1.0, wall.count() / cpu);
}

}  // namespace meshtrain::test
