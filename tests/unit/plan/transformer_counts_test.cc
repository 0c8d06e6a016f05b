// Golden counts of collectives of Megatron's layouts on several meshes: tensor parallel, with a
// table of tokens over the vocabulary, with sequence parallel, and with few heads of keys.
#include "transformer_counts.h"

#include <doctest/doctest.h>

namespace meshtrain::testing {
namespace {

const std::string kSequenceParallel = "    .*/(middle|sum)/output: [data, model, null]\n";
const std::string kSplitTable = "    token_embedding/embeddings: [model, null]\n";

std::string grid(int data, int model) {
  return fmt::format("{{shape: [{}, {}], axis_names: [data, model]}}", data, model);
}

std::string replaced(std::string model, const std::string& from, const std::string& to) {
  const size_t at = model.find(from);
  REQUIRE(at != std::string::npos);
  return model.replace(at, from.size(), to);
}

std::string llama_of_key_heads(int heads) {
  return replaced(kLlama, "num_key_value_heads: 2", fmt::format("num_key_value_heads: {}", heads));
}

Counts tensor_parallel(int weights) {
  return {{"forward all_reduce model", 2 * kLayers},
          {"forward all_reduce data", 1},
          {"backward all_reduce model", 2 * kLayers},
          {"backward all_reduce data", weights}};
}

}  // namespace

TEST_CASE("transformers, tensor parallel: the counts are the same on every mesh") {
  const std::string llama = llama_of_key_heads(4);
  for (const std::string& mesh : {grid(2, 2), grid(2, 4), grid(4, 2)}) {
    CAPTURE(mesh);
    for (const std::string& rules :
         {std::string(kTensorParallel), std::string("  layout_map: megatron\n")}) {
      CHECK(counts(kGpt, mesh, rules) == text(tensor_parallel(kGptWeights)));
    }
    for (const std::string& rules :
         {std::string(kLlamaParallel), std::string("  layout_map: megatron\n")}) {
      CHECK(counts(llama.c_str(), mesh, rules) == text(tensor_parallel(kLlamaWeights)));
    }
  }
}

TEST_CASE("transformers, a table over the vocabulary: one sum to look up and two for the loss") {
  for (const std::string& mesh : {grid(2, 2), grid(2, 4), grid(4, 2)}) {
    CAPTURE(mesh);
    Counts expected = tensor_parallel(kGptWeights);
    // The rows that are looked up; the largest logits; sums, picked logits and hits as one.
    expected["forward all_reduce model"] += 3;
    // The cotangent of what the head reads. The table's gradients are local rows.
    expected["backward all_reduce model"] += 1;
    CHECK(counts(kGpt, mesh, kTensorParallel + kSplitTable) == text(expected));
    // The same of a head with a kernel of its own.
    expected["backward all_reduce data"] = kLlamaWeights;
    CHECK(counts(llama_of_key_heads(4).c_str(), mesh,
                 kLlamaParallel + kSplitTable + "    logits/kernel: [null, model]\n") ==
          text(expected));
  }
}

TEST_CASE("transformers, tensor and sequence parallel: two gathers and two scatters a layer") {
  // Norms, biases of rows, the table of tokens, and Llama's head: each device has the gradient of
  // its steps.
  constexpr int kGptWhole = (4 * kLayers + 2) + 2 * kLayers + 1, kLlamaWhole = 2 * kLayers + 1 + 2;
  const std::string gpt_rules =
      kTensorParallel + kSequenceParallel + "    embeddings_add/output: [data, model, null]\n";
  const std::string llama_rules =
      kLlamaParallel + kSequenceParallel + "    token_embedding/output: [data, model, null]\n";
  for (const std::string& mesh : {grid(2, 2), grid(2, 4)}) {
    CAPTURE(mesh);
    const Counts both = {{"forward all_gather model", 2 * kLayers},
                         {"forward reduce_scatter model", 2 * kLayers},
                         {"forward all_reduce data model", 1},
                         {"backward all_gather model", 2 * kLayers},
                         {"backward reduce_scatter model", 2 * kLayers}};
    Counts gpt = both, llama = both;
    // The gradients of the table of positions are those of other steps on other devices.
    gpt["backward all_gather model"] += 1;
    gpt["backward all_reduce data model"] = kGptWhole;
    gpt["backward all_reduce data"] = kGptWeights - kGptWhole;
    CHECK(counts(kGpt, mesh, gpt_rules) == text(gpt));
    llama["backward all_reduce data model"] = kLlamaWhole;
    llama["backward all_reduce data"] = kLlamaWeights - kLlamaWhole;
    CHECK(counts(llama_of_key_heads(4).c_str(), mesh, llama_rules) == text(llama));
  }
}

TEST_CASE("transformers, sequence parallel with a table over the vocabulary") {
  constexpr int kWhole = (4 * kLayers + 2) + 2 * kLayers;  // norms and biases of rows
  const std::string rules = kTensorParallel + kSequenceParallel + kSplitTable +
                            "    embeddings_add/output: [data, model, null]\n";
  for (const std::string& mesh : {grid(2, 2), grid(2, 4)}) {
    CAPTURE(mesh);
    Counts expected = {// One more: the steps before the head, which computes with all of them.
                       {"forward all_gather model", 2 * kLayers + 1},
                       // One more: the rows that are looked up.
                       {"forward reduce_scatter model", 2 * kLayers + 1},
                       {"forward all_reduce model", 2},  // the loss: maxima, then sums
                       {"forward all_reduce data", 1},
                       // Two more: the cotangents of all steps for the table of tokens, and the
                       // gradient of the table of positions.
                       {"backward all_gather model", 2 * kLayers + 2},
                       // One more: the cotangent of what the head reads.
                       {"backward reduce_scatter model", 2 * kLayers + 1},
                       {"backward all_reduce data model", kWhole},
                       {"backward all_reduce data", kGptWeights - kWhole}};
    CHECK(counts(replaced(kGpt, "input_dim: 32", "input_dim: 1024").c_str(), mesh, rules) ==
          text(expected));
  }
  // A table of 32 rows has fewer bytes than the cotangents of all steps: a device sums the rows of
  // its steps, and they are scattered. This term of the gradient is a sum over `data` and `model`,
  // the head's one over `data`: the former is scattered over `model`, and their sum is reduced.
  CHECK(counts(kGpt, grid(2, 4), rules) ==
        text({{"forward all_gather model", 2 * kLayers + 1},
              {"forward reduce_scatter model", 2 * kLayers + 1},
              {"forward all_reduce model", 2},
              {"forward all_reduce data", 1},
              {"backward all_gather model", 2 * kLayers + 1},
              {"backward reduce_scatter model", 2 * kLayers + 2},
              {"backward all_reduce data model", kWhole},
              {"backward all_reduce data", kGptWeights - kWhole}}));
}

TEST_CASE("transformers, whole keys and values: their gradients are reduced or gathered") {
  const std::string rules = R"(  layout_map:
    .*/query/kernel: [null, model, null]
    .*/attention_output/kernel: [model, null, null]
    .*/feedforward_(gate|intermediate)_dense/kernel: [null, model]
    .*/feedforward_output_dense/kernel: [model, null]
)";
  // One head: the kernels of keys and values have a term of the gradient on each device. The preset
  // has the same rules.
  for (const std::string& mesh : {grid(2, 2), grid(2, 4)}) {
    CAPTURE(mesh);
    Counts expected = tensor_parallel(kLlamaWeights);
    expected["backward all_reduce model"] += 2 * kLayers;
    CHECK(counts(llama_of_key_heads(1).c_str(), mesh, rules) == text(expected));
    CHECK(counts(llama_of_key_heads(1).c_str(), mesh, "  layout_map: megatron\n") ==
          text(expected));
  }
  // Two heads on two devices: each device computes with the head that its queries read, and has
  // the whole gradient of that head.
  Counts expected = tensor_parallel(kLlamaWeights);
  expected["backward all_gather model"] = 2 * kLayers;
  CHECK(counts(kLlama, grid(2, 2), rules) == text(expected));
  // Two heads on four devices: each head twice, so that a device computes with one of its own.
  expected = tensor_parallel(kLlamaWeights);
  expected["backward all_reduce model"] += 2 * kLayers;
  CHECK(counts(kLlama, grid(2, 4), rules) == text(expected));
  CHECK(counts(kLlama, grid(2, 4), "  layout_map: megatron\n") == text(expected));
}

}  // namespace meshtrain::testing
