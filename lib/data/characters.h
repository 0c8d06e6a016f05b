// Texts as ids of their characters, which are UTF-8 code points. A byte order mark in front is
// none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

// A text that is read a block at a time, more than once.
struct TextInput {
  std::string name;  // for messages
  // Puts up to `count` bytes from `offset` at `to`; returns how many, 0 at the end of the text.
  std::function<size_t(uint64_t offset, char* to, size_t count)> read;
};
TextInput text_in_memory(std::string name, std::string_view text);
TextInput text_in_file(const std::string& path);  // E300 when it cannot be opened

// The characters in the order of their ids.
using Vocabulary = std::vector<char32_t>;

// The characters and the size of a text. Throws ConfigError E318 with the offset of a byte that is
// no UTF-8.
struct TextContent {
  Vocabulary vocabulary;  // sorted, each character once
  int64_t size = 0;       // characters
};
TextContent read_content(const std::vector<TextInput>& texts);

// The characters of a text as a vocabulary, in their order. Throws ConfigError E318 for one that is
// there twice, or when there is none.
Vocabulary vocabulary_of(const TextInput& text);

// One id for each character of the texts, `size` in all: uint8, uint16 or uint32, whatever the
// vocabulary needs. Throws ConfigError E314 with the offset of a character that is not in it, E321
// when there are more or fewer.
HostTensor encode(const std::vector<TextInput>& texts, const Vocabulary& vocabulary, int64_t size);

}  // namespace meshtrain
