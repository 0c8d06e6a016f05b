// Texts by Unicode's tables, which are utf8proc's: normalized, and cut into words as BERT's
// tokenizers do. All texts must be UTF-8.
#pragma once

#include <cstdint>
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

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// False in a program that was built without utf8proc: the functions below must not be called then.
bool has_unicode_tables();

std::string in_form(std::string_view text, UnicodeForm form);

// Lower case character by character: a capital sigma at the end of a word is one as any other.
std::string lower_case(std::string_view text);

// Without the characters that are marks. Letters with an accent are decomposed before.
std::string without_marks(std::string_view text);

std::string bert_normalized(std::string_view text, const BertNormalizer& normalizer);

// Calls `use` for each word: texts between white space, and each punctuation mark by itself.
void for_each_bert_word(std::string_view text, const std::function<void(std::string_view)>& use);

}  // namespace meshtrain
