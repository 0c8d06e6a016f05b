// The CUDA library itself: memory, plans as graphs and as calls, on the fake driver.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "backend/gpu/lowering.h"
#include "backend/kernel_spec.h"
#include "base/error.h"
#include "base/file.h"
#include "fake_gpu.h"
#include "support/temp_folder.h"

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

TEST_CASE("a measured plan computes the same, and its calls follow each other") {
  for (const bool use_graph : {false, true}) {
    CAPTURE(use_graph);
    {
      gpu::DeviceOptions options;
      options.use_graph = use_graph;
      const auto device = open_fake_gpu(options);
      const Arrays arrays(*device);
      const std::vector<float> ones(kCount, 1);
      device->upload(arrays.x, ones.data(), kCount * 4);
      device->upload(arrays.y, ones.data(), kCount * 4);
      const auto plan = device->make_plan(sum_commands(arrays), {}, 0, 2);
      plan->run();
      CHECK(read(*device, arrays.sum) == 3 * kCount);
      const std::vector<gpu::CallTime> times = plan->run_timed();
      CHECK(read(*device, arrays.sum) == 5 * kCount);
      REQUIRE(times.size() >= 2);
      CHECK(times.size() % 2 == 0);
      double before = 0;
      for (size_t i = 0; i < times.size(); ++i) {
        CAPTURE(i);
        CHECK(times[i].begin == before);
        CHECK(times[i].end >= times[i].begin);
        CHECK(times[i].path == times[i % (times.size() / 2)].path);
        CHECK(times[i].kind == "");
        before = times[i].end;
      }
      plan->run();
      CHECK(read(*device, arrays.sum) == 7 * kCount);
    }
    check_clean();
  }
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

TEST_CASE("memory of the host may change once an event behind its upload has come") {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    set_order(seed);
    const auto device = open_fake_gpu();
    const Arrays arrays(*device);
    const auto pinned = device->allocate_pinned(kCount * 4);
    const auto event = device->make_event();
    for (int round = 0; round < 2; ++round) {
      std::memset(pinned->data(), round, kCount * 4);
      device->enqueue_upload(arrays.x, pinned->data(), kCount * 4);
      event->record();
      event->wait();
    }
  }
  check_clean();
  set_order(0);
}

// Batches of a b, all of `size` rows and columns, where a and b consist of ones.
struct Products {
  Products(gpu::Device& device, int64_t size, int64_t batch)
      : device(device), size(size), batch(batch), a(device.allocate(bytes())) {
    const std::vector<float> ones(static_cast<size_t>(bytes() / 4), 1);
    device.upload(a, ones.data(), bytes());
  }
  ~Products() {
    device.free(a);
    for (const auto& [bias, to] : results) {
      device.free(bias);
      device.free(to);
    }
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  int64_t bytes() const { return batch * size * size * 4; }

  // Adds a b + bias, whose elements are all equal.
  void add(gpu::GpuLowering& lowering, float bias) {
    std::byte* const row = device.allocate(size * 4);
    std::byte* const to = device.allocate(bytes());
    results.push_back({row, to});
    const std::vector<float> row_values(static_cast<size_t>(size), bias);
    device.upload(row, row_values.data(), size * 4);
    MatmulSpec s;
    s.a = s.b = a;
    s.c = to;
    s.m = s.n = s.k = s.a_row = s.b_row = s.c_row = size;
    s.a_column = s.b_column = 1;
    for (int64_t i = 0; i < batch; ++i)
      s.batches.push_back({i * size * size, i * size * size, i * size * size});
    const View c = contiguous_view(to, DType::kFloat32, {batch * size, size});
    lowering.lower(StepSpec{"product"});
    lowering.lower(s);
    lowering.lower(StepSpec{"bias", {whole_access(c, false)}});
    lowering.lower(TapeSpec{c.shape,
                            {c, {row, DType::kFloat32, c.shape, {0, 1}}},
                            {{"add", {0, 1}, DType::kFloat32}},
                            {{0, c}}});
  }

  gpu::Device& device;
  int64_t size, batch;
  std::byte* a;
  std::vector<std::pair<std::byte*, std::byte*>> results;  // bias and what it is added to
};

// Products that wait for nothing share workspaces, those of one shape a plan; each plan grows what
// the ones before have left, and these still run.
TEST_CASE("products beside each other have their own biases and workspaces that grow") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    set_order(seed);
    const auto device = open_fake_gpu();
    std::vector<std::unique_ptr<Products>> all;
    std::vector<std::unique_ptr<gpu::Plan>> plans;
    for (const int64_t size : {64, 128, 65}) {
      Products& products =
          *all.emplace_back(std::make_unique<Products>(*device, size, size == 65 ? 3 : 1));
      gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
      for (int i = 0; i < 7; ++i)
        products.add(lowering, static_cast<float>(i));
      plans.push_back(device->make_plan(lowering.take(), {}, 0, 1));
      for (const auto& plan : plans)
        plan->run();
      for (size_t i = 0; i < products.results.size(); ++i) {
        CAPTURE(size);
        CAPTURE(i);
        const std::byte* const to = products.results[i].second;
        const float expected = static_cast<float>(size) + static_cast<float>(i);
        CHECK(read(*device, to) == expected);
        CHECK(read(*device, to + products.bytes() - 4) == expected);
      }
    }
  }
  check_clean();
  set_order(0);
}

