#include "exec/schedule.h"

#include <doctest/doctest.h>

#include <map>

#include "support/layout_case.h"

namespace meshtrain {
namespace {

constexpr int64_t kMemory = 64, kMostUnits = 12;

// Reads and writes a byte a unit, at a stride, of a small memory.
class FakeKernel final : public cpu::Kernel {
 public:
  explicit FakeKernel(testing::Random& random)
      : units_(1 + random.below(kMostUnits)),
        from_(random.below(kMemory - kMostUnits)),
        to_(random.below(kMemory - kMostUnits)),
        reads_all_(random.chance(25)),
        cost_(random.chance(50) ? 2e3 : 1e6) {}
  int64_t units() const override { return units_; }
  double cost() const override { return cost_; }
  void run(int64_t, int64_t, std::byte*) const override {}
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    static const std::byte memory[kMemory] = {};
    const int64_t first = reads_all_ ? 0 : begin, last = reads_all_ ? units_ : end;
    out.push_back({memory + from_ + first, memory + from_ + last, false});
    out.push_back({memory + to_ + begin, memory + to_ + end, true});
  }

 private:
  int64_t units_, from_, to_;
  bool reads_all_;
  double cost_;
};

bool conflict(const cpu::Kernel& a, const cpu::Kernel& b, std::pair<int64_t, int64_t> of_a,
              std::pair<int64_t, int64_t> of_b) {
  std::vector<Access> first, second;
  a.accesses(of_a.first, of_a.second, first);
  b.accesses(of_b.first, of_b.second, second);
  for (const Access& x : first) {
    for (const Access& y : second) {
      if ((x.is_write || y.is_write) && x.begin < y.end && y.begin < x.end)
        return true;
    }
  }
  return false;
}

// The units that a worker may compute in a slice.
std::pair<int64_t, int64_t> possible_units(const KernelSlice& slice) {
  return slice.shared < 0 ? std::pair(slice.begin, slice.end)
                          : std::pair(int64_t{0}, slice.kernel->units());
}

// Parts of a worker's list between barriers.
std::vector<std::vector<KernelSlice>> phases(const std::vector<KernelSlice>& slices) {
  std::vector<std::vector<KernelSlice>> out(1);
  for (const KernelSlice& slice : slices) {
    if (slice.kernel == nullptr)
      out.emplace_back();
    else
      out.back().push_back(slice);
  }
  return out;
}

void check_schedule(const cpu::KernelList& kernels, const Schedule& schedule) {
  std::vector<std::vector<std::vector<KernelSlice>>> of_worker;
  std::map<const cpu::Kernel*, int64_t> units;
  for (const std::vector<KernelSlice>& slices : schedule.workers) {
    of_worker.push_back(phases(slices));
    CHECK(of_worker.back().size() == static_cast<size_t>(schedule.num_barriers) + 1);
    for (const KernelSlice& slice : slices)
      units[slice.kernel] += slice.end - slice.begin;
  }
  for (const cpu::KernelPtr& kernel : kernels)
    CHECK(units[kernel.get()] == kernel->units());
  int conflicts = 0;
  for (size_t v = 0; v < of_worker.size(); ++v) {
    for (size_t w = 0; w < of_worker.size(); ++w) {
      for (size_t p = 0; v != w && p < of_worker[v].size(); ++p) {
        for (const KernelSlice& a : of_worker[v][p]) {
          for (const KernelSlice& b : of_worker[w][p]) {
            if (a.kernel != b.kernel)
              conflicts += conflict(*a.kernel, *b.kernel, possible_units(a), possible_units(b));
          }
        }
      }
    }
  }
  CHECK(conflicts == 0);
}

TEST_CASE("schedules of random kernels: each unit once, and a barrier between conflicts") {
  int shared = 0, barriers = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    testing::Random random(seed);
    cpu::KernelList kernels;
    const int64_t count = 1 + random.below(10);
    for (int64_t k = 0; k < count; ++k)
      kernels.push_back(std::make_unique<FakeKernel>(random));
    const Schedule schedule = make_schedule(kernels, 1 + static_cast<int>(random.below(4)));
    check_schedule(kernels, schedule);
    shared += schedule.num_shared;
    barriers += schedule.num_barriers;
  }
  CHECK(shared > 400);
  CHECK(barriers > shared);
}

}  // namespace
}  // namespace meshtrain
