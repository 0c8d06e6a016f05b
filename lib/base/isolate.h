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
  // Sends bytes from the child; false when the parent has stopped reading.
  using Send = std::function<bool(const void* bytes, size_t count)>;
  // Waits in the parent for the next bytes of send(); false at the end.
  using Receive = std::function<bool(void* to, size_t count)>;

  // Starts `work` in a child whose standard error goes nowhere and that has no other file open.
  // Throws RuntimeFailure (exit 4) when there is no process to be had.
  IsolatedProcess(const IsolateLimits& limits, const std::function<void(const Send&)>& work);
  IsolatedProcess(const IsolateLimits& limits,
                  const std::function<void(const Send&, const Receive&)>& work);
  ~IsolatedProcess();  // ends the child if it still runs
  IsolatedProcess(const IsolatedProcess&) = delete;
  IsolatedProcess& operator=(const IsolatedProcess&) = delete;

  // Gives the child bytes to receive; false when it has ended.
  bool send(const void* bytes, size_t count);
  // The next `count` bytes; false when the child ended before.
  bool receive(void* to, size_t count);
  // Waits for the child. "" when it came to its end by itself, else what ended it.
  std::string finish();

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
};

}  // namespace meshtrain