// What the folder keeps of a choice between both.
std::string kept_epilogue(const TempFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().rfind("epilogue-", 0) == 0)
      return read_file(entry.path(), 1000).substr(32);
  }
  return "";
}

TEST_CASE("a long product is measured with its bias and without and the choice is kept") {
  set_order(0);
  ::setenv("MESHTRAIN_FAKE_CUDA_IDLE", "1", 1);
  const TempFolder folder;
  gpu::DeviceOptions options;
  options.cache_dir = folder.path();
  for (int run = 0; run < 2; ++run) {
    const auto device = open_fake_gpu(options);
    Products products(*device, 1024, 1);
    gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
    products.add(lowering, 1);
    device->make_plan(lowering.take(), {}, 0, 1)->run();
    CHECK(kept_epilogue(folder) == "fused");
  }
  ::unsetenv("MESHTRAIN_FAKE_CUDA_IDLE");
  check_clean();
}

// z = (x + y) / 2, then x = z + 1 beside y = z times a matrix whose product with z is z.
TEST_CASE("a step waits for everything that the one before ended with") {
  constexpr int64_t kSize = 64, kElements = kSize * kSize;
  constexpr int kSteps = 8;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    set_order(seed);
    const auto device = open_fake_gpu();
    std::vector<std::byte*> arrays;
    for (int i = 0; i < 4; ++i)
      arrays.push_back(device->allocate(kElements * 4));
    const std::vector<float> mean(kElements, 1.0F / kSize);
    device->upload(arrays[3], mean.data(), kElements * 4);
    const auto view = [&](int i) {
      return contiguous_view(arrays[static_cast<size_t>(i)], DType::kFloat32, {kElements});
    };
    const View x = view(0), y = view(1), z = view(2);
    constexpr DType kF = DType::kFloat32;
    gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
    lowering.lower(
        StepSpec{"z", {whole_access(x, false), whole_access(y, false), whole_access(z, true)}});
    lowering.lower(TapeSpec{{kElements},
                            {x, y},
                            {{"add", {0, 1}, kF}, {"constant", {}, kF, 0.5}, {"mul", {2, 3}, kF}},
                            {{2, z}}});
    lowering.lower(StepSpec{"x", {whole_access(z, false), whole_access(x, true)}});
    lowering.lower(
        TapeSpec{{kElements}, {z}, {{"constant", {}, kF, 1}, {"add", {0, 1}, kF}}, {{1, x}}});
    MatmulSpec s;
    s.a = z.data;
    s.b = arrays[3];
    s.c = y.data;
    s.m = s.n = s.k = s.a_row = s.b_row = s.c_row = kSize;
    s.a_column = s.b_column = 1;
    s.batches = {{}};
    lowering.lower(StepSpec{"y", {whole_access(z, false), whole_access(y, true)}});
    lowering.lower(s);
    device->make_plan(lowering.take(), {}, 0, kSteps)->run();
    CHECK(read(*device, z.data) == (kSteps - 1) / 2.0F);
    for (std::byte* array : arrays)
      device->free(array);
  }
  check_clean();
  set_order(0);
}

