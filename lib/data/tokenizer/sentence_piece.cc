#include "data/tokenizer/sentence_piece.h"

#include <dlfcn.h>

#include <array>

#include "base/library_part.h"
#include "tensor/read_error.h"

#ifndef MESHTRAIN_SENTENCEPIECE_MISSING  // why the build can make no library; "" where it can
#define MESHTRAIN_SENTENCEPIECE_MISSING ""
#endif

namespace meshtrain {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kBegin =
    R"({"version":"1.0","model":{"type":"SentencePiece","base64":")";
constexpr std::string_view kEnd = "\"}}";

std::string base64(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      out += at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return out;
}

std::string bytes_of_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) {
      break;  // padding
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 255);
    }
  }
  return out;
}

LibraryPart sentence_piece_part() {
  return {.file = "libmeshtrain_sentencepiece.so",
          .variable = "MESHTRAIN_SENTENCEPIECE_LIBRARY",
          .kind = "SentencePiece",
          .symbol = kSentencePieceSymbol,
          .abi = kSentencePieceAbi,
          .target = "meshtrain_sentencepiece",
          .missing = MESHTRAIN_SENTENCEPIECE_MISSING,
          .cure = "install libsentencepiece-dev"};
}

// As load_part(), but the library's own copy of Protocol Buffers is bound before any other.
SentencePieceLibrary* open_library(std::string& reason) {
#if defined(__SANITIZE_ADDRESS__)  // which refuses such a binding; the program's copy is hidden
  return load_part<SentencePieceLibrary>(sentence_piece_part(), reason);
#else
  const LibraryPart part = sentence_piece_part();
  const std::string path = find_part(part, reason);
  if (path.empty()) {
    return nullptr;
  }
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) == nullptr) {
    reason = fmt::format("cannot load {}: {}", path, ::dlerror());
    return nullptr;
  }
  return load_part<SentencePieceLibrary>(part, reason);
#endif
}

}  // namespace

std::shared_ptr<const SentencePieceModel> load_sentence_piece(std::string_view bytes,
                                                              const std::string& path) {
  std::string reason;
  SentencePieceLibrary* const library = open_library(reason);
  if (library == nullptr) {
    read_error("E327", path, "a model of SentencePiece: {}", reason);
  }
  std::shared_ptr<const SentencePieceModel> model = library->load(bytes, reason);
  if (model == nullptr) {
    read_error("E318", path, "no model of SentencePiece: {}", reason);
  }
  return model;
}

std::string sentence_piece_text(std::string_view bytes) {
  return fmt::format("{}{}{}", kBegin, base64(bytes), kEnd);
}

std::optional<std::string> sentence_piece_bytes(std::string_view text) {
  if (!text.starts_with(kBegin) || !text.ends_with(kEnd)) {
    return std::nullopt;
  }
  text.remove_prefix(kBegin.size());
  text.remove_suffix(kEnd.size());
  return bytes_of_base64(text);
}

}  // namespace meshtrain
