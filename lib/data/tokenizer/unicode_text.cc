#include "data/tokenizer/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/diagnostic.h"
#include "base/utf8.h"
#include "data/tokenizer/plain_text.h"

namespace meshtrain {
namespace {

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

bool is_mark(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
}

void append_lower(char32_t c, std::string& out) {
  if (c == 0x130) {  // the only one whose lower case is two characters
    out += "i\u0307";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// Calls `use` for each character and its bytes.
template <class Use>
void for_each_character(std::string_view text, Use&& use) {
  for (size_t at = 0; at < text.size();) {
    const std::string_view bytes = text.substr(at, utf8_length(text, at));
    use(code_point(bytes), bytes);
    at += bytes.size();
  }
}

template <class IsDropped>
std::string without(std::string_view text, IsDropped&& is_dropped) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (!is_dropped(c)) {
      out += bytes;
    }
  });
  return out;
}

utf8proc_option_t options_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfc:
      return UTF8PROC_COMPOSE;
    case UnicodeForm::kNfd:
      return UTF8PROC_DECOMPOSE;
    case UnicodeForm::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case UnicodeForm::kNfkd:
      return static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  MESHTRAIN_CHECK(false, "a form that is none of the four");
}

void append_in_form(std::string_view text, utf8proc_option_t options, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  MESHTRAIN_CHECK(length >= 0, "utf8proc has no memory for a text");
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

bool is_ascii(char byte) {
  return (static_cast<unsigned char>(byte) & 0x80) == 0;
}

}  // namespace

bool has_unicode_tables() {
  return true;
}

// ASCII is the same in each form, and only composes with marks behind it. So the text is mapped in
// runs of other characters, each with the one before it: buffers are as small as the runs.
std::string in_form(std::string_view text, UnicodeForm form) {
  const utf8proc_option_t options = options_of(form);
  const auto is_other = [](char byte) { return !is_ascii(byte); };
  std::string out;
  for (auto at = text.begin(); at != text.end();) {
    const auto other = std::find_if(at, text.end(), is_other);
    const auto begin = other == at || other == text.end() ? other : other - 1;
    const auto end = std::find_if(other, text.end(), is_ascii);
    out.append(at, begin);
    if (begin != end) {
      append_in_form({begin, end}, options, out);
    }
    at = end;
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view) { append_lower(c, out); });
  return out;
}

std::string without_marks(std::string_view text) {
  return without(text, is_mark);
}

std::string bert_normalized(std::string_view text, const BertNormalizer& normalizer) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (normalizer.cleans && (c == 0 || c == 0xFFFD || is_control(c)))
      return;
    const char* const around = normalizer.parts_chinese && is_chinese(c) ? " " : "";
    out += around;
    out += normalizer.cleans && is_white_space(c) ? " " : bytes;
    out += around;
  });
  if (normalizer.strips_accents)
    out = without(in_form(out, UnicodeForm::kNfd), is_nonspacing_mark);
  return normalizer.lowers ? lower_case(out) : out;
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
    if (is_white_space(c)) {
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
