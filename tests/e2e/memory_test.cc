// Memory of training steps beside what `plan` says, and that attention keeps no table of scores.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/json.h"
#include "command.h"

TEST_SUITE_BEGIN("cpu");

#if !defined(__SANITIZE_ADDRESS__)  // which keeps memory of its own

namespace meshtrain {
namespace {

constexpr const char* kDecoder = R"(
vars: {batch: 2, length: 256, depth: 4, remat: none}
data: {train: {source: text, path: t.txt, sequence_length: =length, stride: 16, target: sequence}}
blocks:
  Layer:
    inputs: [x]
    layers:
      - TransformerDecoder: {name: decoder, inputs: x, intermediate_dim: 256, num_heads: 2}
model:
  layers:
    - Input: {shape: [=length], dtype: int32}
    - TokenAndPositionEmbedding: {vocabulary_size: 16, sequence_length: =length, embedding_dim: 64}
    - Repeat: {times: =depth, name: "layer_{i}", block: Layer, remat: "${vars.remat}"}
    - Dense: {units: 16}
compile: {optimizer: SGD, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: =batch, epochs: 1}
)";

struct Memory {
  double planned = 0, measured = 0;  // bytes
};

class Decoder {
 public:
  Decoder() {
    std::string text;
    while (text.size() < 20000)
      text += "one two three";
    folder_.write("t.txt", text);
    folder_.write("c.yaml", kDecoder);
  }

  Memory memory(std::vector<std::string> settings) const {
    const auto output = [&](std::vector<std::string> words) {
      words.insert(words.end(), settings.begin(), settings.end());
      const Result result = meshtrain(std::move(words), folder_.path());
      REQUIRE_MESSAGE(result.exit_code == 0, result.err);
      return result.out;
    };
    Memory out;
    const auto plan = parse_json(output({"plan", "c.yaml", "--format", "json"}));
    out.planned = plan.at("memory").at("total").get<double>();
    std::filesystem::remove_all(folder_.path() + "/run");
    output({"train", "c.yaml", "-o", "run", "-q", "--limit-steps", "6", "--profile", "1"});
    const auto profile = parse_json(folder_.read("run/profile/profile.json"));
    out.measured = profile.at("memory").at("host_peak").get<double>();
    return out;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("the memory of a step is what `plan` says within 5%, whatever is computed again") {
  const Decoder decoder;
  for (const char* remat : {"none", "dots", "block"}) {
    CAPTURE(remat);
    const auto memory = [&](const char* batch) {
      return decoder.memory(
          {std::string("vars.remat=") + remat, std::string("vars.batch=") + batch});
    };
    const Memory small = memory("2"), large = memory("64");  // the program itself is in both
    const double planned = large.planned - small.planned;
    CHECK(planned > 5e7);
    CHECK(large.measured - small.measured == doctest::Approx(planned).epsilon(0.05));
  }
}

TEST_CASE("attention over 8192 steps keeps no table of scores") {
  constexpr double kTable = 8192.0 * 8192 * 4;  // of one head of one sequence
  const Memory memory = Decoder().memory({"vars.length=8192", "vars.batch=1", "vars.depth=1"});
  CHECK(memory.planned < kTable);
  CHECK(memory.measured < kTable);
}

}  // namespace meshtrain

#endif
