#include "backend/cuda/nvrtc.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "backend/cuda/libraries.h"
#include "backend/cuda/modules.h"
#include "base/checksum.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

constexpr const char* kText =
    "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n";

cuda::Core gpu_of(int compute) {
  cuda::Core core;
  core.index = 3;
  core.name = "Test GPU";
  core.compute = compute;
  return core;
}

TEST_CASE("code is made for the GPU itself or for the nearest that it can run") {
  const std::vector<int> supported = {75, 80, 86, 90, 100};
  const auto option = [&](int compute) {
    return cuda::choose_architecture(compute, supported).option;
  };
  CHECK(option(80) == "sm_80");
  CHECK(option(90) == "sm_90");
  CHECK(option(89) == "sm_86");         // a cubin runs on later members of its generation
  CHECK(option(120) == "compute_100");  // of a later generation only text does
  CHECK(option(70) == "");
  CHECK(cuda::choose_architecture(120, supported).is_ptx);
  CHECK(!cuda::choose_architecture(89, supported).is_ptx);
}

TEST_CASE("this NVRTC compiles for all generations that we name") {
  const std::vector<int> supported = cuda::supported_architectures(gpu_of(90));
  for (const int compute : {80, 86, 89, 90, 100, 120})
    CHECK(std::find(supported.begin(), supported.end(), compute) != supported.end());
}

TEST_CASE("a cubin is an ELF file with the kernels and PTX is text") {
  const cuda::Core core = gpu_of(90);
  const std::string cubin = cuda::compile(core, kText, {"sm_90", false});
  CHECK(cubin.substr(1, 3) == "ELF");
  CHECK(cubin.find("twice") != std::string::npos);
  const std::string ptx = cuda::compile(core, kText, {"compute_90", true});
  CHECK(ptx.find(".entry twice") != std::string::npos);
  CHECK(ptx.back() == '\0');  // as the driver wants it
}

TEST_CASE("products and sums are not contracted unless the text says so") {
  const std::string text =
      "extern \"C\" __global__ void f(float* x) { x[0] = x[0] * x[1] + x[2]; }\n"
      "extern \"C\" __global__ void g(float* x) { x[0] = fmaf(x[0], x[1], x[2]); }\n";
  const std::string ptx = cuda::compile(gpu_of(90), text, {"compute_90", true});
  const size_t f = ptx.find(".entry f"), g = ptx.find(".entry g");
  REQUIRE(f < g);
  CHECK(ptx.substr(f, g - f).find("fma.rn.f32") == std::string::npos);
  CHECK(ptx.substr(g).find("fma.rn.f32") != std::string::npos);
}

TEST_CASE("kernels are compiled on all cores where the compiler can and come out the same") {
  const cuda::Core core = gpu_of(90);
  const cuda::Architecture architecture{"sm_90", false};
  const bool can = cuda::compiler_version(core)[1] >= '3';  // "13.0"
  const std::string options = cuda::compile_options(core, architecture);
  CHECK((options.find(" --split-compile=0") != std::string::npos) == can);
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += fmt::format("extern \"C\" __global__ void f{0}(float* x) {{ x[{0}] *= x[0]; }}\n", i);
  const std::string code = cuda::compile(core, text, architecture);
  CHECK(cuda::compile(core, text, architecture) == code);
}

TEST_CASE("a text that is wrong gives the compiler's messages") {
  const Caught error = caught([] {
    cuda::compile(gpu_of(90), "extern \"C\" __global__ void f() { nonsense(); }", {"sm_90", false});
  });
  CHECK(error.exit_code == 4);
  CHECK(error.says("gpu:3 (Test GPU)"));
  CHECK(error.says("nvrtcCompileProgram (--gpu-architecture=sm_90"));
  CHECK(error.says("meshtrain.cu(1): error: identifier \"nonsense\" is undefined"));
}

TEST_CASE("a GPU that is too old is named with what would do") {
  const cuda::Cache cache("");
  const Caught error = caught([&] { cuda::machine_code(gpu_of(52), cache, kText); });
  CHECK(error.exit_code == 4);
  CHECK(error.says("compute capability is 5.2"));
  CHECK(error.says("7.5 and newer"));
}

TEST_CASE("code comes from the cache the second time and not when the file is damaged") {
  const TempFolder folder;
  const cuda::Cache cache(folder.path());
  const cuda::Core core = gpu_of(90);
  const std::string code = cuda::machine_code(core, cache, kText);
  REQUIRE(folder.num_files() == 1);
  const std::string name =
      std::filesystem::directory_iterator(folder.path())->path().filename().string();

  // A sound entry of other content shows where code comes from.
  const std::string other = "other code";
  folder.write(name, checksum128(std::as_bytes(std::span(other))) + other);
  CHECK(cuda::machine_code(core, cache, kText) == other);

  folder.write(name, "damaged");
  CHECK(cuda::machine_code(core, cache, kText) == code);
  CHECK(cuda::machine_code(core, cache, kText) == code);
  CHECK(folder.read(name).substr(32) == code);

  // Another text and another GPU are other entries.
  cuda::machine_code(core, cache, std::string(kText) + "// more\n");
  CHECK(folder.num_files() == 2);
  cuda::machine_code(gpu_of(80), cache, kText);
  CHECK(folder.num_files() == 3);
}

// All four, of one generation.
TEST_CASE("each library is named with its version and file") {
  const std::vector<gpu::LibraryInfo> infos = cuda::library_infos();
  REQUIRE(infos.size() == 4);
  for (const gpu::LibraryInfo& info : infos) {
    CHECK_MESSAGE(info.problem.empty(), info.problem);
    CHECK_MESSAGE(std::filesystem::exists(info.file), info.file);
  }
  CHECK(infos[0].name == "NVRTC");
  CHECK(infos[0].version.substr(0, 3) == infos[1].version.substr(0, 3));
  CHECK(infos[1].name == "cuBLASLt");
  CHECK(infos[2].version.find("9.") == 0);
  CHECK(infos[3].name == "NCCL");
}

}  // namespace
}  // namespace meshtrain::test
