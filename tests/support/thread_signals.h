// Which of this process's threads could take the signals that stop a run.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/system_calls.h"

namespace meshtrain::test {

struct OtherThreads {
  int seen = 0;  // beside the main thread
  int open = 0;  // of those, ones that do not block SIGINT and SIGTERM
};

// Looks at the threads, with /proc's SigBlk, while `work` runs. A thread counts at each look.
inline OtherThreads watch_threads(const std::function<void()>& work) {
  std::atomic<bool> is_done = false;
  OtherThreads out;
  const auto look = [&] {
    const std::string own = std::to_string(::gettid()), main = std::to_string(::getpid());
    std::error_code ended;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
      const std::string id = task.path().filename();
      std::ifstream status(task.path() / "status");
      // The kernel shows one that has just ended as one of no process, with `Threads: 0` and an
      // empty mask; "Threads:" comes first.
      int of_process = 0;
      for (std::string word; id != own && id != main && status >> word;) {
        unsigned long long blocked = 0;
        if (word == "Threads:") {
          status >> of_process;
        } else if (word == "SigBlk:" && of_process > 0 && status >> std::hex >> blocked) {
          constexpr auto bit = [](int number) { return 1ULL << (number - 1); };
          ++out.seen;
          out.open += (blocked & bit(SIGINT)) == 0 || (blocked & bit(SIGTERM)) == 0 ? 1 : 0;
        }
      }
    }
  };
  {
    const std::jthread watcher = quiet_thread([&] {
      while (!is_done) {
        look();
      }
    });
    work();
    is_done = true;
  }
  return out;
}

}  // namespace meshtrain::test
