// What a tokenizer's files say: a byte-pair encoding or WordPiece, and how a text becomes the words
// that it encodes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/plain_text.h"
#include "data/tokenizer/split_text.h"

namespace meshtrain {

// A token that is found in the text before anything else.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;              // left out by decode() on request
  bool takes_left = false;              // the white space before it belongs to it
  bool takes_right = false;             // the white space behind it belongs to it
  bool is_found_in_normalized = false;  // found after the normalizer
};

struct BpeMerge {
  int32_t left = 0, right = 0;  // ids of adjacent tokens
  int32_t result = 0;           // id of both as one
};

// Words are their longest tokens from the left.
struct WordPiece {
  std::string prefix = "##";     // of tokens within a word
  int64_t max_characters = 100;  // a longer word is unknown
};

// Spaces become `mark`, and words begin with it.
struct Metaspace {
  enum class Before : uint8_t { kNothing, kFirst, kAll };  // texts that get a mark, where none is

  std::string mark = "\u2581";
  Before before = Before::kAll;
  bool splits = true;  // else a text is one word
};

using Normalizer = std::function<std::string(std::string_view)>;

struct TokenizerSpec {
  std::vector<std::string> tokens;  // by id, as the file has them; empty where an id has no token
  std::vector<BpeMerge> merges;     // the first ones are merged first
  std::vector<AddedToken> added;
  std::optional<WordPiece> word_piece;  // in place of merges
  std::vector<Normalizer> normalizers;  // of texts between added tokens, one after the other
  bool has_bert_words = false;          // in place of splits
  std::optional<Metaspace> metaspace;   // in place of splits
  std::vector<WordSplit> splits;        // one after the other
  bool is_byte_level = false;           // tokens are texts of the printable alphabet of bytes
  bool adds_space = false;              // before a text that does not begin with one
  bool has_byte_tokens = false;         // bytes of unknown characters are `<0x0A>`
  bool prefers_whole_words = false;     // a word that is a token is not merged
  bool fuses_unknown = false;           // adjacent unknown characters are one unknown token
  std::optional<int32_t> unknown;       // id of what has no token
  std::vector<Replacement> decoded;     // in the tokens of decode()
  bool strips_first_space = false;      // in the text of decode()
  std::string first_mark;               // decode(): what the first token is without
  // decode(): spaces before tokens without this prefix; before all where it is empty.
  std::optional<std::string> joined;
  bool cleans_up = false;  // decode(): no spaces before punctuation
};

// Returns the text of a `tokenizer.json`: of `folder` itself where it is such a file or a .model of
// SentencePiece, of that file of the folder, or made of `vocab.json` and `merges.txt` (GPT-2's
// pattern) or BERT's `vocab.txt`, with `tokenizer_config.json` and `added_tokens.json` where they
// are, or of the files of a preset of Keras Hub. The text of SentencePiece's `tokenizer.model` or
// `spiece.model` is sentence_piece_text(). Throws ConfigError E300 when the folder has none of
// these, E318 for damaged files, E327 for a `tokenizer_class` that has other rules.
std::string read_tokenizer_text(const std::string& folder);

// Reads the text of a `tokenizer.json`; `path` is for messages. Throws ConfigError E318 for damaged
// texts and merges that do not fit, E327 for a tokenizer that is neither BPE nor WordPiece, which
// it names, and for parts that need utf8proc in a program without it.
TokenizerSpec parse_tokenizer(std::string_view text, const std::string& path);

// The regex that splits texts for GPT-2.
std::string_view gpt2_pattern();

}  // namespace meshtrain
