// Files of tokenizers: tokenizer.json, and whatever is no JSON object as BERT's vocab.txt.
#include "data/tokenizer/tokenizer.h"
#include "support/temp_folder.h"
#include "target.h"

namespace meshtrain::fuzz {

void read_tokenizer(Bytes bytes) {
  static const test::TempFolder folder;
  std::string text(as_text(bytes));
  if (!text.starts_with("{")) {
    folder.write("vocab.txt", text);
    text = read_tokenizer_text(folder.path());
  }
  Tokenizer tokenizer(text, "tokenizer.json");
  std::vector<int32_t> ids;
  tokenizer.encode("[CLS] The caf\u00e9 e\u0301 \u4e16\u754c, \ufb01x <b>\r\n 12 \U0001f600", ids,
                   "text");
  tokenizer.decode(ids);
}

}  // namespace meshtrain::fuzz
