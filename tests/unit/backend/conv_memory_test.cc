// Convolutions of random shapes stay within their memory: oneDNN's generated code, which no
// sanitizer watches, has written behind its memory. Guards stand before and after every buffer.
// And no result depends on what a scratch held before.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/conv.h"
#include "backend/cpu/types.h"
#include "support/layout_case.h"
#include "support/sampled.h"
#include "support/splitmix.h"

namespace meshtrain::cpu {
namespace {

constexpr size_t kGuard = 16 * 1024;
constexpr std::byte kGuardByte{0xA5};

// Buffers between guards.
class Guarded final : public ScratchAllocator {
 public:
  std::byte* take(int64_t bytes) override {
    const size_t size = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    buffers_.push_back({std::vector<std::byte>(size + 2 * kGuard + 64, kGuardByte), nullptr, size,
                        static_cast<size_t>(bytes)});
    Buffer& buffer = buffers_.back();
    const auto start = reinterpret_cast<uintptr_t>(buffer.memory.data()) + kGuard;
    buffer.data = reinterpret_cast<std::byte*>((start + 63) / 64 * 64);
    std::memset(buffer.data, 0, buffer.bytes);
    return buffer.data;
  }
  bool is_intact() const {
    return std::all_of(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) {
      const auto is_guard = [](std::byte b) { return b == kGuardByte; };
      return std::all_of(buffer.memory.data(), static_cast<const std::byte*>(buffer.data),
                         is_guard) &&
             std::all_of(static_cast<const std::byte*>(buffer.data) + buffer.bytes,
                         buffer.memory.data() + buffer.memory.size(), is_guard);
    });
  }

 private:
  struct Buffer {
    std::vector<std::byte> memory;
    std::byte* data;
    size_t size, bytes;
  };
  std::vector<Buffer> buffers_;
};

ConvShape random_shape(testing::Random& random, DType dtype) {
  ConvShape s;
  s.dtype = dtype;
  const bool is_flat = random.chance(30);
  for (size_t d = is_flat ? 2 : 1; d < 3; ++d) {
    s.cells[d] = random.pick<int64_t>({1, 1, 2, 3, 5});
    s.strides[d] = random.pick<int64_t>({1, 2, 2, 3});
    s.dilations[d] = s.strides[d] == 1 ? random.pick<int64_t>({1, 1, 2}) : 1;
    const int64_t reach = (s.cells[d] - 1) * s.dilations[d] + 1;
    s.input[d] = reach + random.below(is_flat ? 500 : 70);
    s.pads[d] = random.below(reach);
    s.output[d] = (s.input[d] + 2 * s.pads[d] - reach) / s.strides[d] + 1;
  }
  s.groups = random.pick<int64_t>({1, 1, 1, 2, 4});
  s.channels = s.groups * random.pick<int64_t>({1, 2, 3, 5, 8, 9, 16, 17, 24, 33});
  s.filters = s.groups * random.pick<int64_t>({1, 2, 3, 7, 8, 16, 20, 40, 64});
  if (random.chance(15)) {
    s.groups = s.channels = random.pick<int64_t>({3, 8, 17, 32});
    s.filters = s.channels * random.pick<int64_t>({1, 1, 2});
  }
  return s;
}

struct Convolution {
  ConvShape shape;
  int64_t images;
  Guarded memory;
  std::byte *x, *y, *kernel;

  Convolution(const ConvShape& s, int64_t n) : shape(s), images(n) {
    x = memory.take(images * s.input_bytes());
    y = memory.take(images * s.output_bytes());
    kernel = memory.take(kernel_bytes());
    fill(x, images * s.input_bytes(), 1);
    fill(y, images * s.output_bytes(), 2);
    fill(kernel, kernel_bytes(), 3);
  }
  int64_t kernel_bytes() const { return shape.kernel_elements() * shape.item_size(); }
  void fill(std::byte* to, int64_t bytes, uint64_t seed) const {
    for (int64_t i = 0; i < bytes / shape.item_size(); ++i)
      store_value(to + i * shape.item_size(), shape.dtype,
                  test::splitmix_signed(seed, static_cast<uint64_t>(i)));
  }

  KernelList make(int kind) {
    std::vector<ConvJob> forward, backward;
    WgradJob wgrad{{}, kernel};
    for (int64_t i = 0; i < images; ++i) {
      std::byte *xi = x + i * shape.input_bytes(), *yi = y + i * shape.output_bytes();
      forward.push_back({xi, kernel, yi});
      backward.push_back({yi, kernel, xi});
      wgrad.images.push_back({xi, yi});
    }
    return kind == 0   ? make_conv(shape, forward, memory)
           : kind == 1 ? make_conv_dgrad(shape, backward, memory)
                       : make_conv_wgrad(shape, {wgrad}, memory);
  }
  // The bytes of the result; scratch of every kernel begins as `filled`.
  std::vector<std::byte> run(int kind, std::byte filled) {
    for (const KernelPtr& each : make(kind)) {
      const auto bytes = static_cast<int64_t>(each->scratch_bytes());
      std::byte* scratch = memory.take(bytes);
      std::memset(scratch, std::to_integer<int>(filled), static_cast<size_t>(bytes));
      each->run(0, each->units(), scratch);
    }
    const std::byte* result = kind == 0 ? y : kind == 1 ? x : kernel;
    const int64_t size = kind == 0   ? images * shape.output_bytes()
                         : kind == 1 ? images * shape.input_bytes()
                                     : kernel_bytes();
    return {result, result + size};
  }
};

void check_memory(const ConvShape& shape, int64_t images) {
  for (int kind = 0; kind < 3; ++kind) {
    std::string text;
    for (size_t d = 0; d < 3; ++d)
      text += fmt::format(" {}+{}/{}x{}~{}", shape.input[d], shape.pads[d], shape.strides[d],
                          shape.cells[d], shape.dilations[d]);
    const std::string what = fmt::format("{} of {} images{} channels {} filters {} groups {} {}",
                                         kind == 0   ? "conv"
                                         : kind == 1 ? "dgrad"
                                                     : "wgrad",
                                         images, text, shape.channels, shape.filters, shape.groups,
                                         dtype_name(shape.dtype));
    INFO(what);
    Convolution zeros(shape, images), nans(shape, images);
    const bool is_same = zeros.run(kind, std::byte{0}) == nans.run(kind, std::byte{0xFF});
    CHECK(is_same);
    CHECK(zeros.memory.is_intact());
  }
}

TEST_CASE("convolutions with strides and few channels stay within their memory") {
  for (const int64_t channels : {2, 3, 8, 17}) {
    ConvShape shape;
    shape.input = {1, 96, 96};
    shape.output = {1, 48, 48};
    shape.strides = {1, 2, 2};
    shape.channels = channels;
    shape.filters = 64;
    check_memory(shape, 8);
  }
}

TEST_CASE("convolutions of random shapes stay within their memory") {
  for (const size_t seed : test::sampled_seeds(1000, 50)) {
    testing::Random random(seed);
    const DType dtype = random.pick<DType>({DType::kFloat32, DType::kFloat32, DType::kBFloat16});
    check_memory(random_shape(random, dtype), random.pick<int64_t>({1, 4, 6, 17}));
  }
}

}  // namespace
}  // namespace meshtrain::cpu
