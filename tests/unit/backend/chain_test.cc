#include "backend/cpu/chain.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "support/layout_case.h"

namespace meshtrain::cpu {
namespace {

using Memory = std::vector<uint64_t>;
constexpr int64_t kWords = 512;

// Each unit mixes the words that it reads into one or two that it writes.
class Mix final : public Kernel {
 public:
  Mix(testing::Random& random, uint64_t id, Memory& memory)
      : id_(id),
        units_(random.pick<int64_t>({1, 5, 8, 16, 24, 32})),
        per_unit_(random.pick<int64_t>({1, 2})),
        from_(random.below(5) * 64),
        to_(random.below(5) * 64),
        reads_all_(random.chance(15)),
        keeps_place_(random.chance(5)),
        memory_(memory) {}

  int64_t units() const override { return units_; }
  double cost() const override { return 1e4; }
  bool keeps_place() const override { return keeps_place_; }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = reads_all_ ? 0 : unit, last = reads_all_ ? units_ : unit + 1;
      uint64_t sum = id_;
      for (int64_t i = first * per_unit_; i < last * per_unit_; ++i)
        sum = sum * 6364136223846793005u + memory_[static_cast<size_t>(from_ + i)];
      for (int64_t i = unit * per_unit_; i < (unit + 1) * per_unit_; ++i)
        memory_[static_cast<size_t>(to_ + i)] = sum + static_cast<uint64_t>(i);
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const int64_t first = reads_all_ ? 0 : begin, last = reads_all_ ? units_ : end;
    out.push_back({word(from_ + first * per_unit_), word(from_ + last * per_unit_), false});
    out.push_back({word(to_ + begin * per_unit_), word(to_ + end * per_unit_), true});
  }
  // Units of one kernel do not depend on each other.
  bool is_possible() const { return std::abs(from_ - to_) >= 64; }

 private:
  const std::byte* word(int64_t index) const {
    return reinterpret_cast<const std::byte*>(memory_.data() + index);
  }

  uint64_t id_;
  int64_t units_, per_unit_, from_, to_;
  bool reads_all_, keeps_place_;
  Memory& memory_;
};

KernelList random_kernels(uint64_t seed, Memory& memory) {
  testing::Random random(seed);
  KernelList kernels;
  const size_t count = 3 + static_cast<size_t>(random.below(15));
  while (kernels.size() < count) {
    auto kernel = std::make_unique<Mix>(random, kernels.size() + 1, memory);
    if (kernel->is_possible())
      kernels.push_back(std::move(kernel));
  }
  return kernels;
}

// The units of each kernel in a random order, as several workers may compute them.
Memory run_in_random_order(const KernelList& kernels, uint64_t seed, Memory& memory) {
  std::iota(memory.begin(), memory.end(), uint64_t{1});
  std::mt19937_64 engine(seed);
  for (const KernelPtr& kernel : kernels) {
    std::vector<int64_t> units(static_cast<size_t>(kernel->units()));
    std::iota(units.begin(), units.end(), 0);
    std::shuffle(units.begin(), units.end(), engine);
    for (const int64_t unit : units)
      kernel->run(unit, unit + 1, nullptr);
  }
  return memory;
}

TEST_CASE("chains of random kernels compute what the kernels compute one after the other") {
  Memory memory(kWords);
  int chains = 0, members = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Memory expected = run_in_random_order(random_kernels(seed, memory), seed, memory);
    KernelList kernels = random_kernels(seed, memory);
    const size_t count = kernels.size();
    std::vector<const Kernel*> fixed;
    for (const KernelPtr& kernel : kernels) {
      if (kernel->keeps_place())
        fixed.push_back(kernel.get());
    }
    const KernelList joined = join_chains(std::move(kernels), 2);
    size_t found = 0;
    std::vector<const Kernel*> still_fixed;
    for (const KernelPtr& kernel : joined) {
      const auto* chain = dynamic_cast<const Chain*>(kernel.get());
      found += chain == nullptr ? 1 : chain->members().size();
      chains += chain == nullptr ? 0 : 1;
      members += chain == nullptr ? 0 : static_cast<int>(chain->members().size());
      if (kernel->keeps_place())
        still_fixed.push_back(kernel.get());
    }
    CHECK(found == count);
    CHECK(still_fixed == fixed);
    for (uint64_t order = 0; order < 3; ++order)
      CHECK(run_in_random_order(joined, seed * 7 + order, memory) == expected);
  }
  CHECK(chains > 1000);
  CHECK(members > 2 * chains);
}

}  // namespace
}  // namespace meshtrain::cpu
