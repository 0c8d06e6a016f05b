// Work on files from strangers in a child process: a library that crashes, runs for ever or takes
// all memory there is harms nothing here.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace meshtrain {

struct IsolateLimits {
  uint64_t memory_bytes = uint64_t{1} << 28;  // beyond what the process has now
  int cpu_seconds = 10;
};

// A child process and the bytes it sends. Between fork and exit the child may use one thread only.
class IsolatedProcess {
 public:
  // For the child: sends bytes to the parent; false when the parent has stopped reading.
  using Send = std::function<bool(const void* bytes, size_t count)>;
  // For the child: waits for the next bytes of the parent's send(); false at their end.
  using Receive = std::function<bool(void* to, size_t count)>;

  // Starts `work` in a child without standard error and without other open files.
  // Throws RuntimeFailure (exit 4) when no process can be created.
  IsolatedProcess(const IsolateLimits& limits, const std::function<void(const Send&)>& work);
  IsolatedProcess(const IsolateLimits& limits,
                  const std::function<void(const Send&, const Receive&)>& work);
  ~IsolatedProcess();  // ends the child if it still runs
  IsolatedProcess(const IsolatedProcess&) = delete;
  IsolatedProcess& operator=(const IsolatedProcess&) = delete;

  // Sends bytes to the child; false when it has ended.
  bool send(const void* bytes, size_t count);
  // Receives the next `count` bytes; false when the child ended before.
  bool receive(void* to, size_t count);
  // Waits for the child. Returns "" when it exited normally, else the cause of its end.
  std::string finish();

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
};

}  // namespace meshtrain
