// StepProfile: when the kernels of some training steps ran, as an executor measured them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace meshtrain {

// Times are seconds since the first step.
struct StepProfile {
  struct Kernel {
    std::string path;  // of the program's step: "d1/matmul"; of several: "d1/matmul, d1/bias"
    std::string kind;  // of a library's call on a GPU: "matmul"; "" when only the program says
  };
  struct Event {
    int kernel = 0, thread = 0;
    double begin = 0, end = 0;
  };
  // `threads`: that computed, so that each second of the step has so many seconds of threads.
  struct Step {
    double begin = 0, end = 0;
    int threads = 1;
    size_t first_event = 0;  // its events begin here, and end with the next step's first
  };

  // The index of a kernel, which is added when it is new.
  int kernel(const std::string& path, const std::string& kind = "") {
    const auto [place, is_new] =
        numbers.try_emplace({path, kind}, static_cast<int>(kernels.size()));
    if (is_new)
      kernels.push_back({path, kind});
    return place->second;
  }

  std::vector<Kernel> kernels;
  std::vector<std::string> threads;  // "worker 0", "GPU"
  std::vector<Event> events;
  std::vector<Step> steps;
  double origin = 0;  // of the steady clock, in seconds
  std::map<std::pair<std::string, std::string>, int> numbers;
};

}  // namespace meshtrain
