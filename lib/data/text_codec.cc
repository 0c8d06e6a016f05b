#include "data/text_codec.h"

#include "base/diagnostic.h"
#include "base/utf8.h"
#include "config/source_classes.h"
#include "data/tokenizer/tokenizer.h"

namespace meshtrain {
namespace {

class CharacterCodec final : public TextCodec {
 public:
  explicit CharacterCodec(Vocabulary characters) : characters_(std::move(characters)) {}

  int64_t size() const override { return static_cast<int64_t>(characters_.size()); }
  std::vector<int32_t> encode(std::string_view text, const std::string& name) override {
    const TextInput input = text_in_memory(name, text);
    const HostTensor ids = meshtrain::encode({input}, characters_, read_content({input}).size);
    std::vector<int32_t> out;
    for (int64_t i = 0; i < ids.size(); ++i)
      out.push_back(static_cast<int32_t>(ids.at(i)));
    return out;
  }
  std::string decode(std::span<const int32_t> ids) override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= size()) {
        throw ConfigError("E314", {},
                          fmt::format("id {} is none of the {} characters", id, size()));
      }
      append_utf8(characters_[static_cast<size_t>(id)], text);
    }
    return text;
  }

 private:
  Vocabulary characters_;
};

class ByteCodec final : public TextCodec {
 public:
  int64_t size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text, const std::string&) override {
    std::vector<int32_t> out;
    for (const char byte : text)
      out.push_back(static_cast<unsigned char>(byte));
    return out;
  }
  std::string decode(std::span<const int32_t> ids) override {
    std::string text;
    for (const int32_t id : ids)
      text.push_back(static_cast<char>(id));
    return text;
  }
};

class TokenCodec final : public TextCodec {
 public:
  TokenCodec(const std::string& text, const std::string& path) : tokenizer_(text, path) {}

  int64_t size() const override { return tokenizer_.size(); }
  std::vector<int32_t> encode(std::string_view text, const std::string& name) override {
    std::vector<int32_t> ids;
    tokenizer_.encode(text, ids, name);
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) override {
    return tokenizer_.decode(ids, /*skip_special=*/true);
  }

 private:
  Tokenizer tokenizer_;
};

}  // namespace

std::unique_ptr<TextCodec> tokenizer_codec(const std::string& text, const std::string& path) {
  return std::make_unique<TokenCodec>(text, path);
}

std::unique_ptr<TextCodec> text_codec(const ConfigObject& source, const LearnedPtr& learned) {
  const auto text = options_if<TextOptions>(source);
  if (!text)
    return nullptr;
  if (text->has_bytes())
    return std::make_unique<ByteCodec>();
  if (!text->characters->empty())
    return std::make_unique<CharacterCodec>(
        vocabulary_of(text_in_memory("characters", text->characters.value)));
  const LearnedData* const known = learned_of(learned, source);
  if (known == nullptr)
    return nullptr;
  if (!known->tokenizer.empty())
    return tokenizer_codec(known->tokenizer, text->tokenizer());
  return std::make_unique<CharacterCodec>(known->characters);
}

}  // namespace meshtrain
