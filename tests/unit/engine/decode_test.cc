// Engine::decode_step against the whole forward pass: the same logits at every position, however
// the steps are cut into runs, on every mesh.
#include <doctest/doctest.h>

#include <cmath>

#include "support/engine_case.h"
#include "support/splitmix.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

constexpr int64_t kRows = 4, kLength = 12, kIds = 11;

// `layers` behind an Input of kLength ids; logits of kIds ids.
std::string config_of(const std::string& layers, const std::string& dtype = "float64") {
  return "dtype_policy: " + dtype + R"(
distribution: {type: ModelParallel, device_mesh: {shape: [1, 1], axis_names: [data, model]},
               layout_map: {".*embeddings": [null, model]}}
model:
  layers:
    - Input: {name: ids, shape: [12], dtype: int32}
)" + layers +
         R"(
compile: {optimizer: sgd, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
)";
}

constexpr const char* kGpt = R"(
    - TokenAndPositionEmbedding: {vocabulary_size: 11, sequence_length: 12, embedding_dim: 8}
    - TransformerDecoder: {intermediate_dim: 16, num_heads: 2, dropout: 0.3, normalize_first: true}
    - TransformerDecoder: {intermediate_dim: 16, num_heads: 2, activation: gelu}
    - Dense: {units: 11}
)";
// Rotary positions, fewer heads of keys, a window.
constexpr const char* kLlama = R"(
    - Embedding: {input_dim: 11, output_dim: 8}
    - RMSNormalization: {name: n}
    - GroupQueryAttention: {name: a, head_dim: 4, num_query_heads: 4, num_key_value_heads: 2,
        use_bias: false, sliding_window: 5, rotary: {RotaryEmbedding: {}}, inputs: [n, n],
        call: {use_causal_mask: true}}
    - Add: {name: s, inputs: [n, a]}
    - RMSNormalization: {name: m}
    - Dense: {name: gate, units: 16, activation: silu, inputs: m}
    - Dense: {name: up, units: 16, inputs: m}
    - Multiply: {inputs: [gate, up]}
    - Dense: {name: down, units: 8}
    - Add: {inputs: [s, down]}
    - Dense: {units: 11}
)";
constexpr const char* kMixture = R"(
    - TokenAndPositionEmbedding: {vocabulary_size: 11, sequence_length: 12, embedding_dim: 8}
    - TransformerDecoder: {intermediate_dim: 16, num_heads: 2, normalize_first: true}
    - SparseMoE: {num_experts: 4, intermediate_dim: 6}
    - Dense: {units: 11}
)";
constexpr const char* kMasked = R"(
    - Embedding: {name: e, input_dim: 11, output_dim: 8, mask_zero: true}
    - SinePositionEncoding: {name: p}
    - Add: {name: s, inputs: [e, p]}
    - MultiHeadAttention: {num_heads: 2, key_dim: 4, inputs: [s, s], call: {use_causal_mask: true}}
    - Dense: {units: 11}
)";
// Inputs of positions and documents.
constexpr const char* kDocuments = R"(
    - Input: {name: positions, shape: [12], dtype: int32}
    - Input: {name: segments, shape: [12], dtype: int32}
    - Embedding: {name: words, input_dim: 11, output_dim: 8, inputs: ids}
    - Embedding: {name: places, input_dim: 12, output_dim: 8, inputs: positions}
    - Add: {name: x, inputs: [words, places]}
    - MultiHeadAttention: {num_heads: 2, key_dim: 4, call: {use_causal_mask: true},
        inputs: {query: x, value: x, segments: segments, positions: positions}}
    - Dense: {units: 11}
)";
constexpr const char* kRecurrent = R"(
    - Embedding: {input_dim: 11, output_dim: 8, mask_zero: true}
    - LSTM: {units: 5, return_sequences: true}
    - GRU: {units: 4, return_sequences: true}
    - SimpleRNN: {units: 6, return_sequences: true}
    - Dense: {units: 11}
)";

constexpr const char* kConvolutions = R"(
    - Embedding: {name: e, input_dim: 11, output_dim: 8}
    - Conv1D: {name: a, filters: 8, kernel_size: 3, padding: causal, activation: tanh}
    - Conv1D: {name: b, filters: 8, kernel_size: 2, dilation_rate: 4, groups: 2, padding: causal}
    - Add: {name: s, inputs: [a, b]}
    - Conv1D: {filters: 6, kernel_size: 2, padding: causal}
    - Conv1D: {filters: 11, kernel_size: 1}
)";

std::vector<int32_t> ids_of(uint64_t seed) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < kRows * kLength; ++i)
    ids.push_back(static_cast<int32_t>(splitmix_below(seed, i, kIds)));
  return ids;
}

std::vector<SequenceInput> inputs_of(const std::string& layers) {
  if (layers != kDocuments)
    return {SequenceInput::kIds};
  return {SequenceInput::kIds, SequenceInput::kPositions, SequenceInput::kSegments};
}

Dataset& with_documents(Dataset& data, const std::string& layers) {
  if (layers != kDocuments)
    return data;
  std::vector<int32_t> positions, segments(kRows * kLength, 1);
  for (int32_t i = 0; i < kRows * kLength; ++i)
    positions.push_back(i % kLength);
  for (const auto* values : {&positions, &segments})
    data.inputs.push_back(
        {"", make_rows(tensor_of<int32_t>(DType::kInt32, {kRows, kLength}, *values))});
  return data;
}

