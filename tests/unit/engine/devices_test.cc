// Which GPUs are taken, for how many processes, and what `auto` makes of a machine.
#include "engine/devices.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "engine/distribution.h"
#include "support/engine_case.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

DeviceRequest parsed(const std::string& text) {
  Diagnostics diagnostics;
  return parse_devices({text, {}}, diagnostics);
}

TEST_CASE("GPUs are counted by the files of the driver and what CUDA may see") {
  const test::TempFolder folder;
  CHECK(count_gpus(folder.path(), nullptr) == 0);
  for (const char* file : {"nvidia0", "nvidia1", "nvidia3", "nvidia-uvm", "nvidia"})
    folder.write(file, "");
  CHECK(count_gpus(folder.path(), nullptr) == 0);  // no driver
  folder.write("nvidiactl", "");
  CHECK(count_gpus(folder.path(), nullptr) == 3);
  CHECK(count_gpus(folder.path(), "2,0") == 2);
  CHECK(count_gpus(folder.path(), "0,1,2,3,4") == 3);
  CHECK(count_gpus(folder.path(), "0,-1,2") == 1);
  CHECK(count_gpus(folder.path(), "") == 0);
  CHECK(count_gpus(folder.path(), "GPU-8a2f,MIG-77") == 2);
}

TEST_CASE("compiled kernels are kept where nobody else can write") {
  const test::TempFolder folder;
  const std::string gpu = folder.file("cache/gpu");
  ::setenv("MESHTRAIN_CACHE", folder.file("cache").c_str(), 1);
  const auto warned = [] {
    Diagnostics warnings;
    const std::string found = gpu_cache_folder(&warnings);
    CHECK(found.empty() == (warnings.num_warnings() == 1));
    return found.empty() ? warnings.list().at(0).code + " " + warnings.list()[0].message : found;
  };
  CHECK(warned() == gpu);
  CHECK(static_cast<int>(std::filesystem::status(gpu).permissions()) == 0700);
  const std::string refused = "W622 compiled kernels are not kept: others can write `" + gpu + "`";
  for (const int mode : {0777, 0720, 0702}) {
    std::filesystem::permissions(gpu, static_cast<std::filesystem::perms>(mode));
    CHECK(warned() == refused);
    CHECK(gpu_cache_folder().empty());
  }
  std::filesystem::permissions(gpu, static_cast<std::filesystem::perms>(0755));
  CHECK(warned() == gpu);
  if (::geteuid() == 0) {
    REQUIRE(::chown(gpu.c_str(), 4321, 4321) == 0);
    CHECK(warned() == refused);
  }
  ::unsetenv("MESHTRAIN_CACHE");
}

// What `auto` becomes, and the warning with its lines.
std::string automatic(int64_t devices, const LocalResources& resources) {
  DeviceRequest request = parsed("auto");
  Diagnostics diagnostics;
  resolve_auto_devices(request, devices, resources, diagnostics);
  std::string out = request.describe(devices);
  for (const Diagnostic& warning : diagnostics.list()) {
    CHECK(warning.code == "W620");
    out += "; " + warning.message;
    for (const std::string& note : warning.notes)
      out += "; " + note;
  }
  return out;
}

TEST_CASE("auto takes GPUs where there is one for each device") {
  CHECK(automatic(1, {.gpus = 8}) == "gpu:0");
  CHECK(automatic(4, {.gpus = 8}) == "4 x gpu");
  CHECK(automatic(1, {.gpus = 0}) == "1 x cpu (virtual)");
  // Processes that a launcher started: 8 on two hosts of 4, and one on each of 8 hosts.
  CHECK(automatic(8, {.processes = 8, .local_processes = 4, .gpus = 4}) == "8 x gpu");
  CHECK(automatic(8, {.processes = 8, .local_processes = 1, .gpus = 1}) == "8 x gpu");
}

TEST_CASE("processes of a host that were given a GPU each take it") {
  LocalResources task{.processes = 8, .local_processes = 4, .gpus = 1, .has_own_gpu = true};
  CHECK(automatic(8, task) == "8 x gpu");
  task.has_own_gpu = false;
  CHECK(automatic(8, task).starts_with("8 x cpu (virtual); the GPU here is not used: 4 processes"));
  CHECK(automatic(16, {.processes = 8, .local_processes = 4, .gpus = 1, .has_own_gpu = true})
            .starts_with("16 x cpu (virtual); "));
  CHECK(automatic(8, {.gpus = 1, .has_own_gpu = true}).starts_with("8 x cpu (virtual); "));
}

TEST_CASE("GPUs that this program has no library for are reported") {
  CHECK(automatic(8, {.gpus_without_library = 1, .no_library = "libx.so is missing"}) ==
        "8 x cpu (virtual); the GPU here is not used: libx.so is missing; help: `devices: cpu:8` "
        "for the processor, without this warning");
  CHECK(automatic(2, {.gpus_without_library = 0, .no_library = "libx.so is missing"}) ==
        "2 x cpu (virtual)");
}

