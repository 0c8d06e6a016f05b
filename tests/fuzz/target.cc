#include "target.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/file.h"
#include "support/memory_meter.h"
#include "support/temp_folder.h"

namespace meshtrain::fuzz {
namespace {

constexpr double kMostSeconds = 2;
// Sanitizers make everything slower.
#ifdef MESHTRAIN_ADDRESS_SANITIZER
constexpr double kSlower = 5;
#else
constexpr double kSlower = 1;
#endif

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets) {
    if (target.name == name) {
      return &target;
    }
  }
  return nullptr;
}

std::string as_file(Bytes bytes) {
  static const bool in_memory = [] {
    if (::access("/dev/shm", W_OK | X_OK) == 0) {
      ::setenv("TMPDIR", "/dev/shm", 1);
    }
    return true;
  }();
  static const test::TempFolder folder;
  return in_memory ? folder.write("input", as_text(bytes)) : "";
}

std::string complaint(const Target& target, Bytes bytes) {
  const test::MemoryMeter memory;
  const double start = processor_seconds();
  bool refused = true;
  try {
    target.read(bytes);
    refused = false;
  } catch (const ConfigError&) {
  } catch (const FileError&) {
  } catch (const std::exception& error) {
    return fmt::format("ended with an error that is not the user's: {}", error.what());
  }
  const double seconds = processor_seconds() - start;
  if (seconds > kMostSeconds * kSlower) {
    return fmt::format("took {:.1f} s", seconds);
  }
  const uint64_t more = target.more == nullptr ? 0 : target.more(bytes);
  if (refused && memory.peak() > 2 * bytes.size() + target.memory + more) {
    return fmt::format("took {} bytes of memory for a refused file of {} bytes", memory.peak(),
                       bytes.size());
  }
  return {};
}

}  // namespace meshtrain::fuzz
