// Whole training steps on several processes, played by threads: the bits of one process, and the
// bytes that theory allows.
#include <doctest/doctest.h>

#include <cstring>

#include "data/step_order.h"
#include "plan/plan_summary.h"
#include "support/convnet.h"
#include "support/engine_case.h"
#include "support/instrumented.h"
#include "support/language_models.h"
#include "support/thread_group.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kSteps = kIsInstrumented ? 3 : 8;

// Dropout, batch statistics and global clipping: all that could depend on how the devices are
// spread.
const std::string kModel = R"(
seed: 11
distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh: {shape: [2, 4], axis_names: [data, model]}
  layout_map:
    d1/kernel: [null, model]
    d2/kernel: [model, null]
data: {train: {source: random, samples: 64, shape: [8, 8, 1], labels: [10], seed: 3}}
model:
  layers:
    - Input: {shape: [8, 8, 1]}
    - Flatten
    - Dense: {name: d1, units: 64, activation: relu}
    - BatchNormalization: {name: norm}
    - Dropout: 0.3
    - Dense: {name: d2, units: 16}
    - Dense: {name: d3, units: 10, activation: softmax}
compile: {optimizer: {Adam: {learning_rate: 0.01, global_clipnorm: 1.0}}, loss: mse, metrics: [mae]}
fit: {batch_size: 16}
)";

struct Run {
  std::vector<double> losses;
  Logs logs;
  std::vector<HostTensor> weights;
  int64_t bytes_sent = 0;  // of one step
};

// Of a model of images, on the data of its config; of a language model, on random sequences.
Dataset data_of(const Config& config) {
  if (config.data.train)
    return load_dataset(*config.data.train, config.data);
  Dataset data = random_sequences(64, 3);
  order_steps(data, config.data.head_tail, {});
  return data;
}

Run train(const Config& config, std::shared_ptr<ThreadGroup> group) {
  const Dataset data = data_of(config);
  EngineOptions options;
  options.num_workers = 1;
  options.processes.group = group;
  Engine engine(config, data_spec(data), options);
  Run run;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t before = group == nullptr ? 0 : group->bytes_sent();
    // The last one is smaller, and does not divide.
    const int64_t batch = step + 1 == kSteps ? 7 : 16;
    engine.train_step({&data, rows_of_step(step, batch, data.num_samples)});
    if (step == 0 && group != nullptr)
      run.bytes_sent = group->bytes_sent() - before;
    run.losses.push_back(engine.last_loss());
  }
  run.logs = engine.logs();
  for (const std::string& path : engine.weight_paths())
    run.weights.push_back(engine.read_variable(path));
  return run;
}

std::vector<Run> train_over(const Config& config, int processes) {
  std::vector<Run> runs(static_cast<size_t>(processes));
  run_as_processes(processes, [&](std::shared_ptr<ThreadGroup> group) {
    runs[static_cast<size_t>(group->rank())] = train(config, group);
  });
  return runs;
}

void check_equal(const Run& run, const Run& expected) {
  CHECK(run.losses == expected.losses);
  CHECK(run.logs == expected.logs);
  REQUIRE(run.weights.size() == expected.weights.size());
  for (size_t w = 0; w < run.weights.size(); ++w) {
    CAPTURE(w);
    CHECK(std::memcmp(run.weights[w].bytes(), expected.weights[w].bytes(),
                      run.weights[w].num_bytes()) == 0);
  }
}

}  // namespace

TEST_CASE("engine: one hash whatever the number of processes with fixed reductions") {
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"distribution.device_mesh.shape=[4,2]"},
      {"distribution.device_mesh.shape=[8,1]", "distribution.zero=1"},
      {"distribution.device_mesh.shape=[4,2]", "distribution.zero=2"},
      {"distribution.device_mesh.shape=[2,4]", "distribution.zero=3"},
  };
  for (std::vector<std::string> overrides : layouts) {
    CAPTURE(overrides.empty() ? "guide" : overrides.back());
    overrides.push_back("distribution.reductions=fixed");
    const Config config = config_from(kModel, overrides);
    const Run one = train(config, nullptr);
    for (const int processes : {2, 4, 8}) {
      CAPTURE(processes);
      for (const Run& run : train_over(config, processes))
        check_equal(run, one);
    }
  }
}

TEST_CASE("engine: a convnet has one hash on 1 2 and 4 processes") {
  const Config config =
      config_from(std::string("seed: 5\ndata: {train: {source: digits, samples: 64}}\n") +
                      kSplitChannels + kConvnet,
                  {"distribution.reductions=fixed", "fit.batch_size=16"});
  const Run one = train(config, nullptr);
  for (const int processes : {2, 4}) {
    for (const Run& run : train_over(config, processes))
      check_equal(run, one);
  }
}

