// The files of a tokenizer as the text of one tokenizer.json.
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "base/utf8.h"
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

// Of the files of a vocabulary and of merges. `added`: tokens by their texts.
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

const json& gpt2_words() {
  static const json kWords = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return kWords;
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
  return byte_pair_text(vocabulary, folder + "/merges.txt", std::move(added), gpt2_words());
}

// A token of `tokenizer_config.json`: its text, or an object with it.
std::string token_text(const TokenizerField& field, const char* otherwise) {
  return field.json().is_object() ? field["content"].text() : field.text_or(otherwise);
}

// A token a line, by id. An id whose line is empty has no token.
json vocabulary_lines(const std::string& path) {
  json vocabulary = json::object();
  int32_t id = 0;
  for (std::string& line : split(read_limited(path), '\n')) {
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

// The tokens around texts, where the vocabulary has them, and `added_tokens_decoder`.
json bert_added(const TokenizerField& config, const json& vocabulary) {
  json added = json::array();
  std::set<std::string> known;
  const TokenizerField own = config["added_tokens_decoder"];
  for (const auto& [id, token] : own.json().items()) {
    const std::optional<int32_t> number = parse_number<int32_t>(id);
    if (!number || !token.is_object()) {
      own.wrong("an object of ids and tokens");
    }
    added.push_back(token);
    added.back()["id"] = *number;
    known.insert(own[id.c_str()]["content"].text());
  }
  for (const auto& [key, otherwise] :
       {std::pair{"pad_token", "[PAD]"}, std::pair{"unk_token", "[UNK]"},
        std::pair{"cls_token", "[CLS]"}, std::pair{"sep_token", "[SEP]"},
        std::pair{"mask_token", "[MASK]"}}) {
    const std::string token = token_text(config[key], otherwise);
    if (vocabulary.contains(token) && known.insert(token).second) {
      added.push_back(added_token(token, vocabulary.at(token)));
    }
  }
  return added;
}

// `config`: the choices of a `tokenizer_config.json` that a BERT needs.
std::string bert_text(const std::string& path, const TokenizerField& config) {
  json vocabulary = vocabulary_lines(path);
  const std::string unknown = token_text(config["unk_token"], "[UNK]");
  if (!vocabulary.contains(unknown)) {
    read_error("E318", path,
               "no line is `{}`, the token of unknown words; another one is `unk_token` of "
               "`tokenizer_config.json`",
               unknown);
  }
  const bool lowers = config["do_lower_case"].flag(true);
  json added = bert_added(config, vocabulary);
  return json_text(json{{"version", "1.0"},
                        {"added_tokens", std::move(added)},
                        {"normalizer",
                         {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", config["tokenize_chinese_chars"].flag(true)},
                          {"strip_accents", config["strip_accents"].flag(lowers)},
                          {"lowercase", lowers}}},
                        {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                        {"post_processor", nullptr},
                        {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                        {"model",
                         {{"type", "WordPiece"},
                          {"unk_token", unknown},
                          {"continuing_subword_prefix", "##"},
                          {"max_input_chars_per_word", 100},
                          {"vocab", std::move(vocabulary)}}}});
}

// Tokenizers of transformers that take a vocab.txt as BERT's does. Others split texts otherwise.
void check_bert_class(const TokenizerField& config, const std::string& path) {
  constexpr std::string_view kLikeBert[] = {"Bert",       "ConvBert",   "DistilBert", "Electra",
                                            "Funnel",     "LayoutLM",   "Lxmert",     "MPNet",
                                            "MobileBert", "SqueezeBert"};
  const TokenizerField name = config["tokenizer_class"];
  const std::string text = name.text_or("");
  std::string_view stem = text;
  for (const std::string_view end : {"Fast", "Tokenizer"}) {
    stem.remove_suffix(stem.ends_with(end) ? end.size() : 0);
  }
  if (!stem.empty() && !is_one_of(stem, kLikeBert)) {
    read_error("E327", path,
               "`tokenizer_class` is `{}`, which does not split texts as BERT's do, so `vocab.txt` "
               "alone is not read; a `tokenizer.json` beside it would be",
               text);
  }
}

// BERT's, with the choices of `tokenizer_config.json` where there is one. Folders of older versions
// of transformers have `added_tokens.json` in place of its `added_tokens_decoder`.
std::string bert_folder_text(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json",
                    added_path = folder + "/added_tokens.json";
  json choices = exists(path) ? parse_tokenizer_json(read_limited(path), path) : json::object();
  if (exists(added_path) && !choices.contains("added_tokens_decoder")) {
    const json tokens = parse_tokenizer_json(read_limited(added_path), added_path);
    for (const auto& [content, id] : tokens.items()) {
      json token = added_token(content, id);
      token["special"] = false;
      token["normalized"] = true;
      choices["added_tokens_decoder"][json_text(id)] = std::move(token);
    }
  }
  const TokenizerField config(choices, "", path);
  check_bert_class(config, path);
  return bert_text(folder + "/vocab.txt", config);
}

// Llama 3 parts texts otherwise than GPT-2. Source: Keras Hub, byte_pair_tokenizer.py.
json hub_words(const std::string& class_name, const json& config) {
  constexpr const char* kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json own = config.value("split_pattern", json());
  if (class_name != "Llama3Tokenizer" && !own.is_string()) {
    return gpt2_words();
  }
  const std::string pattern = own.is_string() ? own.get<std::string>() : kLlama3;
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

// Of a preset of Keras Hub: `tokenizer.json` has the arguments of its class, and a folder of assets
// the files.
std::string hub_text(const std::string& folder, const json& tokenizer) {
  const std::string assets = folder + "/assets/tokenizer";
  const json config = tokenizer.contains("config") && tokenizer.at("config").is_object()
                          ? tokenizer.at("config")
                          : json::object();
  const std::string class_name = tokenizer.value("class_name", json()).is_string()
                                     ? tokenizer.at("class_name").get<std::string>()
                                     : "";
  if (exists(assets + "/vocabulary.spm")) {
    return sentence_piece_text(read_limited(assets + "/vocabulary.spm"));
  }
  if (exists(assets + "/vocabulary.txt")) {
    const json choices = {{"do_lower_case", config.value("lowercase", json(false))},
                          {"strip_accents", config.value("strip_accents", json(false))},
                          {"unk_token", config.value("oov_token", json("[UNK]"))}};
    const std::string path = folder + "/tokenizer.json";
    return bert_text(assets + "/vocabulary.txt", TokenizerField(choices, "", path));
  }
  const std::string path = assets + "/vocabulary.json";
  const json vocabulary = parse_tokenizer_json(read_limited(path), path);
  json added = json::array();
  for (const json& token : config.value("unsplittable_tokens", json::array())) {
    if (token.is_string() && vocabulary.contains(token.get<std::string>())) {
      added.push_back(
          added_token(token.get<std::string>(), vocabulary.at(token.get<std::string>())));
    }
  }
  return byte_pair_text(vocabulary, assets + "/merges.txt", std::move(added),
                        hub_words(class_name, config));
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
    std::string text = read_limited(path);
    const json hub =
        exists(folder + "/assets/tokenizer") ? parse_tokenizer_json(text, path) : json();
    return hub.contains("registered_name") ? hub_text(folder, hub) : text;
  }
  if (exists(folder + "/vocab.json") && exists(folder + "/merges.txt")) {
    return gpt2_text(folder);
  }
  if (exists(folder + "/vocab.txt")) {
    return bert_folder_text(folder);
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
