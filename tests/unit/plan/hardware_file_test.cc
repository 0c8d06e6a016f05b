// Files of hardware: what they change, add, and refuse.
#include "plan/hardware_file.h"

#include <doctest/doctest.h>

#include "engine/devices.h"
#include "plan/gpu_hardware.h"
#include "support/temp_folder.h"

using namespace meshtrain;

namespace {

std::vector<Hardware> load(const std::string& yaml) {
  const test::TempFolder folder;
  return load_hardware({folder.write("own.yaml", yaml), {}});
}

test::Caught problem_of(const std::string& yaml) {
  return test::caught([&] { load(yaml); });
}

}  // namespace

TEST_CASE("without a file there is the table") {
  CHECK(load_hardware({}).size() == known_hardware().size());
  for (const char* name : {"A100", "h100", "H200", "b200", "CPU"}) {
    CHECK(find_hardware(known_hardware(), name) != nullptr);
  }
  CHECK(find_hardware(known_hardware(), "H1") == nullptr);
  const Hardware& h200 = *find_hardware(known_hardware(), "H200");
  CHECK(h200.matmul[static_cast<size_t>(MatmulType::kBFloat16)] == doctest::Approx(790e12));
  CHECK(h200.memory_rate == doctest::Approx(4.3e12));
  CHECK(h200.link_rate == doctest::Approx(370e9));
}

TEST_CASE("a device's own name says which hardware it is") {
  const auto name_of = [](const char* device) -> std::string {
    const Hardware* found = hardware_of_device(device);
    return found == nullptr ? "" : found->name;
  };
  CHECK(name_of("NVIDIA H100 80GB HBM3") == "H100");
  CHECK(name_of("NVIDIA A100-SXM4-80GB") == "A100");
  CHECK(name_of("Tesla V100-SXM2-32GB") == "V100");
  CHECK(name_of("NVIDIA L40S") == "L40S");
  CHECK(name_of("NVIDIA GeForce RTX 4090") == "RTX4090");
  for (const char* other : {"NVIDIA L40", "NVIDIA T400", "NVIDIA GeForce RTX 3090", "cpu", ""}) {
    CHECK(name_of(other) == "");
  }
}

