// Memory, streams, events and plans of a real GPU.
#include <cstring>

#include "backend/gpu/lowering.h"
#include "base/error.h"
#include "cuda_device.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

constexpr int64_t kCount = int64_t{1} << 22;

// to[i] = from[i] + to[i] of float32.
std::vector<gpu::Command> add_commands(std::byte* from, std::byte* to, int64_t count) {
  gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
  lowering.lower(StepSpec{"sum"});
  const View a = contiguous_view(from, DType::kFloat32, {count});
  const View b = contiguous_view(to, DType::kFloat32, {count});
  lowering.lower(TapeSpec{{count}, {a, b}, {{"add", {0, 1}, DType::kFloat32}}, {{0, b}}});
  return lowering.take();
}

TEST_CASE("a device tells what it is") {
  const auto device = open_cuda_device();
  if (device == nullptr)
    return;
  const gpu::DeviceInfo info = device->info();
  CHECK(!info.name.empty());
  CHECK(info.compute >= 75);
  CHECK(info.free_bytes > 0);
  CHECK(info.free_bytes <= info.total_bytes);
  CHECK(info.driver.find('.') != std::string::npos);
}

TEST_CASE("memory is zero and aligned and keeps what is written") {
  const auto device = open_cuda_device();
  if (device == nullptr)
    return;
  for (int round = 0; round < 3; ++round) {
    std::byte* memory = device->allocate(1000);
    CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
    CHECK(download<uint8_t>(*device, memory, 1000) == std::vector<uint8_t>(1000));
    const std::vector<uint8_t> bytes(1000, 7);
    device->upload(memory, bytes.data(), 1000);
    CHECK(download<uint8_t>(*device, memory, 1000) == bytes);
    device->free(memory);
  }
  device->free(device->allocate(0));
}

TEST_CASE("more memory than there is gives the sizes and leaves the device usable") {
  const auto device = open_cuda_device();
  if (device == nullptr)
    return;
  const Caught error = caught([&] { device->allocate(int64_t{1} << 46); });
  CHECK(error.exit_code == 4);
  CHECK(error.says("out of memory: 64 TiB asked for, "));
  CHECK(error.says(" are free"));
  std::byte* memory = device->allocate(16);
  CHECK(download<float>(*device, memory, 4) == std::vector<float>(4));
  device->free(memory);
}

TEST_CASE("uploads by their own stream come before the plans that follow them") {
  for (const bool use_graph : {false, true}) {
    gpu::DeviceOptions options;
    options.use_graph = use_graph;
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    std::byte* from = device->allocate(kCount * 4);
    std::byte* to = device->allocate(kCount * 4);
    const auto pinned = device->allocate_pinned(kCount * 4);
    const auto back = device->allocate_pinned(kCount * 4);
    const auto plan = device->make_plan(add_commands(from, to, kCount), {}, 0, 1);
    const auto event = device->make_event();
    float expected = 0;
    for (int round = 1; round <= 5; ++round) {
      const std::vector<float> values(static_cast<size_t>(kCount), static_cast<float>(round));
      std::memcpy(pinned->data(), values.data(), values.size() * 4);
      device->enqueue_upload(from, pinned->data(), kCount * 4);
      plan->run();
      device->enqueue_download(back->data(), to, kCount * 4);
      event->record();
      event->wait();
      expected += static_cast<float>(round);
      float first = 0, last = 0;
      std::memcpy(&first, back->data(), 4);
      std::memcpy(&last, back->data() + (kCount - 1) * 4, 4);
      CHECK(first == expected);
      CHECK(last == expected);
    }
    device->synchronize();
    device->free(from);
    device->free(to);
  }
}

TEST_CASE("a plan of several steps reads each step's part of a window") {
  for (const bool use_graph : {false, true}) {
    gpu::DeviceOptions options;
    options.use_graph = use_graph;
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    std::vector<float> slots(8 * 64);
    for (size_t slot = 0; slot < 8; ++slot)
      slots[slot * 64] = static_cast<float>(1 << slot);
    std::byte* from = upload(*device, slots);
    std::byte* to = device->allocate(256);
    const auto commands = add_commands(from, to, 64);
    const std::vector<gpu::Window> windows = {{from, 256, 256}};
    const auto early = device->make_plan(commands, windows, 0, 3);
    const auto late = device->make_plan(commands, windows, 5, 2);
    early->run();
    CHECK(download<float>(*device, to, 1)[0] == 1 + 2 + 4);
    late->run();
    CHECK(download<float>(*device, to, 1)[0] == 1 + 2 + 4 + 32 + 64);
    device->synchronize();
    device->free(from);
    device->free(to);
  }
}

TEST_CASE("kernels come from the cache folder the second time") {
  const TempFolder folder;
  gpu::DeviceOptions options;
  options.cache_dir = folder.path();
  for (int round = 0; round < 2; ++round) {
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    std::byte* from = upload(*device, std::vector<float>(100, 2));
    std::byte* to = upload(*device, std::vector<float>(100, 3));
    device->make_plan(add_commands(from, to, 100), {}, 0, 1)->run();
    CHECK(download<float>(*device, to, 100) == std::vector<float>(100, 5));
    CHECK(folder.num_files() == 1);
    device->free(from);
    device->free(to);
  }
}

}  // namespace
}  // namespace meshtrain::test