TEST_CASE("engine: language models with dropout have one hash on 1 2 and 4 processes") {
  struct Case {
    LanguageModel model;
    std::string distribution;  // over eight devices
  };
  const LanguageModel gpt, gpt_of_blocks{.masks_zero = true, .remat = "block"},
      llama{.family = LanguageFamily::kLlama, .remat = "dots"},
      llama_of_whole_keys{.family = LanguageFamily::kLlama, .ties_head = false, .key_heads = 1},
      mixtral{.family = LanguageFamily::kMixtral, .ties_head = false},
      mixtral_of_places{.family = LanguageFamily::kMixtral, .capacity = "1.25"};
  const std::string grid = "  device_mesh: {shape: [2, 4], axis_names: [data, model]}\n";
  const std::vector<Case> cases = {
      {gpt, grid + "  layout_map: megatron\n"},
      {gpt, grid + "  layout_map: {preset: megatron, token_embedding/embeddings: [model, null]}\n"},
      {gpt_of_blocks, grid + "  layout_map: fsdp\n"},
      {gpt_of_blocks, grid + "  layout_map: context\ndata: {head_tail: 4}\n"},
      {llama, grid + "  layout_map: megatron\n  zero: 1\n"},
      {llama, grid + "  layout_map: context\n  zero: 2\ndata: {head_tail: 4}\n"},
      {llama_of_whole_keys,
       "  device_mesh: {shape: [2, 2, 2], axis_names: [data, fsdp, model]}\n  layout_map: "
       "megatron\n  batch_dim_name: [data, fsdp]\n  zero_axes: [fsdp]\n  zero: 3\n"},
      {mixtral, grid + "  layout_map: expert\n"},
      {mixtral_of_places, grid + "  layout_map: expert\n"},
      {mixtral_of_places, grid + "  layout_map: megatron\n  zero: 3\n"},
  };
  for (const auto& [model, distribution] : cases) {
    const std::string yaml =
        "seed: 13\n" + yaml_of(model, "{Adam: {learning_rate: 0.01, global_clipnorm: 1.0}}") +
        "fit: {batch_size: 16}\ndistribution:\n  reductions: fixed\n" + distribution;
    CAPTURE(yaml);
    const Config config = config_from(yaml, {"compile.metrics=[accuracy]"});
    const Run one = train(config, nullptr);
    CHECK(one.losses.front() != one.losses[1]);
    for (const int processes : {1, 2, 4}) {
      CAPTURE(processes);
      for (const Run& run : train_over(config, processes))
        check_equal(run, one);
    }
  }
}

TEST_CASE("engine: a rank that would run another program is named with the first difference") {
  const Config config = config_from(kModel), other = config_from(kModel, {"compile.loss=mae"});
  const Dataset data = load_dataset(*config.data.train, config.data);
  std::vector<Caught> errors(2);
  run_as_processes(2, [&](std::shared_ptr<ThreadGroup> group) {
    const size_t rank = static_cast<size_t>(group->rank());
    EngineOptions options;
    options.num_workers = 1;
    options.processes.group = group;
    Engine engine(rank == 0 ? config : other, data_spec(data), options);
    errors[rank] = caught([&] {
      engine.train_step({&data, rows_of_step(0, 16, data.num_samples)});
    });
  });
  for (const Caught& error : errors) {
    CAPTURE(error.text);
    CHECK(error.code == "E611");
    CHECK(error.says("rank 1 on host "));
    CHECK(error.says("would run another program than rank 0 on host "));
    CHECK(error.says("the train step of 16 samples: line "));
    CHECK(error.says("abs("));
  }
}

TEST_CASE("engine: processes send what the plan says and no byte more") {
  // Sizes that every mesh divides, so that shares are equal.
  const std::vector<std::vector<std::string>> layouts = {
      {"distribution.device_mesh.shape=[8,1]"},                         // data parallel
      {"distribution.device_mesh.shape=[1,8]"},                         // tensor parallel
      {"distribution.device_mesh.shape=[2,4]"},                         // both
      {"distribution.device_mesh.shape=[8,1]", "distribution.zero=1"},  // ZeRO-1
      {"distribution.device_mesh.shape=[8,1]", "distribution.zero=2"},  // ZeRO-2
      {"distribution.device_mesh.shape=[8,1]", "distribution.zero=3"},  // FSDP
      {"distribution.device_mesh.shape=[2,4]", "distribution.zero=3"},  // with both
  };
  const std::string model = R"(
seed: 1
distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh: {shape: [2, 4], axis_names: [data, model]}
  layout_map: {d1/kernel: [null, model], d1/bias: [model], d2/kernel: [model, null]}
data: {train: {source: random, samples: 64, shape: [64], labels: [16], seed: 3}}
model:
  layers:
    - Input: {shape: [64]}
    - Dense: {name: d1, units: 64, activation: relu}
    - Dense: {name: d2, units: 64}
    - Dense: {name: d3, units: 16}
compile: {optimizer: {Adam: {learning_rate: 0.01}}, loss: mse}
fit: {batch_size: 16}
)";
  for (const std::vector<std::string>& overrides : layouts) {
    CAPTURE(overrides.front());
    CAPTURE(overrides.back());
    const Config config = config_from(model, overrides);
    int64_t planned = 0;
    const Dataset data = load_dataset(*config.data.train, config.data);
    const DataSpec spec = data_spec(data);
    const Setup setup(config, &spec);
    for (const PlannedCollective& c :
         planned_collectives(setup.compile(StepKind::kTrain, 16).graph, setup.mesh())) {
      planned += c.bytes_sent;
    }
    CHECK(planned > 0);
    int64_t total = 0;
    for (const Run& run : train_over(config, 8)) {
      CHECK(std::abs(run.bytes_sent - planned) <= 64);  // of scalars: a loss has one share
      total += run.bytes_sent;
    }
    CHECK(total == 8 * planned);
  }
}