struct Case {
  explicit Case(const std::string& layers, const std::vector<std::string>& overrides = {},
                bool reorders = false, const std::string& dtype = "float64")
      : config(config_from(config_of(layers, dtype), overrides)),
        ids(ids_of(3)),
        data(dataset_of(tensor_of<int32_t>(DType::kInt32, {kRows, kLength}, ids),
                        tensor_of<int32_t>(DType::kInt32, {kRows, kLength}, ids))),
        engine(config, data_spec(with_documents(data, layers)),
               {.num_workers = 2, .decode = {kRows, inputs_of(layers), reorders}}) {
    for (const std::string& path : engine.weight_paths()) {  // biases, too, are not zeros
      HostTensor value = engine.read_variable(path);
      for (int64_t i = 0; i < value.size(); ++i)
        value.set(i,
                  splitmix_signed(std::hash<std::string>()(path), static_cast<uint64_t>(i), 0.7));
      engine.write_variable(path, value);
    }
  }

  std::vector<int32_t> cut(int64_t first, int64_t steps) const {
    std::vector<int32_t> out;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto begin = ids.begin() + row * kLength + first;
      out.insert(out.end(), begin, begin + steps);
    }
    return out;
  }

  HostTensor whole_logits() {
    const std::vector<int64_t> rows = {0, 1, 2, 3};
    return std::move(engine.predict_step({&data, rows})[0]);
  }

  Config config;
  std::vector<int32_t> ids;
  Dataset data;
  Engine engine;
};

double difference(const HostTensor& part, const HostTensor& whole, int64_t first) {
  double most = 0;
  const int64_t steps = part.shape()[1];
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t id = 0; id < kIds; ++id) {
        const double a = part.at((row * steps + step) * kIds + id);
        const double b = whole.at((row * kLength + first + step) * kIds + id);
        most = std::max(most, std::abs(a - b));
      }
    }
  }
  return most;
}

// Runs of these lengths, from the first step on.
void check_cuts(Case& test, const std::vector<int64_t>& cuts, double bound) {
  const HostTensor whole = test.whole_logits();
  int64_t first = 0;
  for (const int64_t steps : cuts) {
    CAPTURE(first);
    CAPTURE(steps);
    const HostTensor part = std::move(test.engine.decode_step(test.cut(first, steps), first)[0]);
    REQUIRE(part.shape() == Shape{kRows, steps, kIds});
    CHECK(difference(part, whole, first) < bound);
    first += steps;
  }
}

std::string obstacle_of(const std::string& layers) {
  const Config config = config_from(config_of(layers));
  const Setup setup(config, nullptr, {}, 1, 0, {kRows, {SequenceInput::kIds}, false});
  return setup.decode_obstacle();
}

}  // namespace

TEST_CASE("steps with caches have the logits of the whole forward pass") {
  const std::vector<int64_t> singles(kLength, 1);
  for (const char* layers :
       {kGpt, kLlama, kMixture, kMasked, kDocuments, kRecurrent, kConvolutions}) {
    CAPTURE(layers);
    for (const char* mesh : {"[1, 1]", "[2, 2]", "[4, 1]", "[1, 2]"}) {
      CAPTURE(mesh);
      Case test(layers, {std::string("distribution.device_mesh.shape=") + mesh});
      REQUIRE(test.engine.setup().decode_obstacle() == "");
      CHECK(test.engine.setup().is_decode_bounded() ==
            (layers != kRecurrent && layers != kConvolutions));
      check_cuts(test, singles, 1e-12);
      check_cuts(test, {5, 1, 4, 2}, 1e-12);  // position 0 begins anew
    }
    Case test(layers, {}, false, "float32");
    check_cuts(test, {8, 1, 1, 1, 1}, 1e-5);
  }
}

TEST_CASE("rows continue the rows that they name") {
  for (const char* layers : {kGpt, kRecurrent, kConvolutions}) {
    for (const char* mesh : {"[1, 1]", "[2, 2]"}) {
      CAPTURE(layers);
      CAPTURE(mesh);
      Case test(layers, {std::string("distribution.device_mesh.shape=") + mesh}, true);
      const HostTensor whole = test.whole_logits();
      const std::vector<int32_t> same = {0, 1, 2, 3}, order = {2, 2, 0, 3};
      test.engine.decode_step(test.cut(0, 6), 0, same);
      std::vector<int32_t> next;
      for (const int32_t row : order)
        next.push_back(test.ids[static_cast<size_t>(row * kLength + 6)]);
      const HostTensor part = std::move(test.engine.decode_step(next, 6, order)[0]);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t id = 0; id < kIds; ++id) {
          const double wanted =
              whole.at((order[static_cast<size_t>(row)] * kLength + 6) * kIds + id);
          CHECK(part.at(row * kIds + id) == doctest::Approx(wanted).epsilon(1e-12));
        }
      }
    }
  }
}

TEST_CASE("what joins steps otherwise is named") {
  const std::string embedding = "    - Embedding: {input_dim: 11, output_dim: 8}\n";
  const auto says = [&](const std::string& layers, const std::string& text) {
    CHECK(obstacle_of(embedding + layers) == text);
  };
  says(
      "    - MultiHeadAttention: {name: a, num_heads: 2, key_dim: 4, inputs: [embedding, "
      "embedding]}\n",
      "`a/attention` (attention) reads later steps: it is not causal");
  says("    - LSTM: {name: l, units: 4, go_backwards: true, return_sequences: true}\n",
       "`l/reverse` (reverse) joins steps");
  says("    - Conv1D: {name: c, filters: 3, kernel_size: 3, padding: same}\n",
       "`c/conv` (conv) joins steps");
  says("    - Flatten: {name: f}\n    - Dense: {units: 11}\n", "`f/reshape` (reshape) joins steps");
  says("    - GlobalAveragePooling1D: {name: g}\n", "`g/reduce_sum` (reduce_sum) joins steps");
}
