#include "data/masked_lm.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "data/with_type.h"

namespace meshtrain {
namespace {

// Streams of Philox: which tokens, what they become, and which random token.
enum Stream : uint32_t { kSelection = 0x4d4c4d01, kReplacement, kRandomToken };

struct MaskedSample {
  std::vector<int32_t> tokens;     // as the model sees them
  std::vector<int32_t> positions;  // of hidden tokens, ascending
  std::vector<int32_t> hidden;     // these tokens
};

// Hides tokens of samples in one pass over the data.
class TokenMasker {
 public:
  TokenMasker(const MaskedLMOptions& options, uint64_t seed, int64_t pass)
      : options_(options), seed_(seed), pass_(static_cast<uint32_t>(pass)) {}

  MaskedSample mask(int64_t sample, std::span<const int32_t> tokens) const {
    MaskedSample out{{tokens.begin(), tokens.end()}, selected(sample, tokens), {}};
    for (const int32_t position : out.positions) {
      int32_t& token = out.tokens[static_cast<size_t>(position)];
      out.hidden.push_back(token);
      token = replacement(index(sample, tokens.size(), position), token);
    }
    return out;
  }

 private:
  static uint64_t index(int64_t sample, size_t length, int32_t position) {
    return static_cast<uint64_t>(sample) * length + static_cast<uint64_t>(position);
  }

  // The selectable positions with the smallest random numbers, in ascending order.
  std::vector<int32_t> selected(int64_t sample, std::span<const int32_t> tokens) const {
    const std::vector<int64_t>& fixed = options_.unselectable_token_ids;
    std::vector<std::pair<uint32_t, int32_t>> drawn;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto position = static_cast<int32_t>(i);
      if (std::find(fixed.begin(), fixed.end(), tokens[i]) == fixed.end()) {
        drawn.emplace_back(
            philox_bits(seed_, kSelection, pass_, index(sample, tokens.size(), position)),
            position);
      }
    }
    const int64_t count = std::min(num_masked(std::ssize(drawn), options_.mask_selection_rate),
                                   options_.mask_selection_length);
    std::partial_sort(drawn.begin(), drawn.begin() + count, drawn.end());
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < count; ++i) {
      positions.push_back(drawn[static_cast<size_t>(i)].second);
    }
    std::sort(positions.begin(), positions.end());
    return positions;
  }

  int32_t replacement(uint64_t index, int32_t token) const {
    const double number = philox_bits(seed_, kReplacement, pass_, index) / 4294967296.0;
    if (number < options_.mask_token_rate) {
      return static_cast<int32_t>(options_.mask_token_id);
    }
    if (number < options_.mask_token_rate + options_.random_token_rate) {
      const uint64_t bits = philox_bits(seed_, kRandomToken, pass_, index);
      return static_cast<int32_t>(bits * static_cast<uint64_t>(options_.vocabulary_size) >> 32);
    }
    return token;
  }

  const MaskedLMOptions& options_;
  uint64_t seed_;
  uint32_t pass_;
};

enum class MaskArray : uint8_t { kTokens, kPositions, kIds, kWeights };

class MaskedRows final : public Rows {
 public:
  MaskedRows(RowsPtr ids, std::shared_ptr<const MaskedLMOptions> options, uint64_t seed,
             int64_t pass, MaskArray array)
      : ids_(std::move(ids)),
        options_(std::move(options)),
        seed_(seed),
        pass_(pass),
        array_(array),
        shape_(ids_->shape()) {
    shape_[1] = array == MaskArray::kTokens ? shape_[1] : options_->mask_selection_length;
  }

  DType dtype() const override {
    return array_ == MaskArray::kWeights ? DType::kFloat32 : DType::kInt32;
  }
  const Shape& shape() const override { return shape_; }
  RowsPtr in_pass(int64_t pass) const override {
    return std::make_shared<MaskedRows>(ids_, options_, seed_, pass, array_);
  }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    const TokenMasker masker(*options_, seed_, pass_);
    const auto length = static_cast<size_t>(ids_->shape()[1]);
    HostTensor tokens(DType::kInt32, {std::ssize(order), ids_->shape()[1]});
    ids_->read(order, tokens.bytes());
    std::fill_n(to, order.size() * row_bytes(), std::byte{0});  // what pads positions and weights
    for (size_t i = 0; i < order.size(); ++i, to += row_bytes()) {
      write(masker.mask(order[i], {tokens.data<int32_t>() + i * length, length}), to);
    }
  }

 private:
  void write(const MaskedSample& sample, std::byte* to) const {
    if (array_ == MaskArray::kWeights) {
      std::fill_n(reinterpret_cast<float*>(to), sample.positions.size(), 1.0F);
      return;
    }
    const std::vector<int32_t>& numbers = array_ == MaskArray::kTokens      ? sample.tokens
                                          : array_ == MaskArray::kPositions ? sample.positions
                                                                            : sample.hidden;
    std::copy(numbers.begin(), numbers.end(), reinterpret_cast<int32_t*>(to));
  }

  RowsPtr ids_;
  std::shared_ptr<const MaskedLMOptions> options_;
  uint64_t seed_;
  int64_t pass_;
  MaskArray array_;
  Shape shape_;
};

