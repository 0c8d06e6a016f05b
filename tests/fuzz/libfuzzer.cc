// The program that looks for inputs: libFuzzer around the target that MESHTRAIN_FUZZ names. What a
// target must not do ends it, so that libFuzzer keeps the input.
#include <cstdio>
#include <cstdlib>

#include "repair.h"
#include "target.h"

// Code reached, as GCC's instrumentation reports it: libFuzzer looks at the counters of this
// section.
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[1 << 16];
extern "C" __attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  ++counters[(place * 0x9e3779b97f4a7c15u) >> 48];
}

// GCC reports comparisons of numbers with fractions, too, which libFuzzer does not take.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}

// libFuzzer's own changes; seven in eight files with checksums that fit.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  const size_t changed = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 != 0) {
    meshtrain::fuzz::repair_checksums({data, changed});
  }
  return changed;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meshtrain::fuzz;
  static const Target* const target = [] {
    const char* name = std::getenv("MESHTRAIN_FUZZ");
    const Target* found = find_target(name == nullptr ? "" : name);
    if (found == nullptr) {
      std::fprintf(stderr, "set MESHTRAIN_FUZZ to one of:");
      for (const Target& each : kTargets) {
        std::fprintf(stderr, " %s", std::string(each.name).c_str());
      }
      std::fprintf(stderr, "\n");
      std::exit(2);
    }
    return found;
  }();
  const std::string wrong = complaint(*target, {reinterpret_cast<const std::byte*>(data), size});
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s: %s\n", std::string(target->name).c_str(), wrong.c_str());
    std::abort();
  }
  return 0;
}
