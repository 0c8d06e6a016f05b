// The loader with real files. Each case names another library: a process keeps what it has opened.
#include "backend/gpu/load.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/nccl_settings.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

struct Loaded {
  gpu::Runtime* runtime = nullptr;
  std::string reason;
  bool says(std::string_view part) const { return reason.find(part) != std::string::npos; }
};

Loaded load(const std::string& path) {
  ::setenv("MESHTRAIN_GPU_LIBRARY", path.c_str(), 1);
  Loaded loaded;
  loaded.runtime = gpu::load_runtime(loaded.reason);
  ::unsetenv("MESHTRAIN_GPU_LIBRARY");
  return loaded;
}

// Whether a library of that name is in this process.
bool has_library(const std::string& name) {
  std::ostringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  return maps.str().find("/" + name) != std::string::npos;
}

TEST_CASE("what NCCL reads is set where it is not and nothing else") {
  for (const char* name : {"NCCL_NVLS_ENABLE", "NCCL_RUNTIME_CONNECT", "NCCL_ALGO", "NCCL_PROTO"})
    ::unsetenv(name);
  gpu::set_up_environment();
  CHECK(std::string(std::getenv("NCCL_NVLS_ENABLE")) == "0");
  CHECK(std::string(std::getenv("NCCL_RUNTIME_CONNECT")) == "0");
  CHECK(std::getenv("NCCL_ALGO") == nullptr);
  CHECK(std::getenv("NCCL_PROTO") == nullptr);
  CHECK_FALSE(nccl_sums_in_switch());
  ::setenv("NCCL_NVLS_ENABLE", "1", 1);
  gpu::set_up_environment();
  CHECK(nccl_sums_in_switch());  // the user's word
  ::unsetenv("NCCL_NVLS_ENABLE");
  CHECK_FALSE(nccl_sums_in_switch());
}

TEST_CASE("a library that is missing is named with the way to it") {
  const TempFolder folder;
  const Loaded named = load(folder.file("absent.so"));
  CHECK(named.runtime == nullptr);
  CHECK(named.says("cannot load " + folder.file("absent.so")));
  const Loaded beside = load("");  // beside this test there is none
  CHECK(beside.runtime == nullptr);
  CHECK(beside.says("libmeshtrain_cuda.so is missing: it belongs beside the program, in /"));
  CHECK(beside.says("$MESHTRAIN_GPU_LIBRARY"));
}

TEST_CASE("a file that is no library is refused in the loader's words") {
  const TempFolder folder;
  const Loaded loaded = load(folder.write("text.so", "not a library"));
  CHECK(loaded.runtime == nullptr);
  CHECK(loaded.says("text.so"));
  CHECK(loaded.says("file too short"));
}

TEST_CASE("another library and another build are distinguished") {
  const Loaded other = load("libm.so.6");
  CHECK(other.runtime == nullptr);
  CHECK(other.says("libm.so.6 is not meshtrain's GPU library: it has no meshtrain_gpu_runtime"));
  const Loaded build = load(MESHTRAIN_OTHER_BUILD);
  CHECK(build.runtime == nullptr);
  CHECK(build.says("belongs to another build of meshtrain"));
}

TEST_CASE("the CUDA library loads without a driver and says what it lacks") {
  const Loaded loaded = load(MESHTRAIN_CUDA_LIBRARY);
  if (loaded.runtime != nullptr) {
    std::string reason;
    CHECK(loaded.runtime->device_count(reason) > 0);
    CHECK(!loaded.runtime->info(0).name.empty());
  } else {
    const bool is_known =
        loaded.says("there is no NVIDIA driver here") || loaded.says("the NVIDIA driver");
    CHECK_MESSAGE(is_known, loaded.reason);
  }
  // The large libraries wait until something is computed.
  for (const char* name : {"libcublasLt.so", "libcudnn.so", "libcudnn_graph.so"})
    CHECK_MESSAGE(!has_library(name), name);
}

// Types are the same on both sides although neither exports them.
TEST_CASE("what the library throws is caught as what it is") {
  void* const library = ::dlopen(MESHTRAIN_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto entry = reinterpret_cast<gpu::EntryPoint>(::dlsym(library, gpu::kEntryPoint));
  const bool has_entry = entry != nullptr;
  REQUIRE(has_entry);
  CHECK(entry(gpu::kAbi + 1) == nullptr);
  gpu::Runtime* const runtime = entry(gpu::kAbi);
  REQUIRE(runtime != nullptr);
  CHECK_THROWS_AS(runtime->info(99), RuntimeFailure);  // no machine has so many
  const Caught error = caught([&] { runtime->open(99, {}); });
  CHECK(error.exit_code == 4);
  CHECK(error.says("gpu:99"));
  std::string reason;
  const bool has_gpu = runtime->device_count(reason) > 0;
  CHECK(error.says(has_gpu ? "cuDeviceGet failed: " : reason));
}

}  // namespace
}  // namespace meshtrain::test
