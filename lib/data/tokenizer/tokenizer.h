// A tokenizer: text to ids and back, as the files of Hugging Face's `tokenizers` say.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/sentence_piece.h"
#include "data/tokenizer/spec.h"
#include "data/tokenizer/split_text.h"

namespace meshtrain {

// Not thread-safe: encode() caches words. A copy may be used by another thread.
class Tokenizer {
 public:
  // `text` is that of read_tokenizer_text(). Throws as parse_tokenizer() and load_sentence_piece().
  Tokenizer(std::string_view text, const std::string& path);

  // Ids are below it: one more than the largest. At least the rows that an Embedding needs.
  int64_t size() const {
    return sentence_piece_ ? sentence_piece_->size() : static_cast<int64_t>(tokens_.size());
  }

  // Returns the id of a token or of an added token, as the file writes it.
  std::optional<int32_t> find(std::string_view token) const;

  // Appends the ids of a text. Added tokens within it get their ids; none is put around it. `name`
  // is for messages. Throws ConfigError E318 with the offset of a byte that is no UTF-8, E314 for a
  // character without a token where the file names no unknown token.
  void encode(std::string_view text, std::vector<int32_t>& ids, const std::string& name);

  // Returns the bytes of ids, which are no UTF-8 when the ids cut a character. Special tokens are
  // left out with `skip_special`. An id without a token throws ConfigError E314.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

 private:
  // `is_first`: nothing of what is encoded stands before it.
  void encode_added(std::string_view text, bool is_normalized, bool is_first,
                    std::vector<int32_t>& ids);
  void encode_plain(std::string_view text, bool is_first, std::vector<int32_t>& ids);
  void encode_marked(std::string_view text, bool is_first, std::vector<int32_t>& ids);
  void encode_words(std::string_view text, size_t split, std::vector<int32_t>& ids);
  void encode_word(std::string_view word, std::vector<int32_t>& ids);
  std::vector<int32_t> word_ids(std::string_view word) const;
  std::vector<int32_t> word_piece_ids(std::string_view word) const;
  void add_character(std::string_view character, std::vector<int32_t>& ids) const;
  std::string normalize(std::string_view text) const;
  std::string decode_token(int32_t id, bool is_first) const;

  std::shared_ptr<const SentencePieceModel> sentence_piece_;  // in place of all below
  TokenizerSpec spec_;
  std::string path_, name_;          // of the tokenizer; of the text being encoded
  std::vector<std::string> tokens_;  // by id, added ones among them
  std::unordered_map<std::string, int32_t> ids_;
  std::array<int32_t, 256> byte_ids_{};           // of byte-level tokens and `<0x0A>`; -1
  std::unordered_map<char32_t, char> bytes_;      // of the printable alphabet
  std::array<std::vector<AddedToken>, 2> added_;  // by is_found_in_normalized, longest first
  std::vector<bool> is_added_, is_special_;       // by id
  std::vector<SplitPattern> splits_;
  BpeMerges merges_;
  std::unordered_map<std::string, std::vector<int32_t>> cache_;
};

}  // namespace meshtrain
