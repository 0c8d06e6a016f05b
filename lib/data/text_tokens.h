// Tokens of a text as Keras' TextVectorization makes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

struct TokenRules {
  bool lowers = true, strips_punctuation = true;  // ASCII, as in TensorFlow
  enum class Split : uint8_t { kNone, kWhitespace, kCharacter } split = Split::kWhitespace;
  std::vector<int64_t> ngrams;  // sizes of runs of tokens; none: the tokens themselves
};

// The tokens in their order; with ngrams those of the first size come first.
std::vector<std::string> tokens_of(std::string_view text, const TokenRules& rules);

}  // namespace meshtrain
