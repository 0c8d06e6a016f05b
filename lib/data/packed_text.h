// Texts of unequal length as rows of equal length: a start token, the tokens, an end token,
// padding. Source: Keras Hub 0.32, layers/preprocessing/start_end_packer.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/source_classes.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace meshtrain {

// Not thread-safe, as its tokenizer.
class TextPacker {
 public:
  // `text` is that of a tokenizer.json; `path` is for messages. Throws as Tokenizer, and
  // ConfigError E314 for a start, end or padding token that the tokenizer lacks.
  TextPacker(const std::string& text, const std::string& path, const PackedTextOptions& options);

  // Appends the start token and the tokens of a text that is continued.
  void append_start(std::string_view text, const std::string& name, std::vector<int32_t>& ids);
  // Appends at most `length` ids: start, tokens, end. Tokens are cut where there are more. Returns
  // the number of tokens and end of the whole text. Throws as Tokenizer::encode().
  int64_t append(std::string_view text, const std::string& name, int64_t length,
                 std::vector<int32_t>& ids);

  int32_t padding() const { return padding_; }
  std::optional<int32_t> start() const { return start_; }
  std::optional<int32_t> end() const { return end_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::optional<int32_t> find(const Located<std::string>& token, const std::string& path) const;

  Tokenizer tokenizer_;
  std::optional<int32_t> start_, end_;
  int32_t padding_;
};

// Ids of texts, one after the other.
struct PackedTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> begins = {0};  // of each text in `ids`, and the end of the last one
  int32_t padding = 0;
  double bytes_per_token = 0;  // of whole texts, where each one's end is a token

  int64_t size() const { return std::ssize(begins) - 1; }
};
using PackedTextsPtr = std::shared_ptr<const PackedTexts>;

// Returns rows int32 (texts, length): ids [skipped, skipped + length) of each text, and the padding
// behind its last one.
RowsPtr packed_rows(PackedTextsPtr texts, int64_t length, int64_t skipped = 0);

// Returns rows (samples, length) of `dtype`, int32 or float32: 1 at the first `counts` places of
// each sample, 0 behind them.
RowsPtr padding_mask(std::vector<int32_t> counts, int64_t length, DType dtype);

// Adds the inputs that a model may have beside ids, as those of Keras Hub: "padding_mask" int32
// (samples, length), and "segment_ids", which are 0.
void add_padding_inputs(const std::vector<int32_t>& counts, int64_t length, Dataset& dataset);

}  // namespace meshtrain
