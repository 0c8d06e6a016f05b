// In place of bert_text.cc where utf8proc is not.
#include "base/diagnostic.h"
#include "data/tokenizer/bert_text.h"

namespace meshtrain {

bool has_bert_text() {
  return false;
}

std::string bert_normalized(std::string_view /*text*/, const BertNormalizer& /*normalizer*/) {
  MESHTRAIN_CHECK(false, "built without utf8proc");
}

void for_each_bert_word(std::string_view /*text*/,
                        const std::function<void(std::string_view)>& /*use*/) {
  MESHTRAIN_CHECK(false, "built without utf8proc");
}

}  // namespace meshtrain