TEST_CASE("GPUs that auto does not use are reported with what would use them") {
  CHECK(automatic(8, {.gpus = 4}) ==
        "8 x cpu (virtual); the 4 GPUs here are not used: the mesh has 8 devices; help: `devices: "
        "gpu:0-3x2` for virtual devices on them; help: `devices: cpu:8` for the processor, without "
        "this warning");
  CHECK(automatic(8, {.gpus = 1}).find("`devices: gpu:0x8` for virtual devices on it") !=
        std::string::npos);
  CHECK(automatic(9, {.gpus = 4}).find("for virtual devices") == std::string::npos);
  CHECK(automatic(16, {.processes = 8, .local_processes = 4, .gpus = 4}) ==
        "16 x cpu (virtual); the 4 GPUs here are not used: each process has 2 devices; help: "
        "`devices: gpu:allx2` for virtual devices on each GPU; help: `devices: cpu:16` for the "
        "processor, without this warning");
  const std::string crowded = automatic(8, {.processes = 8, .local_processes = 8, .gpus = 4});
  CHECK(crowded.find("not used: 8 processes are on this host") != std::string::npos);
  CHECK(crowded.find("as many processes on a host as it has GPUs") != std::string::npos);
}

TEST_CASE("a mesh without a shape has all devices") {
  const auto all = [](const char* devices, const LocalResources& resources) {
    return all_devices(parsed(devices), resources);
  };
  CHECK(all("auto", {}) == 1);
  CHECK(all("auto", {.gpus = 4}) == 4);
  CHECK(all("auto", {.processes = 2, .local_processes = 2, .gpus = 8}) == 2);
  CHECK(all("auto", {.processes = 16, .local_processes = 8, .gpus = 0}) == 16);
  CHECK(all("gpu:all", {.gpus = 8}) == 8);
  CHECK(all("gpu:allx2", {.gpus = 8}) == 16);
  CHECK(all("gpu:all", {.gpus = 0}) == 1);
  CHECK(all("gpu:allx2", {.processes = 4, .local_processes = 4, .gpus = 4}) == 8);
  CHECK(all("gpu:1,3", {.gpus = 8}) == 2);
  CHECK(all("cpu:8", {.gpus = 4}) == 8);
  CHECK(all("64xH100", {.gpus = 4}) == 64);
}

// The driver's files of four GPUs.
class FourGpus {
 public:
  FourGpus() {
    for (const char* file : {"nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"})
      folder_.write(file, "");
    ::setenv("MESHTRAIN_DEVICE_FOLDER", folder_.path().c_str(), 1);
    ::setenv("MESHTRAIN_GPU_LIBRARY", "/proc/self/exe", 1);  // some file: it is not opened
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  ~FourGpus() {
    for (const char* name :
         {"MESHTRAIN_DEVICE_FOLDER", "MESHTRAIN_GPU_LIBRARY", "CUDA_VISIBLE_DEVICES"})
      ::unsetenv(name);
  }
  FourGpus(const FourGpus&) = delete;
  FourGpus& operator=(const FourGpus&) = delete;

 private:
  test::TempFolder folder_;
};

Distribution distribution_of(const std::string& distribution, int64_t batch,
                             Diagnostics& diagnostics) {
  const Config config = test::config_from(
      "model: {layers: [Input: {shape: [4]}, Dense: 2]}\n"
      "compile: {loss: mse}\n"
      "data: {train: {source: random, samples: 8, shape: [4]}}\n" +
      distribution + fmt::format("fit: {{batch_size: {}}}\n", batch));
  return make_distribution(config, 1, diagnostics);
}

TEST_CASE("a strategy without a shape takes all GPUs and a batch that does not split is reported") {
  const FourGpus gpus;
  for (const char* text : {"", "distribution: {type: DataParallel}\n"}) {
    Diagnostics diagnostics;
    const Distribution all = distribution_of(text, 8, diagnostics);
    CHECK(diagnostics.list().empty());
    CHECK(all.mesh.shape() == std::vector<int64_t>{4});
    CHECK(all.devices.describe(4) == "4 x gpu");
  }
  Diagnostics odd;
  distribution_of("", 6, odd);
  REQUIRE(odd.list().size() == 1);
  CHECK(odd.list()[0].message == "a batch of 6 does not split over `batch` = 4");
  CHECK(odd.list()[0].notes.back() ==
        "help: or `devices: gpu:0-2`: `auto` takes all 4 GPUs that are here");
  ::setenv("CUDA_VISIBLE_DEVICES", "2", 1);
  Diagnostics one;
  CHECK(distribution_of("", 7, one).devices.describe(1) == "gpu:0");
  CHECK(one.list().empty());
}

TEST_CASE("one process for each GPU is started only where there are several") {
  CHECK(processes_to_start(parsed("gpu:2")) == 1);
  CHECK(processes_to_start(parsed("gpu:0x8")) == 1);
  CHECK(processes_to_start(parsed("cpu:8")) == 1);
  ::setenv("MESHTRAIN_GPU_LIBRARY", "/nowhere.so", 1);
  CHECK_THROWS_AS(processes_to_start(parsed("gpu:0-3")), ConfigError);
  CHECK_THROWS_AS(processes_to_start(parsed("gpu:all")), ConfigError);
}

}  // namespace
}  // namespace meshtrain
