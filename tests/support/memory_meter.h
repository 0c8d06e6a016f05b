// The most memory taken at once since a moment, beyond what was there.
//
// Under AddressSanitizer every allocation is counted, to the byte. Elsewhere it is the resident
// memory of the process (Linux: VmHWM), which pages that are given back late make larger.
#pragma once

#include <atomic>
#include <cstddef>
#include <fstream>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define MESHTRAIN_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MESHTRAIN_ADDRESS_SANITIZER
#endif
#endif
#ifdef MESHTRAIN_ADDRESS_SANITIZER
// sanitizer/allocator_interface.h, which GCC does not bring.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, size_t),
                                              void (*free_hook)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* pointer);
}
#endif

namespace meshtrain::test {

#ifdef MESHTRAIN_ADDRESS_SANITIZER

class MemoryMeter {
 public:
  MemoryMeter() {
    [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, size_t size) { add(static_cast<long>(size)); },
        [](const volatile void* pointer) {
          if (pointer != nullptr) {
            add(-static_cast<long>(__sanitizer_get_allocated_size(pointer)));
          }
        });
    before_ = live_;
    peak_ = before_;
  }
  size_t peak() const { return static_cast<size_t>(peak_ - before_); }

 private:
  static void add(long bytes) {
    const long now = live_ += bytes;
    long seen = peak_;
    while (now > seen && !peak_.compare_exchange_weak(seen, now)) {
    }
  }
  static inline std::atomic<long> live_{0}, peak_{0};
  long before_;
};

#else

class MemoryMeter {
 public:
  MemoryMeter() {
    std::ofstream("/proc/self/clear_refs") << "5";  // the most so far is what there is now
    before_ = most();
  }
  // Linux counts resident pages on each core and adds them up late: less than before means none.
  size_t peak() const {
    const size_t now = most();
    return now > before_ ? now - before_ : 0;
  }

 private:
  static size_t most() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) {
        return std::stoul(line.substr(6)) * 1024;
      }
    }
    return 0;
  }
  size_t before_;
};

#endif

}  // namespace meshtrain::test
