#include "data/tokenizer/tokenizer.h"

#include <algorithm>

#include "base/parse_number.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/plain_text.h"
#include "data/tokenizer/unicode_text.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxCachedWords = size_t{1} << 18;
constexpr size_t kMaxCachedBytes = 64;  // of a word

void check_utf8(std::string_view text, const std::string& name) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = static_cast<unsigned char>(text[at]) < 0x80 ? 1 : utf8_length(text, at);
    if (length == 0) {
      read_error("E318", name, "byte 0x{:02x} at offset {} is not UTF-8",
                 static_cast<unsigned char>(text[at]), format_thousands(static_cast<int64_t>(at)));
    }
    at += length;
  }
}

// What English texts have no spaces before, as WordPiece's decoder of `tokenizers` does.
std::string cleaned_up(std::string token) {
  static const Replacement kAll[] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                     {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                     {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                     {" 've", "'ve"}, {" 're", "'re"}};
  for (const Replacement& replacement : kAll) {
    token = replace_all(std::move(token), replacement);
  }
  return token;
}

std::string byte_token(unsigned char byte) {
  return fmt::format("<0x{:02X}>", byte);
}

std::string alphabet_text(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    append_utf8(byte_alphabet()[static_cast<unsigned char>(byte)], out);
  }
  return out;
}

}  // namespace

Tokenizer::Tokenizer(std::string_view text, const std::string& path)
    : path_(path), merges_(std::vector<BpeMerge>()) {
  if (const auto bytes = sentence_piece_bytes(text)) {
    sentence_piece_ = load_sentence_piece(*bytes, path);
    return;
  }
  spec_ = parse_tokenizer(text, path);
  tokens_ = spec_.tokens;
  merges_ = BpeMerges(spec_.merges);
  for (const AddedToken& token : spec_.added) {
    const auto id = static_cast<size_t>(token.id);
    tokens_.resize(std::max(tokens_.size(), id + 1));
    AddedToken found = token;
    found.content = token.is_found_in_normalized ? normalize(token.content) : token.content;
    tokens_[id] = found.content.empty() ? token.content : found.content;
    is_added_.resize(tokens_.size());
    is_special_.resize(tokens_.size());
    is_added_[id] = true;
    is_special_[id] = token.is_special;
    if (!found.content.empty()) {
      added_[token.is_found_in_normalized ? 1 : 0].push_back(std::move(found));
    }
  }
  is_added_.resize(tokens_.size());
  is_special_.resize(tokens_.size());
  for (auto& tokens : added_) {
    std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.content.size() > b.content.size();
    });
  }
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    if (!spec_.tokens[id].empty()) {
      ids_.emplace(spec_.tokens[id], static_cast<int32_t>(id));
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    const auto found = ids_.find(spec_.is_byte_level ? alphabet_text({&character, 1})
                                                     : byte_token(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == ids_.end() ? -1 : found->second;
    bytes_[byte_alphabet()[byte]] = character;
  }
  for (const WordSplit& split : spec_.splits) {
    splits_.emplace_back(split, path);
  }
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  if (sentence_piece_) {
    const int32_t id = sentence_piece_->find(token);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  for (const AddedToken& added : spec_.added) {
    if (added.content == token) {
      return added.id;
    }
  }
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids, const std::string& name) {
  check_utf8(text, name);
  if (sentence_piece_) {
    const std::vector<int32_t> own = sentence_piece_->encode(text);
    ids.insert(ids.end(), own.begin(), own.end());
    return;
  }
  name_ = name;
  encode_added(text, false, true, ids);
}

// Added tokens are found in the text as it is, then others in what the normalizer leaves between.
void Tokenizer::encode_added(std::string_view text, bool is_normalized, bool is_first,
                             std::vector<int32_t>& ids) {
  const std::vector<AddedToken>& tokens = added_[is_normalized ? 1 : 0];
  const auto rest = [&](std::string_view part) {
    if (part.empty()) {
      return;
    }
    const bool begins = is_first && part.data() == text.data();
    if (is_normalized) {
      encode_plain(part, begins, ids);
    } else {
      encode_added(normalize(part), true, begins, ids);
    }
  };
  std::string first_bytes;
  for (const AddedToken& token : tokens) {
    first_bytes += token.content[0];
  }
  size_t used = 0;
  for (size_t at = 0; (at = text.find_first_of(first_bytes, at)) != std::string_view::npos;) {
    const auto token = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& entry) {
      return starts_with(text.substr(at), entry.content);
    });
    if (token == tokens.end()) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(used, at - used);
    if (token->takes_left) {
      before.remove_suffix(white_space_at_end(before));
    }
    rest(before);
    ids.push_back(token->id);
    at += token->content.size();
    at += token->takes_right ? white_space_at_begin(text.substr(at)) : 0;
    used = at;
  }
  rest(text.substr(used));
}

