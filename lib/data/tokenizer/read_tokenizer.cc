// The files of a tokenizer as the text of one tokenizer.json.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "data/tokenizer/sentence_piece.h"
#include "data/tokenizer/spec.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/tokenizer_text.h"

namespace meshtrain {
namespace {

using nlohmann::json;

constexpr const char* kEndOfText = "<|endoftext|>";

// An empty object where there is no such file.
json tokenizer_config(const std::string& path) {
  return is_tokenizer_file(path) ? parse_tokenizer_json(read_tokenizer_file(path), path)
                                 : json::object();
}

// A token of `tokenizer_config.json`: its text, or an object with it.
std::string token_text(const TokenizerField& field, const char* otherwise) {
  return field.json().is_object() ? field["content"].text() : field.text_or(otherwise);
}

using SpecialTokens = std::vector<std::pair<const char*, const char*>>;  // keys and defaults

// `added_tokens_decoder`, and the special tokens that the vocabulary has.
json added_of(const TokenizerField& config, const json& vocabulary, const SpecialTokens& special) {
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
  for (const auto& [key, otherwise] : special) {
    const std::string token = token_text(config[key], otherwise);
    if (vocabulary.contains(token) && known.insert(token).second) {
      added.push_back(added_token(token, vocabulary.at(token)));
    }
  }
  return added;
}

// Others have the same files, but split texts or add tokens in their own ways.
void check_gpt2_class(const TokenizerField& config, const std::string& path) {
  const std::string name = config["tokenizer_class"].text_or("GPT2Tokenizer");
  if (name != "GPT2Tokenizer" && name != "GPT2TokenizerFast") {
    read_error("E327", path,
               "`tokenizer_class` is `{}`, but `vocab.json` and `merges.txt` alone are read only "
               "for `GPT2Tokenizer`; a `tokenizer.json` beside them would be read",
               name);
  }
}

// GPT-2's, with the choices of `tokenizer_config.json` where there is one.
std::string gpt2_text(const std::string& folder) {
  const std::string vocabulary_path = folder + "/vocab.json",
                    added_path = folder + "/added_tokens.json",
                    config_path = folder + "/tokenizer_config.json";
  const json vocabulary =
      parse_tokenizer_json(read_tokenizer_file(vocabulary_path), vocabulary_path);
  const json choices = tokenizer_config(config_path);
  const TokenizerField config(choices, "", config_path);
  check_gpt2_class(config, config_path);
  json added = added_of(config, vocabulary,
                        {{"unk_token", kEndOfText},
                         {"bos_token", kEndOfText},
                         {"eos_token", kEndOfText},
                         {"pad_token", ""}});
  if (is_tokenizer_file(added_path) && !choices.contains("added_tokens_decoder")) {
    const json tokens = parse_tokenizer_json(read_tokenizer_file(added_path), added_path);
    for (const auto& [content, id] : tokens.items()) {
      const auto is_same = [&](const json& token) { return token.at("content") == content; };
      if (std::none_of(added.begin(), added.end(), is_same)) {
        added.push_back(added_token(content, id));
      }
    }
  }
  return byte_pair_text(vocabulary, folder + "/merges.txt", std::move(added),
                        gpt2_words(config["add_prefix_space"].flag(false)));
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
  json choices = tokenizer_config(path);
  if (is_tokenizer_file(added_path) && !choices.contains("added_tokens_decoder")) {
    const json tokens = parse_tokenizer_json(read_tokenizer_file(added_path), added_path);
    for (const auto& [content, id] : tokens.items()) {
      json token = added_token(content, id);
      token["special"] = false;
      token["normalized"] = true;
      choices["added_tokens_decoder"][json_text(id)] = std::move(token);
    }
  }
  const TokenizerField config(choices, "", path);
  check_bert_class(config, path);
  WordPieceChoices word_piece;
  word_piece.unknown = token_text(config["unk_token"], "[UNK]");
  word_piece.unknown_key = "`unk_token` of `tokenizer_config.json`";
  word_piece.lowers = config["do_lower_case"].flag(true);
  word_piece.strips_accents = config["strip_accents"].flag(word_piece.lowers);
  word_piece.splits_chinese = config["tokenize_chinese_chars"].flag(true);
  const std::string vocabulary_path = folder + "/vocab.txt";
  json vocabulary = vocabulary_lines(vocabulary_path);
  json added = added_of(config, vocabulary,
                        {{"pad_token", "[PAD]"},
                         {"unk_token", "[UNK]"},
                         {"cls_token", "[CLS]"},
                         {"sep_token", "[SEP]"},
                         {"mask_token", "[MASK]"}});
  return word_piece_text(vocabulary_path, std::move(vocabulary), std::move(added), word_piece);
}

// The text of a tokenizer that is given as its file.
std::string text_of_file(const std::string& path) {
  if (path.ends_with(".json")) {
    return read_tokenizer_file(path);
  }
  if (path.ends_with(".model")) {
    return sentence_piece_text(read_tokenizer_file(path));
  }
  read_error("E300", path, "this is a file; name its folder, a tokenizer.json or a .model");
}

}  // namespace

std::string read_tokenizer_text(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_regular_file(folder, error)) {
    return text_of_file(folder);
  }
  const std::string path = folder + "/tokenizer.json";
  if (is_tokenizer_file(path)) {
    std::string text = read_tokenizer_file(path);
    const json hub =
        is_tokenizer_file(folder + "/assets/tokenizer") ? parse_tokenizer_json(text, path) : json();
    return hub.contains("registered_name") ? hub_tokenizer_text(folder, hub) : text;
  }
  if (is_tokenizer_file(folder + "/vocab.json") && is_tokenizer_file(folder + "/merges.txt")) {
    return gpt2_text(folder);
  }
  if (is_tokenizer_file(folder + "/vocab.txt")) {
    return bert_folder_text(folder);
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (is_tokenizer_file(folder + "/" + name)) {
      return sentence_piece_text(read_tokenizer_file(folder + "/" + name));
    }
  }
  read_error("E300", folder,
             "no tokenizer is here: it has neither `tokenizer.json` nor `vocab.json` and "
             "`merges.txt`, `vocab.txt`, `tokenizer.model` nor `spiece.model`");
}

}  // namespace meshtrain
