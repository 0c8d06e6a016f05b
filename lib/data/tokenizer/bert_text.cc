#include "data/tokenizer/bert_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace meshtrain {
namespace {

bool is_space(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (c >= 9 && c <= 13) || c == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r')
    return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// Of the blocks of CJK ideographs; Hangul, kana and other writings have words.
bool is_chinese(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& block) { return c >= block.first && c <= block.second; });
}

void append_lower(char32_t c, std::u32string& out) {
  if (c == 0x130) {  // the only one whose lower case is two characters
    out += {U'i', 0x307};
  } else {
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    out += code_point(text.substr(at, length));
    at += length;
  }
  return out;
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text)
    append_utf8(c, out);
  return out;
}

// Decomposed, in canonical order, without nonspacing marks.
std::u32string without_accents(std::u32string_view text) {
  const std::string bytes = encode_utf8(text);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  std::vector<utf8proc_int32_t> parts(bytes.size() * 4 + 16);
  utf8proc_ssize_t count = 0;
  const auto* const from = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  while ((count = utf8proc_decompose(from, static_cast<utf8proc_ssize_t>(bytes.size()),
                                     parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
                                     options)) > static_cast<utf8proc_ssize_t>(parts.size()))
    parts.resize(static_cast<size_t>(count));
  std::u32string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    if (utf8proc_category(parts[static_cast<size_t>(i)]) != UTF8PROC_CATEGORY_MN)
      out += static_cast<char32_t>(parts[static_cast<size_t>(i)]);
  }
  return out;
}

}  // namespace

bool has_bert_text() {
  return true;
}

std::string bert_normalized(std::string_view text, const BertNormalizer& normalizer) {
  std::u32string characters;
  for (const char32_t c : decode_utf8(text)) {
    if (normalizer.cleans && (c == 0 || c == 0xFFFD || is_control(c)))
      continue;
    const bool is_parted = normalizer.parts_chinese && is_chinese(c);
    characters += is_parted ? U" " : U"";
    characters += normalizer.cleans && is_space(c) ? U' ' : c;
    characters += is_parted ? U" " : U"";
  }
  if (normalizer.strips_accents)
    characters = without_accents(characters);
  if (normalizer.lowers) {
    std::u32string lower;
    for (const char32_t c : characters)
      append_lower(c, lower);
    characters = std::move(lower);
  }
  return encode_utf8(characters);
}

void for_each_bert_word(std::string_view text, const std::function<void(std::string_view)>& use) {
  size_t begin = 0;
  const auto end_word = [&](size_t end, size_t next) {
    if (end > begin)
      use(text.substr(begin, end - begin));
    begin = next;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const char32_t c = code_point(text.substr(at, length));
    if (is_space(c)) {
      end_word(at, at + length);
    } else if (is_punctuation(c)) {
      end_word(at, at);
      end_word(at + length, at + length);
    }
    at += length;
  }
  end_word(text.size(), text.size());
}

}  // namespace meshtrain
