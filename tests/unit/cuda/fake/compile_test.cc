// Programs of a run are compiled beside each other: shown by compilations that wait for one
// another in the fake NVRTC, never by time.
#include <filesystem>
#include <set>
#include <thread>

#include "../../gpu/training.h"
#include "backend/gpu/lowering.h"
#include "base/error.h"
#include "fake_gpu.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

// Counts of elements, constants of the text, by which the fake tells programs apart.
constexpr int64_t kFirst = 7919, kSecond = 7927;

// x is filled and summed.
std::vector<gpu::Command> commands(int64_t count, std::byte* x, std::byte* sum) {
  gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
  const View all = contiguous_view(x, DType::kFloat32, {count});
  lowering.lower(StepSpec{"fill"});
  lowering.lower(FillSpec{all, 1});
  lowering.lower(StepSpec{"sum"});
  lowering.lower(
      ReduceSpec{Reduction::kSum, all, {true}, contiguous_view(sum, DType::kFloat32, {})});
  return lowering.take();
}

struct Setup {
  explicit Setup(const gpu::DeviceOptions& options = {})
      : device(open_fake_gpu(options)),
        x(*device, kSecond * 4),
        y(*device, kSecond * 4),
        sum(*device, 4) {}

  std::vector<gpu::Command> first() { return commands(kFirst, x.data, sum.data); }
  std::vector<gpu::Command> second() { return commands(kSecond, x.data, sum.data); }
  // The kernels of first(), on other memory.
  std::vector<gpu::Command> alike() { return commands(kFirst, y.data, sum.data); }

  float run(const std::vector<gpu::Command>& list) {
    const auto plan = device->make_plan(list, {}, 0, 1);
    plan->run();
    float value = 0;
    device->download(&value, sum.data, 4);
    return value;
  }

  std::unique_ptr<gpu::Device> device;
  Memory x, y, sum;
};

