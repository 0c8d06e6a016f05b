// Error classes, by who must act, and the exit codes that scripts rely on.
//
//   ConfigError    the user: a config, data or checkpoint is wrong; carries every problem found
//   RuntimeFailure the machine's owner: a call failed (file, memory, device)
//   InternalError  us: a broken invariant; thrown by MESHTRAIN_CHECK
//
// Only main() catches; each error has the exit code of the process.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace meshtrain {

// Exit codes, stable and documented in `meshtrain --help`.
enum class ExitCode : int {
  kOk = 0,
  kUnexpected = 1,    // unexpected failure
  kConfig = 2,        // bad command line or config
  kData = 3,          // data missing or malformed
  kMesh = 4,          // mesh cannot be built here, or out of device memory
  kDiverged = 5,      // NaN or infinity in the loss
  kCheckpoint = 6,    // weights or checkpoint missing, corrupt, or not matching
  kCheckFailed = 7,   // a member of a sweep or a check failed
  kRankLost = 8,      // another rank or host was lost
  kWriteFailed = 74,  // a result could not be written (EX_IOERR)
  kStopped = 75,      // stopped on request, resumable (EX_TEMPFAIL)
  kInterrupted = 130,
  kTerminated = 143,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// A call to the machine failed: names the call's subject and the system's own text.
class RuntimeFailure : public Error {
 public:
  using Error::Error;
};

// A broken invariant of meshtrain itself.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::kUnexpected, message) {}
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);

// Throws InternalError with the condition, the place and a formatted message when `condition` is
// false: MESHTRAIN_CHECK(rank < size, "rank {} of {}", rank, size).
#define MESHTRAIN_CHECK(condition, ...)                                               \
  do {                                                                                \
    if (!(condition)) {                                                               \
      ::meshtrain::check_failed(#condition, __FILE__, __LINE__,                       \
                                ::meshtrain::internal::format_or_empty(__VA_ARGS__)); \
    }                                                                                 \
  } while (false)

namespace internal {
inline std::string format_or_empty() {
  return {};
}
template <class... Args>
std::string format_or_empty(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace internal

}  // namespace meshtrain
