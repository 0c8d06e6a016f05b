// Weights of a checkpoint under a new optimizer, on several processes, played by threads.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/host.h"
#include "checkpoint/restore.h"
#include "checkpoint_case.h"
#include "comm/socket.h"
#include "engine/coordinator.h"
#include "support/engine_case.h"
#include "support/thread_group.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// Slots that begin as a copy of their weight, split over the processes otherwise than it is.
constexpr const char* kModel = R"(
distribution:
  type: ModelParallel
  device_mesh: {shape: [2], axis_names: [data]}
  layout_map: {d1/kernel: [null, data]}
  zero: 1
data: {train: {source: random, samples: 8, shape: [6], classes: 4, seed: 3}}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 16}
    - Dense: {name: d2, units: 4}
compile:
  optimizer: ScheduleFreeAdamW
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 8}
)";

// The weights of another seed and optimizer, as a checkpoint.
std::string saved_in(const std::string& folder) {
  const Config config = test::config_from(kModel, {"seed=7", "compile.optimizer=sgd"});
  const Dataset data = load_dataset(*config.data.train, config.data);
  Engine engine(config, data_spec(data), {.num_workers = 1});
  const SaveResult saved =
      write_checkpoint(folder, Snapshot(engine.store()), test::notes_of(1), {});
  REQUIRE_MESSAGE(saved.saved, saved.error);
  return saved.path;
}

// Each of two processes restores what `paths` says; then its momenta are its weights.
std::vector<test::Caught> restore_two(const std::vector<std::string>& paths) {
  std::vector<test::Caught> out(2);
  run_as_processes(2, [&](const std::shared_ptr<ThreadGroup>& group) {
    const Config config = test::config_from(kModel);
    const Dataset data = load_dataset(*config.data.train, config.data);
    Engine engine(config, data_spec(data), {.num_workers = 1, .processes = {group, nullptr}});
    const Coordinator coordinator(engine.processes(), steady_seconds);
    const auto rank = static_cast<size_t>(group->rank());
    const CheckpointReader reader(paths[rank]);
    std::vector<std::string> warnings;
    out[rank] = test::caught([&] {
      coordinator.on_all_ranks("a test", [&] {
        restore(engine, reader, {}, {}, {.reset_optimizer = true, .reset_cursor = true}, warnings);
      });
      for (const CheckpointTensor& tensor : reader.manifest().tensors) {
        const int weight = engine.store().find(tensor.path);
        if (tensor.kind != TensorKind::kWeight) {
          continue;
        }
        const HostTensor expected = reader.read(tensor);
        const int slot =
            engine.setup().graphs().slot_variable(static_cast<size_t>(weight), size_t{0});
        for (const int variable : {weight, slot}) {
          const HostTensor got = engine.store().read(variable);
          CHECK(std::equal(got.bytes(), got.bytes() + got.num_bytes(), expected.bytes(),
                           expected.bytes() + expected.num_bytes()));
        }
      }
    });
  });
  return out;
}

TEST_CASE("what begins as a copy of a weight begins as the restored one on all processes") {
  const test::TempFolder folder;
  const std::string path = saved_in(folder.path());
  for (const test::Caught& error : restore_two({path, path})) {
    CHECK_MESSAGE(error.code.empty(), error.text);
  }
}

TEST_CASE("a process that cannot read a weight ends all with what it found") {
  const test::TempFolder folder;
  const std::string path = saved_in(folder.path()), damaged = folder.file("damaged");
  fs::copy(path, damaged, fs::copy_options::recursive);
  const CheckpointReader reader(damaged);
  for (const CheckpointTensor& tensor : reader.manifest().tensors) {
    if (tensor.path == "d1/kernel") {
      const CheckpointShard& shard = tensor.shards.back();  // which only rank 1 needs
      std::fstream(damaged + "/" + shard.file, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(shard.begin))
          .write("damage", 6);
    }
  }
  for (const test::Caught& error : restore_two({path, damaged})) {
    CHECK(error.code == "E404");
    CHECK_MESSAGE(error.says("rank 1: "), error.text);
    CHECK(error.says("d1/kernel"));
  }
}

}  // namespace
}  // namespace meshtrain
