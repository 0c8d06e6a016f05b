#include "interop/imported_tokenizer.h"

#include "base/diagnostic.h"
#include "data/tokenizer/spec.h"
#include "data/tokenizer/tokenizer.h"

namespace meshtrain {

ImportedTokenizer import_tokenizer(const std::string& folder) {
  try {
    std::string text = read_tokenizer_text(folder);
    const Tokenizer tokenizer(text, folder);  // reads the text, too
    return {std::move(text), ""};
  } catch (const ConfigError& error) {
    const std::vector<Diagnostic>& list = error.diagnostics().list();
    return {"", list.empty() ? "it cannot be read" : list.front().message};
  }
}

}  // namespace meshtrain
