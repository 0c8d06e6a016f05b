// The files of a tokenizer as the text of one tokenizer.json.
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/sentence_piece.h"
#include "data/tokenizer/spec.h"
#include "data/tokenizer/tokenizer_json.h"

namespace meshtrain {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr const char* kEndOfText = "<|endoftext|>";

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string read_limited(const std::string& path) {
  return read_file(open_input(path, "E300", "E300").path(), kMaxTokenizerBytes);
}

// The lines of merges.txt but the one with the version.
json merge_list(const std::string& path) {
  const std::string text = read_limited(path);
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

json added_token(const std::string& content, const json& id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::string gpt2_text(const std::string& folder) {
  const std::string vocabulary_path = folder + "/vocab.json",
                    added_path = folder + "/added_tokens.json";
  const json vocabulary = parse_tokenizer_json(read_limited(vocabulary_path), vocabulary_path);
  json added = json::array();
  if (vocabulary.contains(kEndOfText)) {
    added.push_back(added_token(kEndOfText, vocabulary.at(kEndOfText)));
  }
  if (exists(added_path)) {
    const json tokens = parse_tokenizer_json(read_limited(added_path), added_path);
    for (const auto& [content, id] : tokens.items()) {
      if (content != kEndOfText) {
        added.push_back(added_token(content, id));
      }
    }
  }
  return json_text(json{
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merge_list(folder + "/merges.txt")}}}});
}

// A token a line, by id. BERT's, with the choices of `tokenizer_config.json` where there is one.
std::string bert_text(const std::string& folder) {
  const std::string path = folder + "/vocab.txt", config_path = folder + "/tokenizer_config.json";
  json vocabulary = json::object(), added = json::array();
  int32_t id = 0;
  for (std::string& line : split(read_limited(path), '\n')) {
    if (line.ends_with('\r'))
      line.pop_back();
    if (!line.empty() && !vocabulary.emplace(line, id).second)
      read_error("E318", path, "line {}: the token `{}` is there twice", id + 1, line);
    ++id;
  }
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (vocabulary.contains(token))
      added.push_back(added_token(token, vocabulary.at(token)));
  }
  const json config = exists(config_path)
                          ? parse_tokenizer_json(read_limited(config_path), config_path)
                          : json::object();
  const json unknown = config.value("unk_token", json("[UNK]"));
  return json_text(
      json{{"version", "1.0"},
           {"added_tokens", std::move(added)},
           {"normalizer",
            {{"type", "BertNormalizer"},
             {"clean_text", true},
             {"handle_chinese_chars", config.value("tokenize_chinese_chars", json(true))},
             {"strip_accents", config.value("strip_accents", json())},
             {"lowercase", config.value("do_lower_case", json(true))}}},
           {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
           {"post_processor", nullptr},
           {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
           {"model",
            {{"type", "WordPiece"},
             {"unk_token", unknown.is_string() ? unknown : json("[UNK]")},
             {"continuing_subword_prefix", "##"},
             {"max_input_chars_per_word", 100},
             {"vocab", std::move(vocabulary)}}}});
}

// The text of a tokenizer that is given as its file.
std::string read_tokenizer_file(const std::string& path) {
  if (path.ends_with(".json")) {
    return read_limited(path);
  }
  if (path.ends_with(".model")) {
    return sentence_piece_text(read_limited(path));
  }
  read_error("E300", path, "this is a file; name its folder, a tokenizer.json or a .model");
}

}  // namespace

std::string read_tokenizer_text(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_regular_file(folder, error)) {
    return read_tokenizer_file(folder);
  }
  const std::string path = folder + "/tokenizer.json";
  if (exists(path)) {
    return read_limited(path);
  }
  if (exists(folder + "/vocab.json") && exists(folder + "/merges.txt")) {
    return gpt2_text(folder);
  }
  if (exists(folder + "/vocab.txt")) {
    return bert_text(folder);
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (exists(folder + "/" + name)) {
      return sentence_piece_text(read_limited(folder + "/" + name));
    }
  }
  read_error("E300", folder,
             "no tokenizer is here: it has neither `tokenizer.json` nor `vocab.json` and "
             "`merges.txt`, `vocab.txt`, `tokenizer.model` nor `spiece.model`");
}

}  // namespace meshtrain