// Undoes what a case asked of the fake, also when the case ends by an exception.
struct Release {
  Release() = default;
  ~Release() {
    fake_cuda::hold_compilations(0);
    fake_cuda::hold_compilation_of("");
    fake_cuda::refuse_compilation_of("");
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;
};

std::string word(int64_t count) {
  return std::to_string(count);
}

std::set<std::string> files(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

TEST_CASE("two programs compile beside each other, and a text that they share once") {
  const TempFolder one_by_one, together;
  {
    Setup setup({.cache_dir = one_by_one.path()});
    CHECK(setup.run(setup.first()) == static_cast<float>(kFirst));
    CHECK(setup.run(setup.second()) == static_cast<float>(kSecond));
  }
  {
    const Release release;
    Setup setup({.cache_dir = together.path()});
    const int64_t before = fake_cuda::num_compilations();
    fake_cuda::hold_compilations(2);
    setup.device->begin_compile(setup.first());
    setup.device->begin_compile(setup.alike());
    setup.device->begin_compile(setup.first());
    setup.device->begin_compile(setup.second());
    CHECK(setup.run(setup.second()) == static_cast<float>(kSecond));
    CHECK(setup.run(setup.alike()) == static_cast<float>(kFirst));
    CHECK(setup.run(setup.first()) == static_cast<float>(kFirst));
    CHECK(fake_cuda::num_compilations() == before + 2);
  }
  CHECK(files(one_by_one.path()) == files(together.path()));
  CHECK(files(together.path()).size() == 2);
  check_clean();
}

TEST_CASE("a program runs while another one compiles") {
  {
    const Release release;
    Setup setup;
    fake_cuda::hold_compilation_of(word(kSecond));
    setup.device->begin_compile(setup.second());
    setup.device->begin_compile(setup.first());
    CHECK(setup.run(setup.first()) == static_cast<float>(kFirst));
    fake_cuda::hold_compilation_of("");
    CHECK(setup.run(setup.second()) == static_cast<float>(kSecond));
  }
  check_clean();
}

TEST_CASE("a program that does not compile fails where it runs, as if it had been compiled there") {
  const auto message_of = [](Setup& setup, const std::vector<gpu::Command>& list) -> std::string {
    try {
      setup.run(list);
    } catch (const RuntimeFailure& failure) {
      return failure.what();
    }
    return "";
  };
  for (const int64_t refused : {kFirst, kSecond}) {
    CAPTURE(refused);
    const Release release;
    fake_cuda::refuse_compilation_of(word(refused));
    std::string expected;
    {
      Setup alone;
      expected = message_of(alone, commands(refused, alone.x.data, alone.sum.data));
      CHECK(expected.find("nvrtcCompileProgram") != std::string::npos);
    }
    Setup setup;
    setup.device->begin_compile(setup.first());
    setup.device->begin_compile(setup.second());
    for (const int64_t count : {kFirst, kSecond}) {
      const std::string message = message_of(setup, commands(count, setup.x.data, setup.sum.data));
      CHECK(message == (count == refused ? expected : ""));
    }
    fake_cuda::refuse_compilation_of("");
    CHECK(setup.run(commands(refused, setup.x.data, setup.sum.data)) ==
          static_cast<float>(refused));
  }
  check_clean();
}

TEST_CASE("a device that closes while its programs compile leaves nothing and does not hang") {
  {
    const Release release;
    std::jthread later;
    Setup setup;
    fake_cuda::hold_compilation_of(word(kFirst));
    const int64_t before = fake_cuda::num_compilations();
    setup.device->begin_compile(setup.first());
    setup.device->begin_compile(setup.second());
    while (fake_cuda::num_compilations() == before)
      std::this_thread::yield();
    later = std::jthread([] { fake_cuda::hold_compilation_of(""); });
  }
  check_clean();
}

constexpr const char* kModel = R"(
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Flatten
    - Dense: {name: d1, units: 24, activation: relu}
    - Dense: {name: d2, units: 10}
compile:
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  optimizer: {SGD: {learning_rate: 0.1}}
fit: {batch_size: 8, validation_batch_size: 12}
distribution: {type: DataParallel, device_mesh: {shape: [1], axis_names: [data], devices: 'gpu:0'}}
seed: 3
)";

// Losses of a full batch, the remainder and a test.
std::vector<double> train(bool begins, int64_t& compilations) {
  const Dataset data = pictures(20);
  const Config config = config_from(kModel);
  const int64_t before = fake_cuda::num_compilations();
  std::vector<double> losses;
  {
    const TempFolder cache;
    ::setenv("MESHTRAIN_CACHE", cache.path().c_str(), 1);
    Engine engine(config, data_spec(data), {});
    ::unsetenv("MESHTRAIN_CACHE");
    engine.prepare_run({.train = 20, .validation = 20});
    if (begins) {
      CHECK(engine.cache_on_device(data));
      fake_cuda::hold_compilations(2);
      engine.begin_compile(data, true);
      engine.begin_compile(data, false);
    } else {
      engine.cache_on_device(data);
    }
    engine.train_step({&data, rows_of_step(0, 8, 20)});
    losses.push_back(engine.last_loss());
    engine.train_step({&data, rows_of_step(1, 4, 20)});
    losses.push_back(engine.last_loss());
    engine.reset_metrics();
    engine.test_step({&data, rows_of_step(0, 12, 20)});
    losses.push_back(engine.logs().front().second);
  }
  compilations = fake_cuda::num_compilations() - before;
  return losses;
}

TEST_CASE("steps, remainder and validation of a run compile beside each other, bit for bit alike") {
  fake_runtime();
  const Release release;
  int64_t one_by_one = 0, together = 0;
  const std::vector<double> expected = train(false, one_by_one);
  CHECK(train(true, together) == expected);
  CHECK(one_by_one == 5);  // two with constants of their own
  CHECK(together == 6);    // with the remainder of the validation, which train() does not run
  check_clean();
}

}  // namespace
}  // namespace meshtrain::test
