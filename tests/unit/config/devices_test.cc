// What `devices` asks for.
#include "config/devices.h"

#include <doctest/doctest.h>

namespace meshtrain {
namespace {

std::optional<DeviceRequest> parsed(const std::string& text) {
  Diagnostics diagnostics;
  DeviceRequest out = parse_devices({text, {}}, diagnostics);
  CHECK(diagnostics.num_errors() <= 1);
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
  for (const char* wrong :
       {"gpu:", "gpu:,", "gpu:0-", "gpu:-1", "gpu:3-1", "gpu:0,0", "gpu:0-2,1", "gpu:x2", "gpux2",
        "gpus", "gpu:0x", "gpu:0x0", "gpu:all,1", "gpu:0-9999999"}) {
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

TEST_CASE("the same kind of devices is named in another number") {
  CHECK(parsed("cpu")->as_many(8) == "cpu:8");
  CHECK(parsed("cpu:2")->as_many(8) == "cpu:8");
  CHECK(parsed("gpu")->as_many(8) == "gpu:0x8");
  CHECK(parsed("gpu:3")->as_many(2) == "gpu:3x2");
  CHECK(parsed("gpu:0-3x2")->as_many(4) == "gpu:0-3");
  CHECK(parsed("gpu:all")->as_many(2) == "gpu:0-1");
  CHECK(parsed("64xH100")->as_many(8) == "8xH100");
  CHECK(parsed("H100")->as_many(8) == "8xH100");  // as many as the mesh has
  CHECK_FALSE(parsed("H100")->num_devices(1));
}

TEST_CASE("devices that are none are refused") {
  for (const char* wrong : {"", "tpu:4", "cpu:", "cpu:0", "cpu:-1", "cpu:65537", "cpu:8x", "cpux",
                            "8x", "xH100", "0xH100", "8x9", "-1xH100", "70000xH100", "AUTO"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parsed(wrong));
  }
}

}  // namespace
}  // namespace meshtrain