TEST_CASE("a file changes any value of a known device and leaves the others") {
  const std::vector<Hardware> table = load(R"(h100:
  memory: 94 GB
  memory_rate: 3e12
  peak: {bfloat16: 1e15}
  matmul: {bfloat16: 6e14, tf32: 3e14}
  kernel: 2e-6
  per_host: 4
  link:
    calls: {all_gather: {start: 1e-5, rate: 3e11}, all_to_all: {}}
    rate: 2e11
    hop: [1e-6, 2e-6, 3e-6]
    tree_hop: 4e-6
  switch: {rate: 0, start: 1e-5}
  network: {rate: 2.3e10, post: 2e-6, calls: {all_reduce_fast: {start: 3e-5}}}
  start: 5e-6
  tree_start: [1e-6, 1e-6, 2e-6]
  share: [1, 0.9, 1]
  ll_rate: [1e11, 5e10, 4e10]
  tree_share: 0.8
  jitter: 0.01
)");
  CHECK(table.size() == known_hardware().size());
  const Hardware& before = *find_hardware(known_hardware(), "H100");
  const Hardware& h = *find_hardware(table, "H100");
  CHECK(h.name == "H100");
  CHECK(h.memory == 94'000'000'000);
  CHECK(h.memory_rate == 3e12);
  CHECK(h.peak[static_cast<size_t>(MatmulType::kBFloat16)] == 1e15);
  CHECK(h.matmul[static_cast<size_t>(MatmulType::kTf32)] == 3e14);
  CHECK(h.matmul[static_cast<size_t>(MatmulType::kFloat16)] ==
        before.matmul[static_cast<size_t>(MatmulType::kFloat16)]);
  CHECK(h.kernel == 2e-6);
  CHECK(h.per_host == 4);
  CHECK(h.link_rate == 2e11);
  CHECK(h.link_hop == ByProtocol{1e-6, 2e-6, 3e-6});
  CHECK(h.link_tree_hop == ByProtocol{4e-6, 4e-6, 4e-6});
  CHECK(h.switch_rate == 0);
  CHECK(h.switch_start == 1e-5);
  CHECK(h.network_rate == 2.3e10);
  CHECK(h.network_hop == before.network_hop);
  CHECK(h.network_post == 2e-6);
  REQUIRE(h.link_calls.size() == 1);
  CHECK(h.link_calls.at("all_gather").start == 1e-5);
  CHECK(h.link_calls.at("all_gather").rate == 3e11);
  REQUIRE(h.network_calls.size() == 1);
  CHECK(h.network_calls.at("all_reduce_fast").start == 3e-5);
  CHECK(h.network_calls.at("all_reduce_fast").rate == 0);
  CHECK(h.ring_start == ByProtocol{5e-6, 5e-6, 5e-6});
  CHECK(h.tree_start == ByProtocol{1e-6, 1e-6, 2e-6});
  CHECK(h.share[1] == 0.9);
  CHECK(h.ll_rate[2] == 4e10);
  CHECK(h.tree_share == 0.8);
  CHECK(h.jitter == 0.01);
}

TEST_CASE("a file adds a device like another or a whole one") {
  const std::vector<Hardware> table = load(R"(X9: {like: H200, memory: 192 GB}
X10: {like: x9, per_host: 16}
Own:
  memory_rate: 1e11
  matmul: {float64: 1e12, float32: 1e12, tf32: 1e12, bfloat16: 1e12, float16: 1e12}
  link: {rate: 1e10}
  network: {rate: 1e9}
)");
  CHECK(table.size() == known_hardware().size() + 3);
  CHECK(find_hardware(table, "x10")->memory == 192'000'000'000);
  CHECK(find_hardware(table, "x10")->per_host == 16);
  CHECK(find_hardware(table, "own")->per_host == 1);
  CHECK(find_hardware(table, "H200")->memory == 141'000'000'000);
}

TEST_CASE("what a file of hardware gets wrong is said with its place") {
  CHECK(problem_of("[1, 2]").code == "E112");
  CHECK(problem_of("H100: {memmory: 3}").says("did you mean `memory`?"));
  CHECK(problem_of("H100: {memory: lots}").says("`lots` is no size"));
  CHECK(problem_of("H100: {memory_rate: -1}").says("must be above 0"));
  CHECK(problem_of("H100: {link: {hop: [1, 2]}}").says("one number or three"));
  CHECK(problem_of("H100: {link: {calls: {all_reduce: {start: 1}}}}").says("all_reduce_fixed"));
  CHECK(problem_of("H100: {network: {calls: {all_to_all: {start: -1}}}}").says("`start`"));
  CHECK(problem_of("H100: {share: 1.5}").says("at most 1"));
  CHECK(problem_of("H100: {per_host: 0}").says("per_host"));
  CHECK(problem_of("X: {like: H300}").says("there is no hardware `H300`"));
  CHECK(problem_of("X: {memory: 80 GB}").says("write `like: H100`"));
  CHECK(problem_of("9X: {like: H100}").says("begins with a letter"));
  CHECK(problem_of("H100: {per_host: 4}\nH100: {per_host: 2}").code == "E109");
  CHECK(problem_of("H100:\n  link:\n    rat: 3\n").says("own.yaml:3:5"));
  CHECK_THROWS_AS(load_hardware({"/nowhere/hardware.yaml", {}}), ConfigError);
}

TEST_CASE("devices on paper name their hardware in any case") {
  Diagnostics diagnostics;
  const auto request = [&](const std::string& text) {
    return parse_devices({text, {}}, diagnostics);
  };
  const DeviceRequest h100 = request("64xh100");
  CHECK(h100.count == 64);
  CHECK(h100.describe(64) == "64 x h100 (on paper)");
  CHECK(requested_hardware(h100, known_hardware())->name == "H100");
  CHECK(requested_hardware(request("8xCPU"), known_hardware())->name == "cpu");
  CHECK(requested_hardware(request("cpu:8"), known_hardware())->name == "cpu");
  CHECK(requested_hardware(request("auto"), known_hardware())->name == "cpu");
  CHECK(requested_hardware(request("gpu:0x8"), known_hardware()) == nullptr);
  CHECK_FALSE(diagnostics.has_errors());
  CHECK_THROWS_AS(requested_hardware(request("8xH300"), known_hardware()), ConfigError);
  request("0xH100");
  CHECK(diagnostics.num_errors() == 1);
  request("70000xH100");
  CHECK(diagnostics.num_errors() == 2);
}

TEST_CASE("GPUs are found by the names of their driver") {
  const auto name_of = [](std::string_view driver_name) {
    const Hardware* const found = hardware_of_gpu(known_hardware(), driver_name);
    return found == nullptr ? std::string("none") : found->name;
  };
  CHECK(name_of("NVIDIA H100 80GB HBM3") == "H100");
  CHECK(name_of("NVIDIA H200") == "H200");
  CHECK(name_of("NVIDIA A100-SXM4-80GB") == "A100");
  CHECK(name_of("NVIDIA GeForce RTX 4090") == "RTX4090");
  CHECK(name_of("NVIDIA L40S") == "L40S");
  CHECK(name_of("Tesla T4") == "T4");
  CHECK(name_of("NVIDIA GeForce RTX 3060") == "none");
  CHECK(name_of("cpu") == "none");
  CHECK(name_of("") == "none");
}

TEST_CASE("devices on paper cannot be opened") {
  Diagnostics diagnostics;
  const DeviceRequest request = parse_devices({"64xH100", {}}, diagnostics);
  const test::Caught error = test::caught([&] { open_device(request, {}); });
  CHECK(error.code == "E621");
  CHECK(error.exit_code == static_cast<int>(ExitCode::kMesh));
}
