// Generated kernels of the catalogue are compiled as runs compile them: all of them for sm_90, a
// sample for other architectures.
#include <doctest/doctest.h>

#include "../gpu/specs.h"
#include "backend/cuda/modules.h"
#include "backend/cuda/nvrtc.h"
#include "backend/gpu/join.h"
#include "backend/gpu/maker.h"
#include "support/sampled.h"
#include "support/test_cache.h"

namespace meshtrain::test {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 44;
constexpr size_t kStride = 8;

// Of the specs of a family with these numbers.
std::vector<gpu::Command> commands_of(const std::vector<KernelSpec>& specs,
                                      const std::vector<size_t>& numbers) {
  uint64_t place = kMemory;
  const auto allocate = [&](int64_t bytes) {
    const uint64_t at = place;
    place += (static_cast<uint64_t>(bytes) / 256 + 2) * 256;
    return reinterpret_cast<std::byte*>(at);
  };
  gpu::GpuMaker maker(allocate);
  for (const size_t number : numbers) {
    const KernelSpec& spec = specs[number];
    SpecPointers memory;
    for (const SpecArray& array : spec.arrays) {
      const int64_t item = static_cast<int64_t>(dtype_size(array.dtype));
      memory.push_back(allocate((array.size + array.shift) * item) + array.shift * item);
    }
    maker.begin_step(spec.name);
    spec.make(maker, memory);
  }
  return maker.take();
}

const std::string& cubins() {
  static const std::string folder = [] {
    const std::filesystem::path path = test_cache_folder("cubins");
    const auto limit = std::filesystem::file_time_type::clock::now() - kKeptInCache;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.last_write_time(ignored) < limit)
        std::filesystem::remove(entry.path(), ignored);
    }
    return path.string();
  }();
  return folder;
}

// The kernels of every `stride`-th spec of a family as one module, for one architecture.
void compile_family(const SpecFamily& family, int compute, size_t stride) {
  cuda::Core core;
  core.name = "described";
  core.compute = compute;
  const std::vector<KernelSpec> specs = family.specs();
  const gpu::Joined joined = gpu::join(commands_of(specs, sampled(specs.size(), stride)));
  const cuda::Architecture architecture =
      cuda::choose_architecture(compute, cuda::supported_architectures(core));
  REQUIRE(architecture.option == fmt::format("sm_{}", compute));
  const cuda::Cache cache(cubins());
  const std::string code = cuda::machine_code(core, cache, joined.module);
  int kernels = 0;
  for (const gpu::Call& call : joined.calls) {
    if (const auto* kernel = std::get_if<gpu::KernelCall>(&call.what)) {
      CHECK(code.find(kernel->kernel) != std::string::npos);
      ++kernels;
    }
  }
  CHECK_MESSAGE(kernels > 0, family.name);
}

void compile_all(int compute, size_t stride) {
  for (const SpecFamily& family : spec_families())
    compile_family(family, compute, stride);
}

TEST_CASE("all kernels compile for sm_90") {
  compile_all(90, 1);
}

// The text is the same for all architectures, and few instructions differ between them.
TEST_CASE("sampled kernels compile for sm_80 and sm_120") {
  compile_all(80, kStride);
  compile_all(120, kStride);
}

// These have no instruction that the three above lack.
TEST_CASE("sampled reductions compile for the architectures between") {
  for (const SpecFamily& family : spec_families()) {
    for (const int compute : {86, 89, 100}) {
      if (family.name == "reduce")
        compile_family(family, compute, kStride);
    }
  }
}

}  // namespace
}  // namespace meshtrain::test
