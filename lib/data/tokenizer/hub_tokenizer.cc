// The tokenizers of Keras Hub's presets. Source: Keras Hub 0.32, tokenizers/.
#include <set>

#include "base/json.h"
#include "data/tokenizer/sentence_piece.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/tokenizer_text.h"

namespace meshtrain {
namespace {

using nlohmann::json;

// Llama 3 parts texts otherwise than GPT-2.
json byte_pair_words(const std::string& class_name, const TokenizerField& config) {
  constexpr const char* kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const TokenizerField adds_space = config["add_prefix_space"], own = config["split_pattern"];
  if (class_name != "Llama3Tokenizer" && own.is_null()) {
    return gpt2_words(adds_space.flag(false));
  }
  if (adds_space.flag(false)) {
    adds_space.unsupported("true, with another pattern than GPT-2's");
  }
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", own.text_or(kLlama3)}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

std::string byte_pair_of_hub(const std::string& assets, const std::string& class_name,
                             const TokenizerField& config) {
  const std::string path = assets + "/vocabulary.json";
  const json vocabulary = parse_tokenizer_json(read_tokenizer_file(path), path);
  const TokenizerField tokens = config["unsplittable_tokens"];
  json added = json::array();
  for (size_t i = 0; i < tokens.list_size(); ++i) {
    if (const std::string token = tokens[i].text(); vocabulary.contains(token)) {
      added.push_back(added_token(token, vocabulary.at(token)));
    }
  }
  return byte_pair_text(vocabulary, assets + "/merges.txt", std::move(added),
                        byte_pair_words(class_name, config));
}

// The tokens that texts may have: by default Hub reads `[CLS]` in a text as any word.
json word_piece_added(const TokenizerField& config, const json& vocabulary) {
  json added = json::array();
  if (!config["special_tokens_in_strings"].flag(false)) {
    return added;
  }
  std::set<std::string> tokens = {"[CLS]", "[SEP]", "[PAD]", "[MASK]"};
  const TokenizerField more = config["special_tokens"];
  for (size_t i = 0; i < more.list_size(); ++i) {
    tokens.insert(more[i].text());
  }
  for (const std::string& token : tokens) {
    if (vocabulary.contains(token)) {
      added.push_back(added_token(token, vocabulary.at(token)));
    }
  }
  return added;
}

std::string word_piece_of_hub(const std::string& path, const TokenizerField& config) {
  if (const TokenizerField splits = config["split"]; !splits.flag(true)) {
    splits.unsupported("false");
  }
  WordPieceChoices choices;
  choices.unknown = config["oov_token"].text_or("[UNK]");
  choices.unknown_key = "`oov_token` of the preset's `tokenizer.json`";
  choices.prefix = config["suffix_indicator"].text_or("##");
  choices.lowers = config["lowercase"].flag(false);
  choices.strips_accents = config["strip_accents"].flag(false);
  json vocabulary = vocabulary_lines(path);
  json added = word_piece_added(config, vocabulary);
  return word_piece_text(path, std::move(vocabulary), std::move(added), choices);
}

}  // namespace

std::string hub_tokenizer_text(const std::string& folder, const json& tokenizer) {
  const std::string assets = folder + "/assets/tokenizer", path = folder + "/tokenizer.json";
  if (is_tokenizer_file(assets + "/vocabulary.spm")) {
    return sentence_piece_text(read_tokenizer_file(assets + "/vocabulary.spm"));
  }
  const TokenizerField own(tokenizer, "", path);
  const TokenizerField config = own["config"];
  if (is_tokenizer_file(assets + "/vocabulary.txt")) {
    return word_piece_of_hub(assets + "/vocabulary.txt", config);
  }
  return byte_pair_of_hub(assets, own["class_name"].text_or(""), config);
}

}  // namespace meshtrain
