// Texts as BERT's tokenizers take them: normalized, and cut into words. By Unicode's tables, which
// are utf8proc's.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace meshtrain {

// `BertNormalizer` of Hugging Face's `tokenizers`; each step is done in this order.
struct BertNormalizer {
  bool cleans = true;          // controls are left out, white space becomes spaces
  bool parts_chinese = true;   // Chinese characters get spaces around them
  bool strips_accents = true;  // decomposed (NFD), without nonspacing marks
  bool lowers = true;          // lower case
};

// False in a program that was built without utf8proc: the functions below must not be called then.
bool has_bert_text();

// `text` must be UTF-8.
std::string bert_normalized(std::string_view text, const BertNormalizer& normalizer);

// Calls `use` for each word: texts between white space, and each punctuation mark by itself.
void for_each_bert_word(std::string_view text, const std::function<void(std::string_view)>& use);

}  // namespace meshtrain