std::string Tokenizer::normalize(std::string_view text) const {
  std::string out(text);
  for (const Normalizer& normalizer : spec_.normalizers) {
    out = normalizer(out);
  }
  return out;
}

// The text with a mark for each space; each mark begins a word.
void Tokenizer::encode_marked(std::string_view text, bool is_first, std::vector<int32_t>& ids) {
  const Metaspace& rule = *spec_.metaspace;
  const std::string marked = replace_all(std::string(text), {" ", rule.mark});
  const bool adds = rule.before == Metaspace::Before::kAll ||
                    (rule.before == Metaspace::Before::kFirst && is_first);
  const std::string all = adds && !starts_with(marked, rule.mark) ? rule.mark + marked : marked;
  size_t begin = 0;
  while (rule.splits && begin < all.size()) {
    const size_t next = all.find(rule.mark, begin + 1);
    if (next == std::string::npos) {
      break;
    }
    encode_word(std::string_view(all).substr(begin, next - begin), ids);
    begin = next;
  }
  encode_word(std::string_view(all).substr(begin), ids);
}

void Tokenizer::encode_plain(std::string_view text, bool is_first, std::vector<int32_t>& ids) {
  if (spec_.metaspace) {
    encode_marked(text, is_first, ids);
  } else if (spec_.has_bert_words) {
    for_each_bert_word(text, [&](std::string_view word) { encode_word(word, ids); });
  } else if (spec_.adds_space && !starts_with(text, " ")) {
    encode_words(" " + std::string(text), 0, ids);
  } else {
    encode_words(text, 0, ids);
  }
}

void Tokenizer::encode_words(std::string_view text, size_t split, std::vector<int32_t>& ids) {
  if (split == splits_.size()) {
    encode_word(text, ids);
    return;
  }
  splits_[split].for_each_word(text,
                               [&](std::string_view word) { encode_words(word, split + 1, ids); });
}

void Tokenizer::encode_word(std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() > kMaxCachedBytes) {
    const std::vector<int32_t> own = word_ids(word);
    ids.insert(ids.end(), own.begin(), own.end());
    return;
  }
  const std::string key(word);
  auto found = cache_.find(key);
  if (found == cache_.end()) {
    if (cache_.size() >= kMaxCachedWords) {
      cache_.clear();
    }
    found = cache_.emplace(key, word_ids(word)).first;
  }
  ids.insert(ids.end(), found->second.begin(), found->second.end());
}

std::vector<int32_t> Tokenizer::word_ids(std::string_view word) const {
  if (spec_.word_piece) {
    return word_piece_ids(word);
  }
  std::vector<int32_t> ids;
  if (spec_.prefers_whole_words) {
    const auto whole = ids_.find(spec_.is_byte_level ? alphabet_text(word) : std::string(word));
    if (whole != ids_.end()) {
      return {whole->second};
    }
  }
  ids.reserve(word.size());
  for (size_t at = 0; at < word.size();) {
    const size_t length = spec_.is_byte_level ? 1 : utf8_length(word, at);
    add_character(word.substr(at, length), ids);
    at += length;
  }
  merges_.apply(ids);
  return ids;
}

