// `pad_to`: a table of ids that zeros fill up in memory has the numbers of the table itself, on
// every mesh, and files know nothing of the zeros.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "checkpoint/restore.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/writer.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kSequences = 16, kTokens = 6, kIds = 11;

// `pad`: of the table, which has no divisor but 11; `tie`: whether it gives the logits, too.
std::string yaml_of(const std::string& pad, bool tie, const std::string& more) {
  return fmt::format(R"(
dtype_policy: float64
seed: 3
model:
  layers:
    - Input: {{name: ids, shape: [6], dtype: int32}}
    - ReversibleEmbedding: {{name: tokens, input_dim: 11, output_dim: 8, pad_to: {0}, tie_weights: {1}}}
    - TokenAndPositionEmbedding: {{name: others, inputs: ids, vocabulary_size: 11, sequence_length: 6,
        embedding_dim: 8, pad_to: {0}}}
    - Embedding: {{name: more, inputs: ids, input_dim: 11, output_dim: 8, pad_to: {0}}}
    - Add: {{name: sum, inputs: [tokens, others, more]}}
    - Dense: {{name: hidden, units: 8, activation: tanh}}
    - Call: {{layer: tokens, name: logits, call: {{reverse: true}}}}
compile:
  optimizer: {{AdamW: {{learning_rate: 0.05, weight_decay: 0.1, global_clipnorm: 0.5, use_ema: true}}}}
  loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}
  metrics: [accuracy]
fit: {{batch_size: 8}}
{2})",
                     pad, tie, more);
}

std::string on_mesh(const std::string& shape, bool tie, const std::string& rest) {
  return "distribution: {type: ModelParallel, device_mesh: {shape: " + shape +
         ", axis_names: [data, model]}, layout_map: {'(tokens|more|others/token_embedding)/"
         "embeddings': [model, null]" +
         (tie ? "" : ", tokens/reverse_embeddings: [null, model]") + "}" + rest + "}\n";
}

Dataset token_data() {
  HostTensor x(DType::kInt32, {kSequences, kTokens}), y(DType::kInt32, {kSequences, kTokens});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(splitmix_below(1, static_cast<uint64_t>(i), kIds)));
    y.set(i, static_cast<double>(splitmix_below(2, static_cast<uint64_t>(i), kIds)));
  }
  return dataset_of(std::move(x), std::move(y));
}

struct Trained {
  explicit Trained(const std::string& yaml)
      : config(config_from(yaml)),
        data(token_data()),
        engine(config, data_spec(data), {.num_workers = 2}) {}

  void train(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step)
      engine.train_step({&data, rows_of_step(step, 8, kSequences)});
  }
  // All state but metrics, by path.
  std::map<std::string, HostTensor> state() const {
    std::map<std::string, HostTensor> out;
    for (const Variable& variable : engine.setup().variables()) {
      if (variable.role != VariableRole::kMetric)
        out.emplace(variable.path, engine.read_variable(variable.path));
    }
    return out;
  }
  HostTensor predictions() {
    return std::move(engine.predict_step({&data, rows_of_step(0, 8, kSequences)})[0]);
  }

  Config config;
  Dataset data;
  Engine engine;
};

void check_close(const HostTensor& found, const HostTensor& expected, double tolerance) {
  REQUIRE(found.shape() == expected.shape());
  for (int64_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(found.at(i) - expected.at(i)) <= tolerance);
}

void check_state(const Trained& found, const Trained& expected, double tolerance) {
  const auto mine = found.state(), theirs = expected.state();
  REQUIRE(mine.size() == theirs.size());
  for (const auto& [path, tensor] : mine) {
    CAPTURE(path);
    check_close(tensor, theirs.at(path), tolerance);
  }
}

// Collectives of a training step.
std::map<std::string, int> counts_of(const std::string& yaml) {
  const Config config = config_from(yaml);
  const Setup setup(config, nullptr);
  std::map<std::string, int> out;
  for (const Node& node : setup.compile(StepKind::kTrain, 8).graph.nodes) {
    if (communicates(*node.op))
      out[std::string(phase_name(node.phase)) + " " + std::string(node.op->name)] += 1;
  }
  return out;
}

}  // namespace

TEST_CASE("a table filled up by pad_to has the numbers of the table itself on every mesh") {
  for (const bool tie : {true, false}) {
    Trained one(yaml_of("null", tie, ""));
    one.train(3);
    const HostTensor predicted = one.predictions();
    for (const std::string pad : {"4", "16"}) {
      for (const std::string& distribution :
           {std::string(), on_mesh("[1, 4]", tie, ""), on_mesh("[2, 4]", tie, ""),
            on_mesh("[4, 2]", tie, ", zero: 3"), on_mesh("[2, 2]", tie, ", zero: 1")}) {
        CAPTURE(tie);
        CAPTURE(pad);
        CAPTURE(distribution);
        Trained padded(yaml_of(pad, tie, distribution));
        padded.train(3);
        check_state(padded, one, 1e-12);
        check_close(padded.predictions(), predicted, 1e-12);
        CHECK(std::abs(padded.engine.last_loss() - one.engine.last_loss()) <= 1e-12);
      }
    }
  }
}

TEST_CASE("a step with a table filled up takes the collectives of one that divides") {
  std::string divides = yaml_of("null", true, on_mesh("[2, 4]", true, ""));
  for (size_t at = 0; (at = divides.find(": 11", at)) != std::string::npos;)
    divides.replace(at, 4, ": 12");
  const auto found = counts_of(yaml_of("4", true, on_mesh("[2, 4]", true, "")));
  CHECK(found == counts_of(divides));
  CHECK(!found.contains("forward all_gather"));
}

TEST_CASE("a checkpoint of a table filled up fits every other pad_to, and none") {
  for (const bool tie : {true, false}) {
    Trained from(yaml_of("16", tie, on_mesh("[2, 4]", tie, ", zero: 1")));
    from.train(2);
    const TempFolder folder;
    const SaveResult saved =
        write_checkpoint(folder.path(), Snapshot(from.engine.store()), CheckpointNotes{}, {});
    REQUIRE_MESSAGE(saved.saved, saved.error);
    const CheckpointReader reader(saved.path);
    for (const CheckpointTensor& tensor : reader.manifest().tensors) {
      CAPTURE(tensor.path);
      CHECK(std::find(tensor.shape.begin(), tensor.shape.end(), 16) == tensor.shape.end());
    }
    for (const std::string pad : {"null", "3", "16"}) {
      CAPTURE(pad);
      Trained to(yaml_of(pad, tie, pad == "3" ? on_mesh("[2, 3]", tie, "") : ""));
      VariableStore& store = to.engine.store();
      for (const CheckpointTensor& tensor : reader.manifest().tensors) {
        const int variable = store.find(tensor.path);
        if (variable != kNone)
          read_shards(reader, tensor, store, variable);
      }
      check_state(to, from, 0);
    }
  }
}
