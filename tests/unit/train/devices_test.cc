// Which GPUs are taken, for how many processes, and what `auto` makes of a machine.
#include "train/devices.h"

#include <doctest/doctest.h>

#include <filesystem>

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

std::vector<int> automatic(int64_t devices, const Surroundings& around) {
  DeviceRequest request = parsed("auto");
  settle_auto(request, devices, around);
  CHECK(request.is_gpu == !request.gpus.empty());
  return request.gpus;
}

TEST_CASE("auto takes GPUs where there is one for each device") {
  CHECK(automatic(1, {.gpus = 8}) == std::vector<int>{0});
  CHECK(automatic(4, {.gpus = 8}) == std::vector<int>{0, 1, 2, 3});
  CHECK(automatic(8, {.gpus = 4}).empty());
  CHECK(automatic(1, {.gpus = 0}).empty());
  // Processes that a launcher started: 8 on two hosts of 4.
  CHECK(automatic(8, {.processes = 8, .local_processes = 4, .gpus = 4}) ==
        std::vector<int>{0, 1, 2, 3});
  CHECK(automatic(16, {.processes = 8, .local_processes = 4, .gpus = 4}).empty());
  CHECK(automatic(8, {.processes = 8, .local_processes = 8, .gpus = 4}).empty());
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
