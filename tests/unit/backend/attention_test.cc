// Attention of bfloat16, where the processor has it (cpu/levels.cc), beside that of float32.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/kernel_table.h"
#include "base/philox.h"

namespace meshtrain {
namespace {

using cpu::AttentionArgs;
using cpu::kernels;

float as_bfloat16(double x) {
  const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(x));
  return __builtin_bit_cast(float, (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}

std::vector<float> wave(int64_t count, double step) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(as_bfloat16(1.5 * std::sin(step * static_cast<double>(i * i % 1009 + i))));
  }
  return out;
}

struct Results {
  std::vector<float> o, dq, dk, dv;
};

struct Sizes {
  int64_t queries, keys, readers, head_size, value_size;
  bool causal;
  int64_t window = 0;
  double rate = 0;
  bool has_mask = false;
};

// Forward and backward by the loops of `type`, on the same operands.
Results attention_of(const Sizes& n, cpu::TypeIndex type) {
  const auto q = wave(n.queries * n.readers * n.head_size, 0.71),
             k = wave(n.keys * n.head_size, 1.31), v = wave(n.keys * n.value_size, 2.17),
             g = wave(n.queries * n.readers * n.value_size, 0.43);
  Results out{std::vector<float>(g.size()), std::vector<float>(q.size()),
              std::vector<float>(k.size()), std::vector<float>(v.size())};
  std::vector<float> lse(static_cast<size_t>(n.readers * n.queries));
  AttentionArgs a;
  a.queries = n.queries;
  a.keys = n.keys;
  a.head_size = n.head_size;
  a.value_size = n.value_size;
  a.q_row = n.readers * n.head_size;
  a.o_row = n.readers * n.value_size;
  a.k_row = n.head_size;
  a.v_row = n.value_size;
  a.scale = 0.4;
  a.causal = n.causal;
  a.window = n.window;
  std::vector<uint8_t> mask;
  for (int64_t j = 0; j < n.keys; ++j)
    mask.push_back(j % 3 == 1 ? 0 : 1);
  a.key_mask = n.has_mask ? mask.data() : nullptr;
  if (n.rate > 0) {
    a.threshold = philox_threshold(n.rate);
    a.factor = 1 / (1 - n.rate);
    a.stream = {1337, 5, 0};
    a.reader_index = static_cast<uint64_t>(n.queries * n.keys);
    a.random_bits = kernels().random_bits;
  }
  a.k = k.data();
  a.v = v.data();
  const auto scratch_of = [&](bool is_grad) {
    return std::vector<std::byte>(
        static_cast<size_t>(kernels().attention_scratch[type](a, is_grad)) + 64);
  };
  const auto aligned = [](std::vector<std::byte>& scratch) {
    const auto at = reinterpret_cast<uintptr_t>(scratch.data());
    return scratch.data() + (64 - at % 64) % 64;
  };
  std::vector<std::byte> scratch = scratch_of(false);
  for (int64_t r = 0; r < n.readers; ++r) {
    a.q = q.data() + r * n.head_size;
    a.o = out.o.data() + r * n.value_size;
    a.lse = lse.data() + r * n.queries;
    a.first_index = static_cast<uint64_t>(r) * a.reader_index;
    kernels().attention[type](a, aligned(scratch));
  }
  a.readers = n.readers;
  a.first_index = 0;
  a.q = q.data();
  a.o = out.o.data();
  a.lse = lse.data();
  a.o_cotangent = g.data();
  a.dq = out.dq.data();
  a.dk = out.dk.data();
  a.dv = out.dv.data();
  std::vector<std::byte> of_grad = scratch_of(true);
  kernels().attention_grad[type](a, aligned(of_grad));
  return out;
}

// The largest difference, in parts of the largest element.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 1e-6;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

TEST_CASE("attention of bfloat16 is that of float32 but for roundings") {
  if (kernels().attention[cpu::kTypeBF16] == nullptr) {
    MESSAGE("attention of bfloat16 is computed in float32 on this processor");
    return;
  }
  const Sizes cases[] = {{64, 64, 1, 32, 32, false},
                         {1, 1, 1, 1, 1, false},
                         {200, 150, 2, 8, 5, true},
                         {37, 41, 3, 7, 3, false},
                         {130, 300, 1, 64, 128, true},
                         {97, 129, 2, 33, 65, true},
                         {200, 150, 2, 8, 5, false, 40, 0.3, true},
                         {60, 70, 2, 16, 16, true, 0, 0.2, false},
                         {61, 71, 2, 16, 16, false, 0, 0.2, false}};
  for (const Sizes& n : cases) {
    CAPTURE(n.queries);
    CAPTURE(n.keys);
    const Results half = attention_of(n, cpu::kTypeBF16), whole = attention_of(n, cpu::kTypeF32);
    CHECK(difference(half.o, whole.o) < 0x1p-7);
    CHECK(difference(half.dq, whole.dq) < 0x1p-7);
    CHECK(difference(half.dk, whole.dk) < 0x1p-7);
    CHECK(difference(half.dv, whole.dv) < 0x1p-7);
  }
}

}  // namespace
}  // namespace meshtrain
