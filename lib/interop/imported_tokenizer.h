// The tokenizer beside a model that is imported.
#pragma once

#include <string>

namespace meshtrain {

struct ImportedTokenizer {
  std::string text;     // of a tokenizer.json; empty when it cannot be read
  std::string problem;  // why it cannot be read
};

// Of a folder as read_tokenizer_text() takes it. Throws nothing for a tokenizer that is damaged or
// not supported: a model is of use without it.
ImportedTokenizer import_tokenizer(const std::string& folder);

}  // namespace meshtrain
