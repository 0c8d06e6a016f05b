#include "data/text_codec.h"

#include <algorithm>

#include "base/diagnostic.h"
#include "base/utf8.h"
#include "config/source_classes.h"
#include "data/packed_text.h"
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

// The text of ids that stand behind others: spaces at its begin are kept, which tokenizers leave
// out at the begin of a whole text.
class ContinuedText {
 public:
  explicit ContinuedText(Tokenizer tokenizer) {
    try {
      tokenizer.encode("a", before_, "text");
    } catch (const ConfigError&) {
      before_.clear();  // a vocabulary without this letter
    }
    length_ = tokenizer.decode(before_, /*skip_special=*/true).size();
  }
  std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids) const {
    std::vector<int32_t> all = before_;
    all.insert(all.end(), ids.begin(), ids.end());
    const std::string text = tokenizer.decode(all, /*skip_special=*/true);
    return text.substr(std::min(length_, text.size()));
  }

 private:
  std::vector<int32_t> before_;
  size_t length_ = 0;
};

class TokenCodec final : public TextCodec {
 public:
  TokenCodec(const std::string& text, const std::string& path)
      : tokenizer_(text, path), continued_(tokenizer_) {}

  int64_t size() const override { return tokenizer_.size(); }
  std::vector<int32_t> encode(std::string_view text, const std::string& name) override {
    std::vector<int32_t> ids;
    tokenizer_.encode(text, ids, name);
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) override {
    return continued_.decode(tokenizer_, ids);
  }

 private:
  Tokenizer tokenizer_;
  ContinuedText continued_;
};

// Of samples that begin and end with tokens of their own.
class PackedCodec final : public TextCodec {
 public:
  PackedCodec(const std::string& text, const LinesOptions& options)
      : packer_(text, options.folder(), options), continued_(packer_.tokenizer()) {}

  int64_t size() const override { return packer_.tokenizer().size(); }
  std::vector<int32_t> encode(std::string_view text, const std::string& name) override {
    std::vector<int32_t> ids;
    packer_.append_start(text, name, ids);
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) override {
    return continued_.decode(packer_.tokenizer(), ids);
  }
  std::optional<int32_t> start() const override { return packer_.start(); }
  std::optional<int32_t> end() const override { return packer_.end(); }

 private:
  TextPacker packer_;
  ContinuedText continued_;
};

}  // namespace

std::unique_ptr<TextCodec> tokenizer_codec(const std::string& text, const std::string& path) {
  return std::make_unique<TokenCodec>(text, path);
}

std::unique_ptr<TextCodec> text_codec(const ConfigObject& source, const LearnedPtr& learned) {
  const LearnedData* const known = learned_of(learned, source);
  if (const auto lines = options_if<LinesOptions>(source); lines && known != nullptr)
    return std::make_unique<PackedCodec>(known->tokenizer, *lines);
  const auto text = options_if<TextOptions>(source);
  if (!text)
    return nullptr;
  if (text->has_bytes())
    return std::make_unique<ByteCodec>();
  if (!text->characters->empty())
    return std::make_unique<CharacterCodec>(
        vocabulary_of(text_in_memory("characters", text->characters.value)));
  if (known == nullptr)
    return nullptr;
  if (!known->tokenizer.empty())
    return tokenizer_codec(known->tokenizer, text->tokenizer());
  return std::make_unique<CharacterCodec>(known->characters);
}

}  // namespace meshtrain
