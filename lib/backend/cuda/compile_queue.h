// Compiles texts beside each other and beside the calling thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace meshtrain::cuda {

// Threads of its own compile at most as many texts at once as the host has cores, and at least two.
// Texts begin in the order in which they were added.
class CompileQueue {
 public:
  // Returns machine code; called by several threads at once.
  using Compile = std::function<std::string(const std::string& text)>;

  explicit CompileQueue(Compile compile) : compile_(std::move(compile)) {}
  // Waits for texts that a thread compiles, since a compiler cannot be stopped. Others are dropped.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // Returns at once. A key that is there already is ignored.
  void add(const std::string& key, std::string text);
  // Returns and removes the machine code of a key, once it is there; a text that no thread has
  // begun is compiled here. nullopt when the key was not added. Throws what the compiler threw.
  std::optional<std::string> take(const std::string& key);

 private:
  struct Job {
    std::string text, code;
    std::exception_ptr error;
    bool is_begun = false, is_done = false;
  };

  void work();
  void run(Job& job, std::unique_lock<std::mutex>& lock);

  Compile compile_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::map<std::string, Job> jobs_;  // nodes stay in place
  std::deque<std::string> waiting_;  // keys, some of which may have been taken
  size_t working_ = 0;               // threads
  std::vector<std::jthread> threads_;
};

}  // namespace meshtrain::cuda
