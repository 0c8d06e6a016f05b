// The CUDA library itself: memory, plans as graphs and as calls, on the fake driver.
#include <cstring>

#include "backend/gpu/lowering.h"
#include "backend/kernel_spec.h"
#include "base/error.h"
#include "fake_gpu.h"

namespace meshtrain::test {
namespace {

constexpr int64_t kCount = 1000;

struct Arrays {
  explicit Arrays(gpu::Device& device)
      : device(device),
        x(device.allocate(kCount * 4)),
        y(device.allocate(kCount * 4)),
        sum(device.allocate(4)) {}
  ~Arrays() {
    for (std::byte* memory : {x, y, sum})
      device.free(memory);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  gpu::Device& device;
  std::byte *x, *y, *sum;
};

// y += x, then sum = the sum of y.
std::vector<gpu::Command> sum_commands(const Arrays& arrays) {
  gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
  const View x = contiguous_view(arrays.x, DType::kFloat32, {kCount});
  const View y = contiguous_view(arrays.y, DType::kFloat32, {kCount});
  lowering.lower(StepSpec{"add"});
  lowering.lower(TapeSpec{{kCount}, {x, y}, {{"add", {0, 1}, DType::kFloat32}}, {{0, y}}});
  lowering.lower(StepSpec{"sum"});
  lowering.lower(
      ReduceSpec{Reduction::kSum, y, {true}, contiguous_view(arrays.sum, DType::kFloat32, {})});
  return lowering.take();
}

float read(gpu::Device& device, const std::byte* memory) {
  float value = 0;
  device.download(&value, memory, 4);
  return value;
}

TEST_CASE("plans compute the same as graphs and as single calls in every order") {
  for (const bool use_graph : {false, true}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(use_graph);
      CAPTURE(seed);
      set_order(seed);
      gpu::DeviceOptions options;
      options.use_graph = use_graph;
      const auto device = open_fake_gpu(options);
      const Arrays arrays(*device);
      const auto pinned = device->allocate_pinned(kCount * 4);
      const auto result = device->allocate_pinned(4);
      const auto event = device->make_event();
      const auto plan = device->make_plan(sum_commands(arrays), {}, 0, 1);
      float expected = 0;
      for (int round = 1; round <= 4; ++round) {
        const std::vector<float> x(kCount, static_cast<float>(round));
        std::memcpy(pinned->data(), x.data(), kCount * 4);
        device->enqueue_upload(arrays.x, pinned->data(), kCount * 4);
        plan->run();
        device->enqueue_download(result->data(), arrays.sum, 4);
        event->record();
        event->wait();
        expected += static_cast<float>(round) * kCount;
        float got = 0;
        std::memcpy(&got, result->data(), 4);
        CHECK(got == expected);
      }
      CHECK(read(*device, arrays.sum) == expected);
    }
    check_clean();
  }
  set_order(0);
}

TEST_CASE("a device tells what is free before a run opens it") {
  const gpu::DeviceInfo info = fake_runtime()->info(1);
  CHECK(info.total_bytes == int64_t{16} << 30);
  CHECK(info.free_bytes == info.total_bytes);
  check_clean();
}

TEST_CASE("two devices take turns in one thread") {
  set_order(2);
  for (const bool use_graph : {false, true}) {
    gpu::DeviceOptions options;
    options.use_graph = use_graph;
    const auto first = open_fake_gpu(options), second = fake_runtime()->open(1, options);
    const Arrays one(*first), two(*second);
    const std::vector<float> ones(kCount, 1), twos(kCount, 2);
    first->upload(one.x, ones.data(), kCount * 4);
    second->upload(two.x, twos.data(), kCount * 4);
    const auto plan = first->make_plan(sum_commands(one), {}, 0, 1);
    const auto other = second->make_plan(sum_commands(two), {}, 0, 1);
    const auto event = first->make_event(), other_event = second->make_event();
    for (int round = 0; round < 2; ++round) {
      plan->run();
      other->run();
      event->record();
      other_event->record();
    }
    event->wait();
    other_event->wait();
    CHECK(read(*first, one.sum) == 2 * kCount);
    CHECK(read(*second, two.sum) == 4 * kCount);
    CHECK(first->info().place == "0000:00:00.0");
    CHECK(second->info().place == "0000:01:00.0");
  }
  check_clean();
  set_order(0);
}

TEST_CASE("a plan that goes while it runs is waited for") {
  set_order(0);
  {
    const auto device = open_fake_gpu();
    const Arrays arrays(*device);
    device->make_plan(sum_commands(arrays), {}, 0, 1)->run();
  }
  check_clean();
}

TEST_CASE("memory that is used up ends in both sizes") {
  {
    const auto device = open_fake_gpu();
    std::string text;
    try {
      device->allocate(int64_t{1} << 40);
    } catch (const RuntimeFailure& failure) {
      CHECK(failure.exit_code() == ExitCode::kMesh);
      text = failure.what();
    }
    CHECK(text == "gpu:0 (Fake GPU): out of memory: 1.0 TiB asked for, 16 GiB of 16 GiB are free");
  }
  check_clean();
}

}  // namespace
}  // namespace meshtrain::test
