// Commands on their way to calls: windows, fingerprints, kernels in cuDNN's order.
#include "backend/cuda/prepared.h"

#include <doctest/doctest.h>

#include "backend/cuda/filters.h"
#include "backend/gpu/lowering.h"

namespace meshtrain::test {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 44;

std::byte* address(uint64_t offset) {
  return reinterpret_cast<std::byte*>(kBase + offset);
}

TEST_CASE("addresses in a window move with the step and others stay") {
  const std::vector<gpu::Window> windows = {{address(0), 512, 1024}, {address(8192), 256, 256}};
  const cuda::Shift third(windows, 3);
  CHECK(third(kBase) == kBase + 3 * 1024);
  CHECK(third(kBase + 511) == kBase + 511 + 3 * 1024);
  CHECK(third(kBase + 512) == kBase + 512);
  CHECK(third(kBase - 1) == kBase - 1);
  CHECK(third(uint64_t{17}) == 17);
  CHECK(third(address(8192 + 16)) == address(8192 + 16 + 3 * 256));
  const std::byte* const constant = address(4);
  CHECK(third(constant) == address(4 + 3 * 1024));
  CHECK(cuda::Shift(windows, 0)(kBase + 4) == kBase + 4);
}

std::vector<gpu::Command> some_commands(int64_t filters, uint64_t output) {
  gpu::GpuLowering lowering([](int64_t) { return address(1 << 24); });
  lowering.lower(StepSpec{"conv"});
  ConvShape shape;
  shape.input = {1, 8, 8};
  shape.output = {1, 6, 6};
  shape.cells = {1, 3, 3};
  shape.channels = 8;
  shape.filters = filters;
  lowering.lower(ConvSpec{shape, {{address(0), address(1 << 16), address(output)}}});
  lowering.lower(ConvWgradSpec{shape, {{{{address(0), address(output)}}, address(1 << 18)}}});
  MatmulSpec product;
  product.m = product.n = product.k = 256;
  product.a_row = product.b_row = product.c_row = 256;
  product.a_column = product.b_column = 1;
  product.a = address(1 << 20);
  product.b = address(1 << 21);
  product.c = address(1 << 22);
  product.batches = {{}};
  lowering.lower(product);
  lowering.lower(FillSpec{contiguous_view(address(1 << 23), DType::kFloat32, {100}), 2});
  return lowering.take();
}

TEST_CASE("equal commands have one fingerprint and others have another") {
  const std::string fingerprint = cuda::fingerprint(some_commands(16, 1 << 17));
  CHECK(cuda::fingerprint(some_commands(16, 1 << 17)) == fingerprint);
  CHECK(cuda::fingerprint(some_commands(24, 1 << 17)) != fingerprint);
  CHECK(cuda::fingerprint(some_commands(16, (1 << 17) + 256)) != fingerprint);
}

TEST_CASE("collectives that differ in anything have other fingerprints") {
  const std::vector<int> ranks = {0, 1, 2};
  const auto text = [](KernelSpec spec) {
    gpu::GpuLowering lowering([](int64_t) { return address(1 << 24); });
    lowering.lower({StepSpec{"step"}, std::move(spec)});
    return cuda::fingerprint(lowering.take());
  };
  const auto scatter = [&](Reduction reduction, DType dtype) {
    return text(ReduceScatterSpec{reduction, dtype, address(0), address(512), 16, ranks});
  };
  const std::vector<std::string> texts = {
      text(AllGatherSpec{address(0), address(512), 64, ranks}),
      text(AllGatherSpec{address(64), address(512), 64, ranks}),
      text(AllGatherSpec{address(0), address(512), 64, {0, 2, 1}}),
      scatter(Reduction::kSum, DType::kFloat32),
      scatter(Reduction::kMax, DType::kFloat32),
      scatter(Reduction::kSum, DType::kInt32),
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t k = 0; k < i; ++k)
      CHECK(texts[i] != texts[k]);
  }
}

TEST_CASE("kernels are turned before they are read and after they are written") {
  const std::vector<gpu::Command> own = some_commands(16, 1 << 17);
  int64_t asked = 0;
  const std::vector<gpu::Command> turned = cuda::turn_filters(own, [&](int64_t bytes) {
    asked += bytes;
    return address((1 << 25) + static_cast<uint64_t>(asked));
  });
  CHECK(asked == 2 * 3 * 3 * 8 * 16 * 4);
  REQUIRE(turned.size() == own.size() + 2);
  const auto check_copy = [&](size_t i, uint64_t reads, const std::byte* writes) {
    REQUIRE(std::holds_alternative<gpu::Launch>(turned[i].what));
    CHECK(turned[i].path == "conv");
    bool has_read = false, has_written = false;
    for (const Access& access : turned[i].accesses) {
      has_read = has_read || (!access.is_write && access.begin == address(reads));
      has_written = has_written || (access.is_write && access.begin == writes);
    }
    CHECK(has_written);
    CHECK(has_read);
  };
  const auto& forward = std::get<gpu::Conv>(turned[1].what);
  check_copy(0, 1 << 16, forward.kernel);
  CHECK(forward.x == address(0));
  CHECK(forward.y == address(1 << 17));
  const auto& wgrad = std::get<gpu::Conv>(turned[2].what);
  CHECK(wgrad.op == gpu::ConvOp::kWgrad);
  check_copy(3, reinterpret_cast<uint64_t>(wgrad.kernel) - kBase, address(1 << 18));
  CHECK(turned[2].accesses[1].is_write);
  CHECK(turned[2].accesses[1].begin == wgrad.kernel);
  CHECK(cuda::fingerprint({turned[4], turned[5]}) == cuda::fingerprint({own[2], own[3]}));
}

}  // namespace
}  // namespace meshtrain::test
