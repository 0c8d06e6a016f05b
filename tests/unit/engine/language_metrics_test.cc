// Which metrics an evaluation of a language model gets without being asked.
#include "engine/language_metrics.h"

#include <doctest/doctest.h>

#include "support/engine_case.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

struct Added {
  std::vector<std::string> names;
  std::vector<ConfigObject> objects;
};

// What the config gets for integer targets, or those of `target`.
Added added(const std::string& compile, std::optional<double> bytes_per_token,
            DType target = DType::kInt32) {
  Config config = config_from(
      "model: {layers: [{Input: {shape: [4], dtype: int32}}, {Embedding: {input_dim: 5, "
      "output_dim: 5}}]}\ncompile: " +
      compile + "\n");
  Dataset data = dataset_of(HostTensor(DType::kInt32, {2, 4}), HostTensor(target, {2, 4}));
  data.bytes_per_token = bytes_per_token;
  const size_t before = config.compile.weighted_metrics.size();
  add_language_metrics(data, config);
  Added out;
  for (size_t i = before; i < config.compile.weighted_metrics.size(); ++i) {
    out.objects.push_back(config.compile.weighted_metrics[i].object);
    out.names.push_back(out.objects.back().class_name);
  }
  return out;
}

using Names = std::vector<std::string>;
const std::string kLoss = "{loss: {SparseCategoricalCrossentropy: {from_logits: true}}}";

}  // namespace

TEST_CASE("perplexity, and bits per byte where bytes are known") {
  const Added both = added(kLoss, 3.5);
  CHECK(both.names == Names{"Perplexity", "BitsPerByte"});
  CHECK(both.objects[0].boolean("from_logits"));
  CHECK(both.objects[1].number("bytes_per_token") == 3.5);
  CHECK(added(kLoss, 0.0).names == Names{"Perplexity"});
  CHECK(added("{loss: crossentropy}", 0.0).names == Names{"Perplexity"});
  const Added ignoring = added("{loss: {SparseCategoricalCrossentropy: {ignore_class: -1}}}", 0.0);
  CHECK(ignoring.objects[0].integer("mask_token_id") == -1);
  CHECK_FALSE(ignoring.objects[0].boolean("from_logits"));
}

TEST_CASE("neither where the config has it, nor for what is no language") {
  CHECK(added("{loss: sparse_categorical_crossentropy, metrics: [Perplexity]}", 2.0).names ==
        Names{"BitsPerByte"});
  CHECK(added(kLoss, std::nullopt).names.empty());
  CHECK(added("{loss: mse}", 1.0).names.empty());
  CHECK(added("{loss: categorical_crossentropy}", 1.0, DType::kFloat32).names.empty());
}
