#include "data/masked_lm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "data/checks.h"
#include "data/splits.h"
#include "source_config.h"

namespace meshtrain {
namespace {

using namespace test;

constexpr int64_t kVocabulary = 50, kMask = 3, kPad = 0;

// Samples of random ids from 4 on; the last `padding` of each are kPad.
Dataset random_ids(int64_t samples, int64_t length, int64_t padding = 0,
                   DType dtype = DType::kInt32) {
  HostTensor ids(dtype, {samples, length});
  for (int64_t i = 0; i < ids.size(); ++i) {
    const bool is_padding = i % length >= length - padding;
    ids.set(i, is_padding ? kPad : 4 + philox_bits(7, 1, 0, i) % (kVocabulary - 4));
  }
  Dataset dataset;
  dataset.description = "ids";
  dataset.inputs.push_back({"x", make_rows(std::move(ids))});
  dataset.num_samples = samples;
  return dataset;
}

MaskedLMOptions options_of(float rate, int64_t length = 0) {
  return {.vocabulary_size = kVocabulary,
          .mask_selection_rate = rate,
          .mask_token_id = kMask,
          .mask_selection_length = length};
}

struct Masked {
  explicit Masked(const Dataset& dataset)
      : tokens(whole(dataset.inputs.at(0).rows)),
        positions(whole(dataset.inputs.at(1).rows)),
        ids(whole(dataset.targets.at(0).rows)),
        weights(whole(dataset.sample_weight)) {}
  HostTensor tokens, positions, ids, weights;
};

bool same(const HostTensor& a, const HostTensor& b) {
  return a.shape() == b.shape() && std::equal(a.bytes(), a.bytes() + a.num_bytes(), b.bytes());
}

// Numbers of RandomItemSelector of tensorflow_text 2.21.1, for ids of one sample at 0.15.
TEST_CASE("as many tokens are hidden as TensorFlow Text hides") {
  constexpr std::pair<int64_t, int64_t> kCounts[] = {
      {0, 0}, {7, 2}, {20, 3}, {40, 6}, {60, 9}, {100, 16}, {128, 20}, {140, 21}, {200, 31}};
  for (const auto& [selectable, count] : kCounts) {
    CHECK(num_masked(selectable, 0.15F) == count);
  }
}

TEST_CASE("the arrays say where tokens were hidden and which") {
  constexpr int64_t kSamples = 2000, kLength = 40, kPadding = 10, kCount = 5;  // ceil(0.15 30)
  Dataset dataset = random_ids(kSamples, kLength, kPadding);
  const HostTensor original = whole(dataset.inputs[0].rows);
  mask_tokens(options_of(0.15F, 7), 1337, {}, dataset);
  CHECK(dataset.inputs[0].name == "token_ids");
  CHECK(dataset.inputs[1].name == "mask_positions");
  CHECK(dataset.targets[0].name == "mask_ids");
  const Masked masked(dataset);
  CHECK(masked.positions.shape() == Shape{kSamples, 7});
  int64_t hidden = 0, random = 0, kept = 0;
  std::vector<int64_t> at(kLength), ids(kVocabulary);
  for (int64_t s = 0; s < kSamples; ++s) {
    std::vector<bool> is_hidden(kLength);
    for (int64_t i = 0; i < 7; ++i) {
      const auto position = static_cast<int64_t>(masked.positions.at(s * 7 + i));
      REQUIRE(masked.weights.at(s * 7 + i) == (i < kCount ? 1 : 0));
      if (i >= kCount) {
        REQUIRE((position == 0 && masked.ids.at(s * 7 + i) == 0));
        continue;
      }
      REQUIRE((i == 0 || position > masked.positions.at(s * 7 + i - 1)));
      REQUIRE(position < kLength - kPadding);
      REQUIRE(masked.ids.at(s * 7 + i) == original.at(s * kLength + position));
      is_hidden[static_cast<size_t>(position)] = true;
      ++at[static_cast<size_t>(position)];
      const double token = masked.tokens.at(s * kLength + position);
      if (token == kMask) {
        ++hidden;
      } else if (token == original.at(s * kLength + position)) {
        ++kept;
      } else {
        ++random;
        ++ids.at(static_cast<size_t>(token));
      }
    }
    for (int64_t i = 0; i < kLength; ++i) {
      REQUIRE((is_hidden[static_cast<size_t>(i)] ||
               masked.tokens.at(s * kLength + i) == original.at(s * kLength + i)));
    }
  }
  // Binomial counts, within four standard deviations. One random token in 50 is the same, one the
  // mask.
  const auto check_part = [](int64_t count, int64_t all, double part) {
    CHECK(std::abs(static_cast<double>(count) - static_cast<double>(all) * part) <=
          4 * std::sqrt(static_cast<double>(all) * part * (1 - part)));
  };
  constexpr int64_t kAll = kSamples * kCount;
  check_part(hidden, kAll, 0.8 + 0.1 / kVocabulary);
  check_part(kept, kAll, 0.1 + 0.1 / kVocabulary);
  for (int64_t i = 0; i < kLength - kPadding; ++i) {
    check_part(at[static_cast<size_t>(i)], kSamples, 5.0 / 30);
  }
  for (int64_t id = 0; id < kVocabulary; ++id) {
    const bool cannot = id == kMask;
    check_part(ids[static_cast<size_t>(id)], cannot ? 0 : random, 1.0 / (kVocabulary - 1));
  }
}

TEST_CASE("rates of 1 and 0, and tokens that stay") {
  for (const auto& [mask_rate, random_rate] : {std::pair(1.0, 0.0), {0.0, 0.0}}) {
    Dataset dataset = random_ids(20, 12);
    const HostTensor original = whole(dataset.inputs[0].rows);
    MaskedLMOptions options = options_of(0.5F);
    options.mask_token_rate = mask_rate;
    options.random_token_rate = random_rate;
    mask_tokens(options, 1, {}, dataset);
    const Masked masked(dataset);
    CHECK(masked.positions.shape() == Shape{20, 6});
    int64_t changed = 0;
    for (int64_t i = 0; i < original.size(); ++i) {
      changed += masked.tokens.at(i) != original.at(i);
      CHECK((masked.tokens.at(i) == original.at(i) || masked.tokens.at(i) == kMask));
    }
    CHECK(changed == (mask_rate == 1.0 ? 20 * 6 : 0));
  }
  Dataset dataset = random_ids(20, 12);
  MaskedLMOptions options = options_of(1.0F);
  options.unselectable_token_ids.resize(kVocabulary);
  std::iota(options.unselectable_token_ids.begin(), options.unselectable_token_ids.end(), 0);
  mask_tokens(options, 1, {}, dataset);
  const HostTensor weights = whole(dataset.sample_weight);
  CHECK(std::all_of(weights.data<float>(), weights.data<float>() + weights.size(),
                    [](float weight) { return weight == 0; }));
}

TEST_CASE("what is hidden depends on seed, pass, sample and position only") {
  const auto masked = [](uint64_t seed, int64_t samples = 30) {
    Dataset dataset = random_ids(samples, 16, 0, DType::kUInt16);
    mask_tokens(options_of(0.3F), seed, {}, dataset);
    return dataset;
  };
  const Dataset dataset = masked(5);
  const Masked first(dataset);
  CHECK(same(first.tokens, Masked(masked(5)).tokens));
  CHECK(same(first.tokens, Masked(in_pass(dataset, 0)).tokens));
  CHECK_FALSE(same(first.positions, Masked(masked(6)).positions));
  const Masked second(in_pass(dataset, 1));
  CHECK_FALSE(same(first.positions, second.positions));
  CHECK_FALSE(same(first.tokens, second.tokens));
  // Not on how many samples there are, or in which order they are read.
  CHECK(same(slice_dataset(dataset, 0, 10).inputs[1].rows->read_range(0, 10),
             whole(masked(5, 10).inputs[1].rows)));
  HostTensor backwards(DType::kInt32, {3, 16});
  const std::vector<int64_t> order = {29, 7, 7};
  dataset.inputs[0].rows->read(order, backwards.bytes());
  for (size_t i = 0; i < order.size(); ++i) {
    for (int64_t k = 0; k < 16; ++k) {
      CHECK(backwards.at(static_cast<int64_t>(i) * 16 + k) == first.tokens.at(order[i] * 16 + k));
    }
  }
}

TEST_CASE("parts of the data, and checked data, are others in each pass") {
  Dataset dataset = random_ids(30, 16);
  mask_tokens(options_of(0.3F), 5, {}, dataset);
  const HostTensor second = whole(in_pass(dataset, 1).inputs[0].rows);
  check_ids(dataset, 0, kVocabulary, "embedding");
  dataset.inputs[0].rows = cast_rows(dataset.inputs[0].rows, DType::kFloat32);
  dataset.inputs[0].rows = reshape_rows(dataset.inputs[0].rows, {4, 4});
  const Dataset selected = select_samples(slice_dataset(dataset, 10, 30), {4, 2});
  const HostTensor tokens = whole(in_pass(selected, 1).inputs[0].rows);
  for (int64_t k = 0; k < 16; ++k) {
    CHECK(tokens.at(k) == second.at(14 * 16 + k));
    CHECK(tokens.at(16 + k) == second.at(12 * 16 + k));
  }
}

TEST_CASE("data that cannot be masked are refused") {
  const auto message = [](Dataset dataset, const MaskedLMOptions& options) -> std::string {
    try {
      mask_tokens(options, 1, place(2), dataset);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  Dataset dataset = random_ids(2, 8);
  CHECK(message(dataset, options_of(0.5F, 9)).find("E113") != std::string::npos);
  dataset.targets.push_back(dataset.inputs[0]);
  CHECK(message(dataset, options_of(0.5F)).find("write `target: null`") != std::string::npos);
  dataset.targets.clear();
  dataset.sample_weight = dataset.inputs[0].rows;
  CHECK(message(dataset, options_of(0.5F)).find("have weights") != std::string::npos);
  dataset.sample_weight = nullptr;
  dataset.inputs.push_back(dataset.inputs[0]);
  CHECK(message(dataset, options_of(0.5F)).find("have 2 inputs") != std::string::npos);
  dataset.inputs[1].is_optional = true;
  CHECK(message(dataset, options_of(0.5F)).empty());
  dataset.inputs[0].rows = cast_rows(dataset.inputs[0].rows, DType::kFloat32);
  CHECK(message(dataset, options_of(0.5F)).find("samples of float32 (8") != std::string::npos);
}

}  // namespace
}  // namespace meshtrain
