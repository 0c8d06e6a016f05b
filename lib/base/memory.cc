#include "base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace meshtrain {
namespace {

// The number in a file of one number; -1 where there is none ("max").
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : -1;
}

// The bytes of a line "MemAvailable:  123 kB".
int64_t system_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") {
      return kib * 1024;
    }
    std::getline(file, unit);
  }
  return 0;
}

int64_t address_space_in_use() {
  const int64_t pages = number_in("/proc/self/statm");
  return std::max<int64_t>(pages, 0) * sysconf(_SC_PAGESIZE);
}

}  // namespace

int64_t peak_memory() {
  rusage usage = {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

int64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  int64_t in_use = 0, resident = 0;  // pages
  return file >> in_use >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

int64_t available_memory() {
  int64_t available = system_memory();
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit >= 0) {
    const int64_t used = std::max<int64_t>(number_in("/sys/fs/cgroup/memory.current"), 0);
    available = std::min(available, std::max<int64_t>(limit - used, 0));
  }
  rlimit space = {};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    const auto allowed = static_cast<int64_t>(std::min<rlim_t>(space.rlim_cur, INT64_MAX));
    available = std::min(available, std::max<int64_t>(allowed - address_space_in_use(), 0));
  }
  return available;
}

}  // namespace meshtrain
