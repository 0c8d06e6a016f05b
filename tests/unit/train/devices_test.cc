// What `devices` asks for: which GPUs, how many processes, and what `auto` makes of a machine.
#include "train/devices.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "support/temp_folder.h"

namespace meshtrain {
namespace {

std::optional<DeviceRequest> parsed(const std::string& text) {
  Diagnostics diagnostics;
  DeviceRequest out = parse_devices({text, {}}, diagnostics);
  return diagnostics.has_errors() ? std::nullopt : std::optional(out);
}

std::vector<int> gpus_of(const std::string& text) {
  const std::optional<DeviceRequest> request = parsed(text);
  REQUIRE_MESSAGE(request, text);
  CHECK(request->is_gpu);
  return request->gpus;
}

TEST_CASE("GPUs are named by numbers and ranges and all") {
  CHECK(gpus_of("gpu") == std::vector<int>{0});
  CHECK(gpus_of("gpu:3") == std::vector<int>{3});
  CHECK(gpus_of("gpu:0-3") == std::vector<int>{0, 1, 2, 3});
  CHECK(gpus_of("gpu:2,0,5-6") == std::vector<int>{2, 0, 5, 6});
  CHECK(gpus_of("gpu:all").empty());
  CHECK(gpus_of("gpu:0-1x4") == std::vector<int>{0, 1});
  for (const char* wrong : {"gpu:", "gpu:,", "gpu:0-", "gpu:-1", "gpu:3-1", "gpu:0,0", "gpu:0-2,1",
                            "gpu:x2", "gpu:0x", "gpu:0x0", "gpu:all,1", "gpu:0-9999999"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parsed(wrong));
  }
}

TEST_CASE("devices are counted over all GPUs of one process and over all processes") {
  CHECK(parsed("gpu:0-3")->num_devices(1) == 4);
  CHECK(parsed("gpu:0,2x3")->num_devices(1) == 6);
  CHECK(parsed("gpu:0x8")->num_devices(1) == 8);
  CHECK(parsed("gpu:0x8")->num_devices(4) == 32);  // as many in each
  CHECK(parsed("gpu:0-3")->num_devices(8) == 8);   // on two hosts
  CHECK(!parsed("gpu:all")->num_devices(1));
  CHECK(parsed("gpu:all")->num_devices(2) == 2);
  CHECK(parsed("cpu:8")->num_devices(4) == 8);
  CHECK(!parsed("auto")->num_devices(1));
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
  DeviceRequest request = *parsed("auto");
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
  CHECK(processes_to_start(*parsed("gpu:2")) == 1);
  CHECK(processes_to_start(*parsed("gpu:0x8")) == 1);
  CHECK(processes_to_start(*parsed("cpu:8")) == 1);
  ::setenv("MESHTRAIN_GPU_LIBRARY", "/nowhere.so", 1);
  CHECK_THROWS_AS(processes_to_start(*parsed("gpu:0-3")), ConfigError);
  CHECK_THROWS_AS(processes_to_start(*parsed("gpu:all")), ConfigError);
}

}  // namespace
}  // namespace meshtrain