// Wherever the driver's addresses lie: the kernel writes its second argument.
TEST_CASE("only what is marked as an address moves with the step") {
  const auto device = open_fake_gpu();
  const Arrays arrays(*device);
  gpu::Launch launch;
  launch.body = gpu::make_body("write", "*(unsigned long long*)arg[0] = arg[1];\n", 0, false);
  const uint64_t number = reinterpret_cast<uint64_t>(arrays.y);
  launch.args = {arrays.x, number};
  launch.work = 1 << 20;
  const View x = contiguous_view(arrays.x, DType::kFloat32, {2});
  const View later = contiguous_view(arrays.x + 512, DType::kFloat32, {2});
  const std::vector<gpu::Window> windows = {{arrays.x, 256, 512}, {arrays.y, 256, 256}};
  device
      ->make_plan({{launch, {whole_access(x, true), whole_access(later, true)}, "write"}}, windows,
                  1, 1)
      ->run();
  uint64_t values[2] = {};
  device->download(&values[0], arrays.x, 8);
  device->download(&values[1], arrays.x + 512, 8);
  CHECK(values[0] == 0);
  CHECK(values[1] == number);
}

// The fake's engines: one cannot be built, one gives other bits in each run.
TEST_CASE("an attention for which cuDNN has no fitting engine is computed by our kernels") {
  AttentionShape shape;
  shape.dtype = DType::kBFloat16;
  shape.batch = shape.heads = shape.groups = 1;
  shape.queries = shape.keys = 256;
  shape.head_size = shape.value_size = 8;
  shape.scale = 1;
  constexpr int64_t kElements = 256 * 8;
  {
    const auto device = open_fake_gpu();
    const std::vector<uint16_t> ones(kElements, 0x3f80);
    const Memory q(*device, 2 * kElements), o(*device, 2 * kElements), lse(*device, 4 * 256);
    device->upload(q.data, ones.data(), 2 * kElements);
    gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
    lowering.lower(StepSpec{"attention"});
    lowering.lower(AttentionSpec{shape, q.data, q.data, q.data, {}, o.data, lse.data});
    const std::vector<gpu::Command> commands = lowering.take();
    CHECK(std::holds_alternative<gpu::Attention>(commands.at(0).what));
    device->make_plan(commands, {}, 0, 1)->run();
    std::vector<uint16_t> result(kElements);
    device->download(result.data(), o.data, 2 * kElements);
    CHECK(result == ones);
    // 8 + log(256)
    CHECK(read(*device, lse.data) == doctest::Approx(13.545177));
  }
  check_clean();
}

TEST_CASE("a kernel gets more shared memory than the driver gives without being asked") {
  constexpr unsigned kBytes = 100 * 1024;
  const auto device = open_fake_gpu();
  const Arrays arrays(*device);
  const std::string text =
      fmt::format("shared[{0}] = 7; ((unsigned*)arg[0])[threadIdx.x] = shared[{0}];\n", kBytes - 1);
  gpu::Launch launch;
  launch.body = gpu::make_body("shared", text, kBytes, false);
  launch.args = {arrays.x};
  launch.work = 1 << 20;
  const View x = contiguous_view(arrays.x, DType::kFloat32, {256});
  device->make_plan({{launch, {whole_access(x, true)}, "shared"}}, {}, 0, 1)->run();
  uint32_t value = 0;
  device->download(&value, arrays.x, 4);
  CHECK(value == 7);
}

}  // namespace
}  // namespace meshtrain::test
