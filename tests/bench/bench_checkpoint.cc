// What saving costs: the rate of a save beside that of writing the same bytes, in turn, and what
// saves in the background take from the steps.
//
//   bench_checkpoint [--mib N] [--rounds N] [--folder DIR]    DIR is on the disk in question
//
// Exit status 1 when a goal is missed: 80% of the disk's rate; 5% of the steps' time when a save
// begins every ten save times.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>

#include "checkpoint/writer.h"
#include "exec/executor.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

constexpr double kRateGoal = 0.8;
constexpr double kStepsGoal = 0.05;
constexpr size_t kPart = size_t{8} << 20;  // of one write, as checkpoints are written

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Seconds that a plain program takes to get these bytes onto the disk under a new name.
double write_plainly(const std::string& folder, VariableStore& store) {
  const std::string path = folder + "/plain";
  const double start = now();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  for (size_t v = 0; v < store.variables().size(); ++v) {
    const size_t bytes = static_cast<size_t>(num_elements(store.variables()[v].shape)) * 4;
    for (size_t at = 0; at < bytes;) {
      const ssize_t n =
          ::write(fd, store.data(static_cast<int>(v)) + at, std::min(kPart, bytes - at));
      MESHTRAIN_CHECK(n > 0, "cannot write {}: {}", path, std::strerror(errno));
      at += static_cast<size_t>(n);
    }
  }
  MESHTRAIN_CHECK(::fsync(fd) == 0 && ::close(fd) == 0, "{}", std::strerror(errno));
  const double taken = now() - start;
  std::filesystem::remove(path);
  return taken;
}

SaveResult save(const std::string& folder, const Snapshot& snapshot, int64_t step) {
  CheckpointNotes notes;
  notes.state.position.step = step;
  notes.run_id = "bench";
  notes.texts = {{"config.yaml", "name: bench\n"}};
  const SaveResult result = write_checkpoint(folder, snapshot, notes);
  MESHTRAIN_CHECK(result.saved, "{}", result.error);
  return result;
}

bool compare_rates(const std::string& folder, int64_t mib, int rounds) {
  const DeviceMesh mesh({1}, {"a"});
  std::vector<Variable> variables(8);
  for (size_t v = 0; v < variables.size(); ++v) {
    variables[v].path = fmt::format("d{}/kernel", v);
    variables[v].shape = {mib * 32, 1024};
    variables[v].layout.storage = parse_sharding("[null, null]", mesh);
    variables[v].role = VariableRole::kWeight;
  }
  VariableStore store(mesh, variables);
  for (size_t v = 0; v < variables.size(); ++v) {
    HostTensor content(DType::kFloat32, variables[v].shape);
    for (int64_t i = 0; i < content.size(); ++i) {
      content.data<float>()[i] = splitmix_unit(v, static_cast<uint64_t>(i));
    }
    store.write(static_cast<int>(v), content);
  }
  const Snapshot snapshot(store);
  std::vector<double> plain, ours, ratios;
  for (int r = 0; r <= rounds; ++r) {
    const double first = write_plainly(folder, store);
    const SaveResult saved = save(folder, snapshot, r);
    std::filesystem::remove_all(saved.path);
    if (r > 0) {  // the first round finds the page cache as it was
      plain.push_back(first);
      ours.push_back(saved.seconds);
      ratios.push_back(first / saved.seconds);
    }
  }
  const double ratio = median(plain) / median(ours);
  fmt::print(
      "{} MiB: plain {:.0f} MiB/s, checkpoint {:.0f} MiB/s, ratio of medians {:.2f} ({:.2f} .. "
      "{:.2f}), goal {}\n",
      mib, static_cast<double>(mib) / median(plain), static_cast<double>(mib) / median(ours), ratio,
      *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()), kRateGoal);
  return ratio >= kRateGoal;
}

constexpr const char* kModel = R"(
distribution: {device_mesh: {shape: [2], axis_names: [data]}}
model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 1024, activation: relu}
    - Dense: {units: 1024, activation: relu}
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 128}
)";

bool compare_steps(const std::string& folder, int rounds) {
  const Config config = config_from(kModel, {});
  HostTensor x(DType::kFloat32, {128, 784});
  HostTensor y(DType::kInt32, {128});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = splitmix_unit(1, static_cast<uint64_t>(i));
  }
  const Dataset data = dataset_of(std::move(x), std::move(y));
  Engine engine(config, data_spec(data), {});
  Snapshot snapshot(engine.store());
  const std::vector<int64_t> rows = rows_of_step(0, 128, 128);
  // Seconds of `steps` steps, with a save that begins at the first if `step` is not negative.
  double blocked = 0, save_seconds = 0;
  const auto run = [&](int steps, int64_t step) {
    const double start = now();
    std::future<SaveResult> saving;
    if (step >= 0) {
      snapshot.copy();
      blocked = now() - start;
      saving = std::async(std::launch::async, [&] { return save(folder, snapshot, step); });
    }
    for (int i = 0; i < steps; ++i) {
      engine.train_step({&data, rows});
    }
    const double taken = now() - start;
    if (saving.valid()) {
      const SaveResult result = saving.get();
      save_seconds = result.seconds;
      std::filesystem::remove_all(result.path);
    }
    return taken;
  };
  run(20, 0);
  const double step_seconds = run(100, -1) / 100;
  run(100, 1);
  const int steps = std::max(50, static_cast<int>(10 * save_seconds / step_seconds));
  std::vector<double> without, with, ratios;
  for (int r = 0; r < rounds; ++r) {
    without.push_back(run(steps, -1));
    with.push_back(run(steps, 2 + r));
    ratios.push_back(with.back() / without.back());
  }
  const double cost = median(with) / median(without) - 1;
  fmt::print(
      "{:.0f} MiB of state every {} steps of {:.2f} ms: {:+.1f}% ({:+.1f} .. {:+.1f}), goal "
      "{:.0f}%; "
      "save {:.3f} s, blocked {:.4f} s\n",
      static_cast<double>(snapshot.num_bytes()) / (1 << 20), steps, step_seconds * 1e3, cost * 100,
      100 * *std::min_element(ratios.begin(), ratios.end()) - 100,
      100 * *std::max_element(ratios.begin(), ratios.end()) - 100, kStepsGoal * 100, save_seconds,
      blocked);
  return cost <= kStepsGoal;
}

int run_all(int argc, char** argv) {
  int64_t mib = 512;
  int rounds = 7;
  std::string folder = ".";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--mib") {
      mib = std::stoll(argv[i + 1]);
    } else if (option == "--rounds") {
      rounds = std::stoi(argv[i + 1]);
    } else if (option == "--folder") {
      folder = argv[i + 1];
    }
  }
  std::string inside = folder + "/bench-checkpoint-XXXXXX";
  MESHTRAIN_CHECK(::mkdtemp(inside.data()) != nullptr, "cannot create a folder in {}", folder);
  const bool fast = compare_rates(inside, mib, rounds);
  const bool small = compare_rates(inside, 32, rounds);
  const bool cheap = compare_steps(inside, rounds);
  std::filesystem::remove_all(inside);
  return fast && small && cheap ? 0 : 1;
}

}  // namespace
}  // namespace meshtrain::test

int main(int argc, char** argv) {
  try {
    return meshtrain::test::run_all(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
