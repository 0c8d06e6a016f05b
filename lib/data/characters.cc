#include "data/characters.h"

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "base/utf8.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr size_t kMaxCodePoint = 0x10FFFF;

// Calls `use(code point, offset of its first byte)` for each character.
template <class Use>
void for_each_character(const TextInput& text, Use&& use) {
  std::string block(kBlock, '\0');
  uint64_t offset = 0;  // of the block
  size_t kept = 0;      // bytes of a character that the last block ended in
  for (;;) {
    const size_t count = text.read(offset + kept, block.data() + kept, kBlock - kept);
    const std::string_view bytes(block.data(), kept + count);
    size_t at = 0;
    while (at < bytes.size() && (count == 0 || at + 4 <= bytes.size())) {
      const size_t length = utf8_length(bytes, at);
      if (length == 0) {
        read_error("E318", text.name, "byte 0x{:02x} at offset {} is not UTF-8",
                   static_cast<unsigned char>(bytes[at]),
                   format_thousands(static_cast<int64_t>(offset + at)));
      }
      const std::string_view character = bytes.substr(at, length);
      if (character != kByteOrderMark || offset + at > 0) {
        use(code_point(character), offset + at);
      }
      at += length;
    }
    if (count == 0) {
      return;
    }
    offset += at;
    kept = bytes.size() - at;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), kept, block.begin());
  }
}

std::string shown(char32_t character) {
  return character > 32 && character < 127
             ? fmt::format("`{}`", static_cast<char>(character))
             : fmt::format("U+{:04X}", static_cast<uint32_t>(character));
}

template <class T>
void encode_as(const std::vector<TextInput>& texts, const std::vector<int32_t>& ids,
               HostTensor& out) {
  int64_t at = 0;
  for (const TextInput& text : texts) {
    for_each_character(text, [&](char32_t character, uint64_t offset) {
      const int32_t id = character < ids.size() ? ids[character] : -1;
      if (id < 0) {
        read_error("E314", text.name, "offset {}: the character {} is not in the vocabulary",
                   format_thousands(static_cast<int64_t>(offset)), shown(character));
      }
      if (at < out.size()) {
        out.data<T>()[at] = static_cast<T>(id);
      }
      ++at;
    });
  }
  if (at != out.size()) {
    read_error("E321", texts[0].name, "the text was changed while it is read");
  }
}

}  // namespace

TextInput text_in_memory(std::string name, std::string_view text) {
  return {std::move(name), [text](uint64_t offset, char* to, size_t count) {
            return text.copy(to, count, std::min<uint64_t>(offset, text.size()));
          }};
}

TextInput text_in_file(const std::string& path) {
  const auto file = std::make_shared<const InputFile>(open_input(path, "E300", "E300"));
  return {path, [file](uint64_t offset, char* to, size_t count) {
            count = std::min<uint64_t>(count, file->size() - std::min(file->size(), offset));
            file->read_at(offset, reinterpret_cast<std::byte*>(to), count);
            return count;
          }};
}

TextContent read_content(const std::vector<TextInput>& texts) {
  TextContent content;
  std::vector<bool> is_there(kMaxCodePoint + 1);
  for (const TextInput& text : texts) {
    for_each_character(text, [&](char32_t character, uint64_t /*offset*/) {
      is_there[character] = true;
      ++content.size;
    });
  }
  for (size_t i = 0; i < is_there.size(); ++i) {
    if (is_there[i]) {
      content.vocabulary.push_back(static_cast<char32_t>(i));
    }
  }
  return content;
}

Vocabulary vocabulary_of(const TextInput& text) {
  Vocabulary vocabulary;
  std::vector<bool> is_there(kMaxCodePoint + 1);
  for_each_character(text, [&](char32_t character, uint64_t offset) {
    if (is_there[character]) {
      read_error("E318", text.name, "offset {}: the character {} of the vocabulary is there twice",
                 format_thousands(static_cast<int64_t>(offset)), shown(character));
    }
    is_there[character] = true;
    vocabulary.push_back(character);
  });
  if (vocabulary.empty()) {
    read_error("E318", text.name, "the vocabulary is empty");
  }
  return vocabulary;
}

HostTensor encode(const std::vector<TextInput>& texts, const Vocabulary& vocabulary, int64_t size) {
  std::vector<int32_t> ids;  // of each code point
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    ids.resize(std::max<size_t>(ids.size(), vocabulary[i] + 1), -1);
    ids[vocabulary[i]] = static_cast<int32_t>(i);
  }
  HostTensor out(vocabulary.size() <= 256     ? DType::kUInt8
                 : vocabulary.size() <= 65536 ? DType::kUInt16
                                              : DType::kUInt32,
                 {size});
  if (out.dtype() == DType::kUInt8) {
    encode_as<uint8_t>(texts, ids, out);
  } else if (out.dtype() == DType::kUInt16) {
    encode_as<uint16_t>(texts, ids, out);
  } else {
    encode_as<uint32_t>(texts, ids, out);
  }
  return out;
}

}  // namespace meshtrain
