// Texts as the ids of a model that was trained on texts, and back.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/learned.h"

namespace meshtrain {

class TextCodec {
 public:
  virtual ~TextCodec() = default;
  // Ids are below it.
  virtual int64_t size() const = 0;
  // `name` is for messages. Throws ConfigError E314 for what has no id, E318 for what is no UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text, const std::string& name) = 0;
  // Returns the bytes of ids that stand behind others, no UTF-8 where ids cut a character. An id
  // without a meaning throws ConfigError E314.
  virtual std::string decode(std::span<const int32_t> ids) = 0;
  // The id that begins each text of the training data, where there is one.
  virtual std::optional<int32_t> start() const { return std::nullopt; }
  // The id that ends each text of the training data, where there is one.
  virtual std::optional<int32_t> end() const { return std::nullopt; }
};

// Of the tokenizer with this tokenizer.json; `path` is for messages.
std::unique_ptr<TextCodec> tokenizer_codec(const std::string& text, const std::string& path);
// Of a model that was trained on `source`, where it learned `learned`, which may be null. Returns
// null where no text belongs to the ids: those of a file of tokens.
std::unique_ptr<TextCodec> text_codec(const ConfigObject& source, const LearnedPtr& learned);

}  // namespace meshtrain
