// The compiler accepts all generated kernels of the catalogue, and makes machine code of a sample
// of them, or of all, as it does for runs.
#include <doctest/doctest.h>

#include <filesystem>

#include "../gpu/specs.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/modules.h"
#include "backend/cuda/nvrtc.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/merge_launches.h"
#include "base/text.h"
#include "support/sampled.h"
#include "support/test_cache.h"

namespace meshtrain::test {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 44;
constexpr size_t kStride = 10;

// Of the specs of a family with these numbers.
std::vector<gpu::Command> commands_of(const std::vector<KernelCase>& specs,
                                      const std::vector<size_t>& numbers) {
  uint64_t place = kMemory;
  const auto allocate = [&](int64_t bytes) {
    const uint64_t at = place;
    place += (static_cast<uint64_t>(bytes) / 256 + 2) * 256;
    return reinterpret_cast<std::byte*>(at);
  };
  gpu::GpuLowering lowering(allocate);
  for (const size_t number : numbers) {
    const KernelCase& spec = specs[number];
    SpecPointers memory;
    for (const SpecArray& array : spec.arrays) {
      const int64_t item = static_cast<int64_t>(dtype_size(array.dtype));
      memory.push_back(allocate((array.size + array.shift) * item) + array.shift * item);
    }
    lowering.lower(spec.lowered(memory));
  }
  return lowering.take();
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

cuda::Core described(int compute) {
  cuda::Core core;
  core.name = "described";
  core.compute = compute;
  return core;
}

// Machine code of every `stride`-th spec of a family, as one module.
void compile_family(const SpecFamily& family, int compute, size_t stride) {
  const cuda::Core core = described(compute);
  const std::vector<KernelCase> specs = family.specs();
  const gpu::MergedLaunches joined =
      gpu::merge_launches(commands_of(specs, sampled(specs.size(), stride)));
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

// Parses and checks the text with the options of a run, and leaves it at that: a twentieth of the
// time of machine code. False where the compiler refuses it.
bool is_accepted(const std::string& text, int compute) {
  const std::string option = fmt::format("compute_{}", compute);
  const std::vector<std::string> words =
      split(cuda::compile_options(described(compute), {option, true}) + " -dlto", ' ');
  std::vector<const char*> options;
  for (const std::string& word : words)
    options.push_back(word.c_str());
  nvrtcProgram program = nullptr;
  REQUIRE(cuda::nvrtc().nvrtcCreateProgram(&program, text.c_str(), "kernels.cu", 0, nullptr,
                                           nullptr) == NVRTC_SUCCESS);
  const nvrtcResult result =
      cuda::nvrtc().nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  cuda::nvrtc().nvrtcGetProgramLogSize(program, &size);
  std::string log(size, '\0');
  cuda::nvrtc().nvrtcGetProgramLog(program, log.data());
  cuda::nvrtc().nvrtcDestroyProgram(&program);
  INFO(log.substr(0, 2000));
  CHECK((result == NVRTC_SUCCESS || result == NVRTC_ERROR_COMPILATION));
  return result == NVRTC_SUCCESS;
}

TEST_CASE("the compiler accepts every kernel for every architecture") {
  for (const SpecFamily& family : spec_families()) {
    CAPTURE(family.name);
    const std::vector<KernelCase> specs = family.specs();
    const auto check = [&](size_t stride, const std::vector<int>& generations) {
      const std::string text =
          gpu::merge_launches(commands_of(specs, sampled(specs.size(), stride))).module;
      for (const int compute : generations)
        CHECK_MESSAGE(is_accepted(text, compute), compute);
    };
    check(1, {80, 90, 120});
    check(kStride, {86, 89, 100});  // the same text: no branch of it knows them
  }
}

TEST_CASE("the compiler refuses what is no kernel") {
  const std::string good =
      "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n";
  CHECK(is_accepted(good, 90));
  CHECK(!is_accepted(good + "__global__ void wrong(float* x) { x = 1.0f; }\n", 90));
  CHECK(!is_accepted(good + "__global__ void wrong(float* x) { missing(x); }\n", 90));
}

TEST_CASE("every kernel becomes machine code for sm_90") {
  compile_all(90, 1);
}

TEST_CASE("sampled kernels become machine code for sm_80 and sm_120") {
  compile_all(80, kStride);
  compile_all(120, kStride);
}

// Before 8.0 there are no instructions for products of warps in TF32 and bfloat16.
TEST_CASE("attention becomes machine code for sm_75") {
  for (const SpecFamily& family : spec_families()) {
    if (std::string_view(family.name) == "attention" || std::string_view(family.name) == "head")
      compile_family(family, 75, 3 * kStride);
  }
}

// These have no instruction that the three above lack.
TEST_CASE("sampled reductions become machine code for the architectures between") {
  for (const SpecFamily& family : spec_families()) {
    for (const int compute : {86, 89, 100}) {
      if (family.name == "reduce")
        compile_family(family, compute, kStride);
    }
  }
}

}  // namespace
}  // namespace meshtrain::test
