// MaskedLMHead with the table of another layer: the numbers of one with that table as its kernel,
// on every layout of the table.
#include <doctest/doctest.h>

#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kSequences = 4, kTokens = 5, kMasks = 2, kRows = 6, kWidth = 4;

// `table`: the layer of the tokens; `head`: arguments of the head.
std::string yaml_of(const std::string& table, const std::string& head,
                    const std::string& more = "") {
  return fmt::format(R"(
dtype_policy: float64
model:
  layers:
    - Input: {{name: ids, shape: [5], dtype: int32}}
    - Input: {{name: places, shape: [2], dtype: int32}}
    - {}
    - Dense: {{name: hidden, units: 4, activation: tanh, inputs: tokens}}
    - MaskedLMHead: {{name: head, inputs: [hidden, places], intermediate_activation: gelu, {}}}
compile:
  optimizer: {{SGD: {{learning_rate: 0.5}}}}
  loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}
fit: {{batch_size: 4}}
{})",
                     table, head, more);
}

const std::string kEmbedding =
    "Embedding: {name: tokens, input_dim: 6, output_dim: 4, inputs: ids}";
const std::string kReversible =
    "ReversibleEmbedding: {name: tokens, input_dim: 6, output_dim: 4, inputs: ids}";

Dataset token_data() {
  HostTensor ids(DType::kInt32, {kSequences, kTokens}), places(DType::kInt32, {kSequences, kMasks});
  HostTensor y(DType::kInt32, {kSequences, kMasks});
  const auto fill = [](HostTensor& tensor, uint64_t seed, int64_t below) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set(i, static_cast<double>(splitmix_below(seed, static_cast<uint64_t>(i),
                                                       static_cast<uint64_t>(below))));
    }
  };
  fill(ids, 1, kRows);
  fill(places, 2, kTokens);
  fill(y, 3, kRows);
  Dataset out = dataset_of(std::move(ids), std::move(y));
  out.inputs.push_back({"places", make_rows(std::move(places))});
  return out;
}

struct Run {
  HostTensor before, after;  // the table
  HostTensor kernel;         // after, of a head with its own
  std::vector<double> logits;
  std::vector<double> losses;
};

HostTensor transposed(const HostTensor& x) {
  HostTensor out(x.dtype(), {x.shape()[1], x.shape()[0]});
  for (int64_t i = 0; i < x.size(); ++i) {
    out.set(i % x.shape()[1] * x.shape()[0] + i / x.shape()[1], x.at(i));
  }
  return out;
}

Run train(const std::string& yaml, int steps) {
  const Config config = config_from(yaml);
  const Dataset data = token_data();
  Engine engine(config, data_spec(data), {.num_workers = 2});
  Run out;
  for (const std::string& path : engine.weight_paths()) {
    HostTensor value = engine.read_variable(path);
    uint64_t seed = 0;
    for (const char c : path) {
      seed = seed * 31 + static_cast<unsigned char>(c);
    }
    for (int64_t i = 0; i < value.size(); ++i) {
      value.set(i, splitmix_signed(seed, static_cast<uint64_t>(i), 0.7));
    }
    engine.write_variable(path, value);
  }
  out.before = engine.read_variable("tokens/embeddings");
  const bool is_tied = yaml.find("token_embedding") != std::string::npos;
  if (!is_tied) {
    engine.write_variable("head/output_kernel", transposed(out.before));
  }
  const std::vector<int64_t> rows = rows_of_step(0, kSequences, kSequences);
  const std::vector<HostTensor> outputs = engine.predict_step({&data, rows});
  const HostTensor& logits = outputs[0];
  for (int64_t i = 0; i < logits.size(); ++i) {
    out.logits.push_back(logits.at(i));
  }
  for (int step = 0; step < steps; ++step) {
    engine.train_step({&data, rows});
    out.losses.push_back(engine.last_loss());
  }
  out.after = engine.read_variable("tokens/embeddings");
  if (!is_tied) {
    out.kernel = engine.read_variable("head/output_kernel");
  }
  return out;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(std::abs(a[i] - b[i]) <= 1e-12);
  }
}

std::string problem(const std::string& table, const std::string& head) {
  Diagnostics diagnostics;
  try {
    const Config config = config_from(yaml_of(table, head));
    const Setup setup(config, nullptr);
  } catch (const ConfigError& error) {
    return error.diagnostics().render();
  }
  return "";
}

}  // namespace

TEST_CASE("a tied head has the numbers of a kernel that is the table") {
  const Run apart = train(yaml_of(kEmbedding, "vocabulary_size: 6"), 1);
  for (const std::string& table : {kEmbedding, kReversible}) {
    const Run tied = train(yaml_of(table, "token_embedding: tokens"), 1);
    check_close(tied.logits, apart.logits);
    check_close(tied.losses, apart.losses);
    const HostTensor kernel = transposed(apart.kernel);
    for (int64_t i = 0; i < kRows * kWidth; ++i) {  // the sum of both gradients
      const double wanted = apart.after.at(i) + kernel.at(i) - apart.before.at(i);
      CHECK(std::abs(tied.after.at(i) - wanted) <= 1e-12);
    }
  }
}

TEST_CASE("a tied head is the same on every layout of its table") {
  const Run one = train(yaml_of(kReversible, "token_embedding: tokens"), 3);
  const std::string padded =
      "ReversibleEmbedding: {name: tokens, input_dim: 6, output_dim: 4, pad_to: 4, inputs: ids}";
  for (const auto& [table, rules] :
       {std::pair<std::string, std::string>{kReversible, "tokens/embeddings: [model, null]"},
        {kReversible, "tokens/embeddings: [null, model]"},
        {padded, "tokens/embeddings: [model, null]"},
        {kReversible, "tokens/embeddings: [data, model], hidden/kernel: [null, model]"}}) {
    CAPTURE(rules);
    const Run many = train(
        yaml_of(table, "token_embedding: tokens",
                "distribution:\n  type: ModelParallel\n  device_mesh: {shape: [2, 2], axis_names: "
                "[data, model]}\n  layout_map: {" +
                    rules + "}\n"),
        3);
    check_close(many.logits, one.logits);
    check_close(many.losses, one.losses);
  }
}

TEST_CASE("a head without a table that fits is refused") {
  const auto says = [](const std::string& text, const std::string& head,
                       const std::string& table = kReversible) {
    const std::string found = problem(table, head);
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
  };
  says("layer `head` (MaskedLMHead) needs `vocabulary_size` or `token_embedding`",
       "kernel_initializer: zeros");
  says("`hidden` (Dense) has no table of tokens", "token_embedding: hidden");
  says("`ids` (Input) has no table of tokens", "token_embedding: ids");
  says("(MaskedLMHead) is 5, but `tokens` has 6 rows",
       "token_embedding: tokens, vocabulary_size: 5");
  says("(MaskedLMHead) has 3 features, and the input 4", "token_embedding: tokens",
       "Embedding: {name: tokens, input_dim: 6, output_dim: 3, inputs: ids}");
  says("`token_embedding` `token` of layer `head` is no layer", "token_embedding: token");
  CHECK(problem(kReversible, "token_embedding: tokens, vocabulary_size: 6").empty());
}
