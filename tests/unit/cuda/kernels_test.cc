// Every generated kernel of the catalogue is compiled as runs compile them.
#include <doctest/doctest.h>

#include "../gpu/specs.h"
#include "backend/cuda/modules.h"
#include "backend/cuda/nvrtc.h"
#include "backend/gpu/join.h"
#include "backend/gpu/maker.h"

namespace meshtrain::test {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 44;

std::vector<gpu::Command> commands_of(const SpecFamily& family) {
  uint64_t place = kMemory;
  const auto allocate = [&](int64_t bytes) {
    const uint64_t at = place;
    place += (static_cast<uint64_t>(bytes) / 256 + 2) * 256;
    return reinterpret_cast<std::byte*>(at);
  };
  gpu::GpuMaker maker(allocate);
  for (const KernelSpec& spec : family.specs()) {
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

// All kernels of a family as one module, for one architecture.
void compile_family(const SpecFamily& family, int compute) {
  cuda::Core core;
  core.name = "described";
  core.compute = compute;
  const gpu::Joined joined = gpu::join(commands_of(family));
  const cuda::Architecture architecture =
      cuda::choose_architecture(compute, cuda::supported_architectures(core));
  REQUIRE(architecture.option == fmt::format("sm_{}", compute));
  const cuda::Cache cache(MESHTRAIN_CUBINS);
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

void compile_all(int compute) {
  for (const SpecFamily& family : spec_families())
    compile_family(family, compute);
}

TEST_CASE("all kernels compile for sm_80") {
  compile_all(80);
}
TEST_CASE("all kernels compile for sm_90") {
  compile_all(90);
}
TEST_CASE("all kernels compile for sm_120") {
  compile_all(120);
}

// The text is the same for all; these have no instruction that the three above lack.
TEST_CASE("reductions compile for the architectures between") {
  for (const SpecFamily& family : spec_families()) {
    for (const int compute : {86, 89, 100}) {
      if (family.name == "reduce")
        compile_family(family, compute);
    }
  }
}

}  // namespace
}  // namespace meshtrain::test
