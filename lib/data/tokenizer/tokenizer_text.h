// Texts of a tokenizer.json that are made of other files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace meshtrain {

bool is_tokenizer_file(const std::string& path);

// Throws ConfigError E300 for a file that cannot be opened.
std::string read_tokenizer_file(const std::string& path);

// An entry of `added_tokens`.
nlohmann::json added_token(const std::string& content, const nlohmann::json& id);

// The pre-tokenizer of GPT-2. `adds_space`: before a text that does not begin with one.
nlohmann::json gpt2_words(bool adds_space = false);

// Of the files of a vocabulary and of merges. `added`: tokens by their texts. Throws ConfigError
// E318 for lines that are no merges.
std::string byte_pair_text(const nlohmann::json& vocabulary, const std::string& merges_path,
                           nlohmann::json added, nlohmann::json pre_tokenizer);

// A token a line, by id; an id whose line is empty has none. Throws ConfigError E318 for lines that
// are no UTF-8 or there twice, and where there are no tokens.
nlohmann::json vocabulary_lines(const std::string& path);

// How BERT's kind of tokenizer splits texts.
struct WordPieceChoices {
  std::string unknown = "[UNK]";  // what unknown words become
  std::string unknown_key;        // where that is said, for messages
  std::string prefix = "##";      // of tokens within a word
  bool lowers = true, strips_accents = true, splits_chinese = true;
};

// `path`: of the vocabulary. Throws ConfigError E318 when it lacks the token of unknown words.
std::string word_piece_text(const std::string& path, nlohmann::json vocabulary,
                            nlohmann::json added, const WordPieceChoices& choices);

// Of a preset of Keras Hub: `tokenizer`, the JSON of its `tokenizer.json`, has the arguments of its
// class, and a folder of assets the files. Throws ConfigError E300 and E318 for files that lack or
// are damaged, E327 for arguments that are not supported.
std::string hub_tokenizer_text(const std::string& folder, const nlohmann::json& tokenizer);

}  // namespace meshtrain
