// In place of unicode_text.cc where utf8proc is not.
#include "base/diagnostic.h"
#include "data/tokenizer/unicode_text.h"

namespace meshtrain {
namespace {

[[noreturn]] void refuse() {
  MESHTRAIN_CHECK(false, "built without utf8proc");
}

}  // namespace

bool has_unicode_tables() {
  return false;
}

std::string in_form(std::string_view /*text*/, UnicodeForm /*form*/) {
  refuse();
}

std::string lower_case(std::string_view /*text*/) {
  refuse();
}

std::string without_marks(std::string_view /*text*/) {
  refuse();
}

std::string bert_normalized(std::string_view /*text*/, const BertNormalizer& /*normalizer*/) {
  refuse();
}

void for_each_bert_word(std::string_view /*text*/,
                        const std::function<void(std::string_view)>& /*use*/) {
  refuse();
}

}  // namespace meshtrain