// The input whose tokens are hidden.
Dataset::Array& ids_of(Dataset& dataset, const SourceLoc& loc) {
  const auto refuse = [&](std::string problem, const char* help) {
    throw ConfigError("E324", loc,
                      fmt::format("`MaskedLMMaskGenerator` hides ids: {} {}", dataset.description,
                                  std::move(problem)))
        .help(help);
  };
  if (!dataset.targets.empty()) {
    refuse("have targets", "the hidden ids are the targets: write `target: null` in the source");
  }
  if (dataset.sample_weight) {
    refuse("have weights of samples", "the weights are 1 for each hidden id: leave them out");
  }
  std::vector<Dataset::Array*> inputs;
  for (Dataset::Array& input : dataset.inputs) {
    if (!input.is_optional) {
      inputs.push_back(&input);
    }
  }
  const Shape& shape = inputs.at(0)->rows->shape();
  if (inputs.size() != 1 || shape.size() != 2 || !is_integer(inputs[0]->rows->dtype())) {
    refuse(fmt::format("have {}",
                       inputs.size() == 1
                           ? fmt::format("samples of {} {}", dtype_name(inputs[0]->rows->dtype()),
                                         shape_string(without_first(shape)))
                           : fmt::format("{} inputs", inputs.size())),
           "it takes one input: a sequence of integers");
  }
  return *inputs[0];
}

}  // namespace

MaskedLMOptions masked_lm_options(const ConfigObject& transform) {
  const ConfigValue& fixed = transform.arg("unselectable_token_ids");
  return {
      .vocabulary_size = transform.integer("vocabulary_size"),
      .mask_selection_rate = static_cast<float>(transform.number("mask_selection_rate")),
      .mask_token_id = transform.integer("mask_token_id"),
      .mask_selection_length =
          transform.has("mask_selection_length") ? transform.integer("mask_selection_length") : 0,
      .mask_token_rate = transform.number("mask_token_rate"),
      .random_token_rate = transform.number("random_token_rate"),
      .unselectable_token_ids = fixed.is_list() ? fixed.integers() : std::vector{fixed.integer()}};
}

int64_t num_masked(int64_t selectable, float rate) {
  return static_cast<int64_t>(std::ceil(static_cast<float>(selectable) * rate));
}

void mask_tokens(const MaskedLMOptions& options, uint64_t seed, const SourceLoc& loc,
                 Dataset& dataset) {
  Dataset::Array& input = ids_of(dataset, loc);
  const int64_t length = input.rows->shape()[1];
  auto own = std::make_shared<MaskedLMOptions>(options);
  if (own->mask_selection_length == 0) {
    own->mask_selection_length = num_masked(length, own->mask_selection_rate);
  }
  if (own->mask_selection_length > length) {
    throw ConfigError("E113", loc,
                      fmt::format("`mask_selection_length` is {}; a sample has {} tokens",
                                  own->mask_selection_length, length))
        .help("leave it out: as many as `mask_selection_rate` selects of a sample");
  }
  const RowsPtr ids = input.rows->dtype() == DType::kInt32
                          ? input.rows
                          : cast_rows(std::move(input.rows), DType::kInt32);
  const auto rows = [&](MaskArray array) {
    return std::make_shared<MaskedRows>(ids, own, seed, 0, array);
  };
  input = {"token_ids", rows(MaskArray::kTokens)};
  dataset.inputs.push_back({"mask_positions", rows(MaskArray::kPositions)});
  dataset.targets.push_back({"mask_ids", rows(MaskArray::kIds)});
  dataset.sample_weight = rows(MaskArray::kWeights);
  if (dataset.bytes_per_token) {
    dataset.bytes_per_token = 0;  // hidden tokens are not all tokens of their text
  }
}

}  // namespace meshtrain