// The longest token from each place on; a word with a place that has none is unknown as a whole.
std::vector<int32_t> Tokenizer::word_piece_ids(std::string_view word) const {
  const auto is_begin = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  if (std::count_if(word.begin(), word.end(), is_begin) > spec_.word_piece->max_characters) {
    return {*spec_.unknown};
  }
  std::vector<int32_t> ids;
  for (size_t at = 0; at < word.size();) {
    size_t length = word.size() - at;
    auto found = ids_.end();
    for (; length > 0 && found == ids_.end(); --length) {
      if (at + length == word.size() || is_begin(word[at + length])) {
        found = ids_.find((at > 0 ? spec_.word_piece->prefix : "") +
                          std::string(word.substr(at, length)));
      }
    }
    if (found == ids_.end()) {
      return {*spec_.unknown};
    }
    ids.push_back(found->second);
    at += length + 1;  // the loop has counted once more
  }
  return ids;
}

// A byte of a byte-level vocabulary, else a character.
void Tokenizer::add_character(std::string_view character, std::vector<int32_t>& ids) const {
  const auto id_of_byte = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (spec_.is_byte_level && id_of_byte(character[0]) >= 0) {
    ids.push_back(id_of_byte(character[0]));
    return;
  }
  if (!spec_.is_byte_level) {
    if (const auto found = ids_.find(std::string(character)); found != ids_.end()) {
      ids.push_back(found->second);
      return;
    }
    const auto has_token = [&](char byte) { return id_of_byte(byte) >= 0; };
    if (spec_.has_byte_tokens && std::all_of(character.begin(), character.end(), has_token)) {
      for (const char byte : character) {
        ids.push_back(id_of_byte(byte));
      }
      return;
    }
  }
  if (!spec_.unknown) {
    const std::string shown =
        spec_.is_byte_level
            ? fmt::format("byte 0x{:02x}", static_cast<unsigned char>(character[0]))
            : fmt::format("character U+{:04X}", static_cast<uint32_t>(code_point(character)));
    read_error("E314", name_, "the {} has no token in `{}`, which names no unknown token", shown,
               path_);
  }
  if (!spec_.fuses_unknown || ids.empty() || ids.back() != *spec_.unknown) {
    ids.push_back(*spec_.unknown);
  }
}

std::string Tokenizer::decode_token(int32_t id, bool is_first) const {
  const auto place = static_cast<size_t>(id);
  const std::string& token = tokens_[place];
  if (spec_.is_byte_level && !is_added_[place]) {
    std::string out;
    for (size_t at = 0; at < token.size();) {
      const size_t length = utf8_length(token, at);
      const auto byte = bytes_.find(code_point(std::string_view(token).substr(at, length)));
      if (byte == bytes_.end()) {
        return token;  // not of the alphabet: as it is
      }
      out += byte->second;
      at += length;
    }
    return out;
  }
  if (spec_.has_byte_tokens && token.size() == 6 && starts_with(token, "<0x")) {
    if (const auto byte = parse_number<uint8_t>(std::string_view(token).substr(3, 2), 16)) {
      return {static_cast<char>(*byte)};
    }
  }
  std::string out = token;
  for (const Replacement& replacement : spec_.decoded) {
    const bool is_dropped = is_first && replacement.first == spec_.first_mark;
    out =
        replace_all(std::move(out), is_dropped ? Replacement{replacement.first, ""} : replacement);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  if (sentence_piece_) {
    for (const int32_t id : ids) {
      if (id < 0 || id >= size()) {
        read_error("E314", path_, "no token has the id {}", id);
      }
    }
    return sentence_piece_->decode(ids);  // which has no text for special ones
  }
  std::string out;
  bool is_first = true;
  for (const int32_t id : ids) {
    if (id < 0 || id >= size() || tokens_[static_cast<size_t>(id)].empty()) {
      read_error("E314", path_, "no token has the id {}", id);
    }
    if (skip_special && is_special_[static_cast<size_t>(id)]) {
      continue;
    }
    std::string token = decode_token(id, is_first);
    if (spec_.joined && !is_first) {
      const bool continues = !spec_.joined->empty() && starts_with(token, *spec_.joined);
      token = continues ? token.substr(spec_.joined->size()) : " " + token;
    }
    out += spec_.cleans_up ? cleaned_up(std::move(token)) : token;
    is_first = false;
  }
  return spec_.strips_first_space && starts_with(out, " ") ? out.substr(1) : out;
}

}  // namespace meshtrain
