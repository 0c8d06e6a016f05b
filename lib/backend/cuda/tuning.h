// Times of candidates on the device: which of several ways to compute the same is the fastest.
#pragma once

#include <chrono>
#include <limits>

#include "backend/cuda/core.h"
#include "base/error.h"

namespace meshtrain::cuda {

// Spent so far on finding the fastest ways.
struct TuningSeconds {
  double loading = 0, measuring = 0;
};

constexpr int kRepeats = 3;
// For all shapes together, but for the end of the one at which the time is over: a first step shall
// come two seconds after the start. Loading a kernel may take longer than measuring it. Shapes that
// come later get the library's first choice, and keep it in the cache: another run would round
// otherwise.
constexpr double kMostMeasuring = 0.8;  // seconds
constexpr double kMostTuning = 1.2;     // with loading

class Timer {
 public:
  explicit Timer(const Core& core)
      : core_(core), begin_(core, CU_EVENT_DEFAULT), end_(core, CU_EVENT_DEFAULT) {}
  void start() { core_.check(driver().cuEventRecord(begin_.get(), core_.work), "cuEventRecord"); }
  float stop() {
    float milliseconds = 0;
    core_.check(driver().cuEventRecord(end_.get(), core_.work), "cuEventRecord");
    core_.check(driver().cuEventSynchronize(end_.get()), "cuEventSynchronize");
    core_.check(driver().cuEventElapsedTime(&milliseconds, begin_.get(), end_.get()),
                "cuEventElapsedTime");
    return milliseconds;
  }

 private:
  const Core& core_;
  EventHandle begin_, end_;
};

// Adds what it lives to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Milliseconds of kRepeats times what `run` enqueues, once it has been loaded; infinite where it
// cannot be run after all. Adds what that took to `spent`.
template <class Run>
float time_of(const Core& core, TuningSeconds& spent, const Run& run) {
  Timer timer(core);
  try {
    {
      const Stopwatch watch(spent.loading);  // the host loads; the GPU stays busy until it measures
      run();
    }
    const Stopwatch watch(spent.measuring);
    timer.start();
    for (int repeat = 0; repeat < kRepeats; ++repeat)
      run();
    return timer.stop();
  } catch (const RuntimeFailure&) {
    return std::numeric_limits<float>::infinity();  // if none can, the step
                                                    // itself says so
  }
}

inline bool is_over(const TuningSeconds& spent) {
  return spent.measuring >= kMostMeasuring || spent.measuring + spent.loading >= kMostTuning;
}

// The number of the fastest of `count` ways that `run` enqueues, by their numbers.
template <class Run>
size_t fastest_of(const Core& core, TuningSeconds& spent, size_t count, const Run& run) {
  float best = std::numeric_limits<float>::infinity();
  size_t fastest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float time = time_of(core, spent, [&] { run(i); });
    if (time < best) {
      best = time;
      fastest = i;
    }
  }
  return fastest;
}

}  // namespace meshtrain::cuda
