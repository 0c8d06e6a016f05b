// Models of SentencePiece (`tokenizer.model` of Llama 2, `spiece.model` of T5), by Google's library
// in a part of its own: only what reads such a model loads it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

// Thread-safe.
class SentencePieceModel {
 public:
  virtual ~SentencePieceModel() = default;
  virtual int32_t size() const = 0;  // ids are below it
  // -1 for what is no piece.
  virtual int32_t find(std::string_view piece) const = 0;
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> ids) const = 0;  // of ids below size()
};

// What libmeshtrain_sentencepiece.so gives.
class SentencePieceLibrary {
 public:
  virtual ~SentencePieceLibrary() = default;
  // `bytes` of a model. Null, with the reason, where they are none.
  virtual std::unique_ptr<SentencePieceModel> load(std::string_view bytes, std::string& reason) = 0;
};
inline constexpr int kSentencePieceAbi = 1;
inline constexpr const char* kSentencePieceSymbol = "meshtrain_sentencepiece";

// The model with these bytes; `path` is for messages. Throws ConfigError E327 in a program without
// the library, with what adds it, and E318 for bytes that are no model.
std::shared_ptr<const SentencePieceModel> load_sentence_piece(std::string_view bytes,
                                                              const std::string& path);

// Such a model as the text of a tokenizer.json of our own, which a run keeps, and back.
std::string sentence_piece_text(std::string_view bytes);
// Nothing for the text of another tokenizer.
std::optional<std::string> sentence_piece_bytes(std::string_view text);

}  // namespace meshtrain
