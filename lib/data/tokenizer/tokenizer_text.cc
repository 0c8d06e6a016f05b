#include "data/tokenizer/tokenizer_text.h"

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;

// The lines of merges.txt but the one with the version.
json merge_list(const std::string& path) {
  const std::string text = read_tokenizer_file(path);
  json merges = json::array();
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    if (line.empty() || (number == 1 && line.rfind("#version", 0) == 0)) {
      continue;
    }
    const size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos) {
      read_error("E318", path, "line {}: must be two tokens with one space between", number);
    }
    merges.push_back(std::move(line));
  }
  return merges;
}

}  // namespace

bool is_tokenizer_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string read_tokenizer_file(const std::string& path) {
  return read_file(open_input(path, "E300", "E300").path(), kMaxTokenizerBytes);
}

json added_token(const std::string& content, const json& id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::string byte_pair_text(const json& vocabulary, const std::string& merges_path, json added,
                           json pre_tokenizer) {
  return json_text(json{
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", std::move(pre_tokenizer)},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merge_list(merges_path)}}}});
}

json gpt2_words(bool adds_space) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", adds_space}, {"use_regex", true}};
}

json vocabulary_lines(const std::string& path) {
  json vocabulary = json::object();
  int32_t id = 0;
  for (std::string& line : split(read_tokenizer_file(path), '\n')) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    for (size_t at = 0; at < line.size();) {
      const size_t length = utf8_length(line, at);
      if (length == 0) {
        read_error("E318", path, "line {}: byte 0x{:02x} is not UTF-8", id + 1,
                   static_cast<unsigned char>(line[at]));
      }
      at += length;
    }
    const auto [place, is_new] =
        line.empty() ? std::pair(vocabulary.end(), true) : vocabulary.emplace(line, id);
    if (!is_new) {
      read_error("E318", path, "line {}: the token `{}` is that of line {}, too", id + 1, line,
                 place->get<int32_t>() + 1);
    }
    ++id;
  }
  if (vocabulary.empty()) {
    read_error("E318", path, "no token is here; each line is one, in the order of their ids");
  }
  return vocabulary;
}

std::string word_piece_text(const std::string& path, json vocabulary, json added,
                            const WordPieceChoices& choices) {
  if (!vocabulary.contains(choices.unknown)) {
    read_error("E318", path, "no line is `{}`, the token of unknown words; another one is {}",
               choices.unknown, choices.unknown_key);
  }
  return json_text(
      json{{"version", "1.0"},
           {"added_tokens", std::move(added)},
           {"normalizer",
            {{"type", "BertNormalizer"},
             {"clean_text", true},
             {"handle_chinese_chars", choices.splits_chinese},
             {"strip_accents", choices.strips_accents},
             {"lowercase", choices.lowers}}},
           {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
           {"post_processor", nullptr},
           {"decoder", {{"type", "WordPiece"}, {"prefix", choices.prefix}, {"cleanup", true}}},
           {"model",
            {{"type", "WordPiece"},
             {"unk_token", choices.unknown},
             {"continuing_subword_prefix", choices.prefix},
             {"max_input_chars_per_word", 100},
             {"vocab", std::move(vocabulary)}}}});
}

}  // namespace meshtrain
