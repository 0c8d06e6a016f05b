// tokenizer.json as a TokenizerSpec.
#include <algorithm>
#include <unordered_map>

#include "base/utf8.h"
#include "data/tokenizer/spec.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/unicode_text.h"

namespace meshtrain {
namespace {

using TokenTable = std::unordered_map<std::string, int32_t>;
using Parts = std::vector<TokenizerField>;

// The parts of a `Sequence`, or the one part that there is; none of null.
Parts parts_of(const TokenizerField& field, const char* list) {
  if (field.is_null()) {
    return {};
  }
  if (field.type() != "Sequence") {
    return {field};
  }
  const TokenizerField parts = field[list];
  Parts out;
  for (size_t i = 0; i < parts.list_size(); ++i) {
    for (const TokenizerField& part : parts_of(parts[i], list)) {
      out.push_back(part);
    }
  }
  return out;
}

TokenTable read_vocabulary(const TokenizerField& vocabulary, const std::string& path,
                           TokenizerSpec& spec) {
  if (!vocabulary.json().is_object() || vocabulary.json().empty()) {
    vocabulary.wrong("an object of tokens and their ids");
  }
  TokenTable ids;
  for (const auto& [token, number] : vocabulary.json().items()) {
    const int32_t id = TokenizerField(number, "model.vocab[\"" + token + "\"]", path).id();
    const auto place = static_cast<size_t>(id);
    if (token.empty()) {
      read_error("E318", path, "`model.vocab` has an empty token, id {}", id);
    }
    spec.tokens.resize(std::max(spec.tokens.size(), place + 1));
    if (!spec.tokens[place].empty()) {
      read_error("E318", path, "`model.vocab` gives the id {} to `{}` and to `{}`", id,
                 spec.tokens[place], token);
    }
    spec.tokens[place] = token;
    ids[token] = id;
  }
  return ids;
}

// "a b", or ["a", "b"].
std::pair<std::string, std::string> merge_texts(const TokenizerField& merge) {
  if (merge.json().is_array() && merge.list_size() == 2) {
    return {merge[size_t{0}].text(), merge[size_t{1}].text()};
  }
  if (!merge.json().is_string()) {
    merge.wrong("two tokens, \"a b\" or [\"a\", \"b\"]");
  }
  const std::string text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string::npos) {
    merge.wrong("two tokens with one space between");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const TokenizerField& merges, const TokenTable& ids, const std::string& path,
                 TokenizerSpec& spec) {
  if (!merges.json().is_array()) {
    merges.wrong("a list of merges");
  }
  for (size_t i = 0; i < merges.list_size(); ++i) {
    const TokenizerField merge = merges[i];
    const auto [left, right] = merge_texts(merge);
    const auto id = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) {
        read_error("E318", path, "`{}` merges `{}` and `{}`, but `{}` is not in the vocabulary",
                   merge.where(), left, right, token);
      }
      return found->second;
    };
    const int32_t left_id = id(left), right_id = id(right);
    spec.merges.push_back({left_id, right_id, id(left + right)});
  }
}

int32_t unknown_of(const std::string& unknown, const TokenTable& ids, const std::string& path) {
  const auto found = ids.find(unknown);
  if (found == ids.end()) {
    read_error("E318", path, "`model.unk_token` is `{}`, which is not in the vocabulary", unknown);
  }
  return found->second;
}

void read_word_piece(const TokenizerField& model, const std::string& path, TokenizerSpec& spec) {
  WordPiece& model_words = spec.word_piece.emplace();
  model_words.prefix = model["continuing_subword_prefix"].text_or("##");
  if (!model["max_input_chars_per_word"].is_null()) {
    model_words.max_characters = model["max_input_chars_per_word"].id();
  }
  const TokenTable ids = read_vocabulary(model["vocab"], path, spec);
  spec.unknown = unknown_of(model["unk_token"].text_or("[UNK]"), ids, path);
}

void read_model(const TokenizerField& model, const std::string& path, TokenizerSpec& spec) {
  const std::string type = model["type"].text_or("BPE");
  if (type == "WordPiece") {
    return read_word_piece(model, path, spec);
  }
  if (type != "BPE") {
    model["type"].unsupported("`" + type + "`, a tokenizer that is neither BPE nor WordPiece");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const std::string text = model[affix].text_or(""); !text.empty()) {
      model[affix].unsupported("`" + text + "`");
    }
  }
  if (const auto& dropout = model["dropout"].json(); !dropout.is_null() && dropout != 0) {
    model["dropout"].unsupported(dropout.dump());
  }
  const TokenTable ids = read_vocabulary(model["vocab"], path, spec);
  read_merges(model["merges"], ids, path, spec);
  spec.has_byte_tokens = model["byte_fallback"].flag(false);
  spec.prefers_whole_words = model["ignore_merges"].flag(false);
  spec.fuses_unknown = model["fuse_unk"].flag(false);
  if (const std::string unknown = model["unk_token"].text_or(""); !unknown.empty()) {
    spec.unknown = unknown_of(unknown, ids, path);
  }
}

void read_added(const TokenizerField& list, const std::string& path, TokenizerSpec& spec) {
  for (size_t i = 0; i < list.list_size(); ++i) {
    const TokenizerField token = list[i];
    AddedToken added{token["content"].text(),      token["id"].id(),
                     token["special"].flag(false), token["lstrip"].flag(false),
                     token["rstrip"].flag(false),  token["normalized"].flag(false)};
    if (token["single_word"].flag(false)) {
      token["single_word"].unsupported("true");
    }
    if (added.content.empty()) {
      token["content"].wrong("at least one character");
    }
    const auto place = static_cast<size_t>(added.id);
    if (place < spec.tokens.size() && !spec.tokens[place].empty() &&
        spec.tokens[place] != added.content) {
      read_error("E318", path, "`{}` is `{}` with the id {}, which is that of the token `{}`",
                 token.where(), added.content, added.id, spec.tokens[place]);
    }
    for (const AddedToken& other : spec.added) {
      if (other.id == added.id || other.content == added.content) {
        read_error("E318", path, "`{}` is `{}` with the id {}; another one is `{}` with {}",
                   token.where(), added.content, added.id, other.content, other.id);
      }
    }
    spec.added.push_back(std::move(added));
  }
}

// {"String": "a"} or {"Regex": "a+"}.
std::string literal_pattern(const TokenizerField& pattern) {
  if (pattern["String"].is_null()) {
    pattern.unsupported("a regex");
  }
  const std::string text = pattern["String"].text();
  if (text.empty()) {
    pattern.wrong("at least one character");
  }
  return text;
}

std::string regex_of(const TokenizerField& pattern) {
  if (!pattern["Regex"].is_null()) {
    return pattern["Regex"].text();
  }
  std::string out;
  for (const char c : literal_pattern(pattern)) {
    const bool is_plain = (static_cast<unsigned char>(c) & 0x80) != 0 || c == ' ' ||
                          std::isalnum(static_cast<unsigned char>(c)) != 0;
    out += is_plain ? std::string(1, c) : std::string{'\\', c};
  }
  return out;
}

void need_unicode_tables(const TokenizerField& part) {
  if (!has_unicode_tables()) {
    part["type"].needs("utf8proc", "libutf8proc-dev");
  }
}

Normalizer plain_normalizer(const TokenizerField& part) {
  const std::string type = part.type();
  if (type == "Prepend") {
    return [prefix = part["prepend"].text()](std::string_view text) {
      return text.empty() ? std::string() : prefix + std::string(text);
    };
  }
  if (type == "Replace") {
    return [by = Replacement(literal_pattern(part["pattern"]), part["content"].text())](
               std::string_view text) { return replace_all(std::string(text), by); };
  }
  if (type == "Strip") {
    return [left = part["strip_left"].flag(true),
            right = part["strip_right"].flag(true)](std::string_view text) {
      text.remove_prefix(left ? white_space_at_begin(text) : 0);
      text.remove_suffix(right ? white_space_at_end(text) : 0);
      return std::string(text);
    };
  }
  return nullptr;
}

Normalizer unicode_normalizer(const TokenizerField& part) {
  const std::string type = part.type();
  constexpr std::pair<const char*, UnicodeForm> kForms[] = {{"NFC", UnicodeForm::kNfc},
                                                            {"NFD", UnicodeForm::kNfd},
                                                            {"NFKC", UnicodeForm::kNfkc},
                                                            {"NFKD", UnicodeForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      return [form = form](std::string_view text) { return in_form(text, form); };
    }
  }
  if (type == "Lowercase") {
    return lower_case;
  }
  if (type == "StripAccents") {
    return without_marks;
  }
  if (type == "BertNormalizer") {
    const bool lowers = part["lowercase"].flag(true);
    const BertNormalizer normalizer{part["clean_text"].flag(true),
                                    part["handle_chinese_chars"].flag(true),
                                    part["strip_accents"].flag(lowers), lowers};
    return [normalizer](std::string_view text) { return bert_normalized(text, normalizer); };
  }
  return nullptr;
}

void read_normalizers(const TokenizerField& field, TokenizerSpec& spec) {
  for (const TokenizerField& part : parts_of(field, "normalizers")) {
    Normalizer normalizer = plain_normalizer(part);
    if (!normalizer && (normalizer = unicode_normalizer(part))) {
      need_unicode_tables(part);
    }
    if (!normalizer) {
      part["type"].unsupported("`" + part.type() + "`, a normalizer");
    }
    spec.normalizers.push_back(std::move(normalizer));
  }
}

// The older files have `add_prefix_space` for the scheme.
Metaspace read_metaspace(const TokenizerField& part) {
  Metaspace out;
  out.mark = part["replacement"].text();
  if (out.mark.empty()) {
    part["replacement"].wrong("one character");
  }
  const std::string scheme =
      part["prepend_scheme"].text_or(part["add_prefix_space"].flag(true) ? "always" : "never");
  out.before = scheme == "always"  ? Metaspace::Before::kAll
               : scheme == "first" ? Metaspace::Before::kFirst
                                   : Metaspace::Before::kNothing;
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    part["prepend_scheme"].unsupported("`" + scheme + "`");
  }
  out.splits = part["split"].flag(true);
  return out;
}

// What a `Split` keeps. The other behaviors join a match with a neighbour.
Kept kept_of(const TokenizerField& part) {
  const std::string behavior = part["behavior"].text();
  if (behavior != "Isolated" && behavior != "Removed") {
    part["behavior"].unsupported("`" + behavior + "`");
  }
  const bool is_inverted = part["invert"].flag(false);
  return behavior == "Isolated" ? Kept::kAll : is_inverted ? Kept::kMatches : Kept::kRest;
}

// Whitespace takes \w of Rust, which has the joiners; Punctuation is all of ASCII's.
std::optional<WordSplit> word_split(const TokenizerField& part) {
  const std::string type = part.type();
  if (type == "Split") {
    return WordSplit{regex_of(part["pattern"]), kept_of(part)};
  }
  if (type == "Digits") {
    return WordSplit{part["individual_digits"].flag(false) ? R"(\p{N})" : R"(\p{N}+)"};
  }
  if (type == "Whitespace") {
    return WordSplit{R"([\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+)", Kept::kMatches};
  }
  if (type == "WhitespaceSplit") {
    return WordSplit{R"(\s+)", Kept::kRest};
  }
  if (type == "Punctuation") {
    const std::string behavior = part["behavior"].text_or("Isolated");
    if (behavior != "Isolated") {
      part["behavior"].unsupported("`" + behavior + "`");
    }
    return WordSplit{R"([\p{P}$+<=>\^`|~])"};
  }
  return std::nullopt;
}

void read_byte_level(const TokenizerField& part, TokenizerSpec& spec) {
  if (spec.word_piece) {
    part["type"].unsupported("`ByteLevel`, with WordPiece");
  }
  spec.is_byte_level = true;
  spec.adds_space = part["add_prefix_space"].flag(true);
  if (spec.adds_space && !spec.splits.empty()) {
    part["add_prefix_space"].unsupported("true after another split");
  }
  if (part["use_regex"].flag(true)) {
    spec.splits.push_back({std::string(gpt2_pattern())});
  }
}

void read_pre_tokenizer(const TokenizerField& field, TokenizerSpec& spec) {
  std::string last;  // the one that is not a split: no other may follow
  for (const TokenizerField& part : parts_of(field, "pretokenizers")) {
    const std::string type = part.type();
    if (!last.empty()) {
      part["type"].unsupported("`" + type + "` behind " + last);
    }
    if (std::optional<WordSplit> split = word_split(part)) {
      spec.splits.push_back(*std::move(split));
      continue;
    }
    last = type;
    if (type == "ByteLevel") {
      read_byte_level(part, spec);
    } else if (type != "Metaspace" && type != "BertPreTokenizer") {
      part["type"].unsupported("`" + type + "`, a pre-tokenizer");
    } else if (!spec.splits.empty()) {
      part["type"].unsupported("`" + type + "` after another split");
    } else if (type == "Metaspace") {
      spec.metaspace = read_metaspace(part);
    } else {
      need_unicode_tables(part);
      spec.has_bert_words = true;
    }
  }
}

void read_decoder(const TokenizerField& field, TokenizerSpec& spec) {
  if (field.is_null() && !spec.is_byte_level && !spec.has_byte_tokens) {
    spec.joined = "";
  }
  for (const TokenizerField& part : parts_of(field, "decoders")) {
    const std::string type = part.type();
    if (type == "Replace") {
      spec.decoded.emplace_back(literal_pattern(part["pattern"]), part["content"].text());
    } else if (type == "Metaspace") {
      const Metaspace marks = read_metaspace(part);
      spec.decoded.emplace_back(marks.mark, " ");
      spec.first_mark = marks.before != Metaspace::Before::kNothing ? marks.mark : "";
    } else if (type == "Strip") {
      spec.strips_first_space =
          part["content"].text() == " " && part["start"].json() == 1 && part["stop"].json() == 0;
      if (!spec.strips_first_space) {
        part.unsupported("more than the first space");
      }
    } else if (type == "WordPiece" && spec.word_piece) {
      const std::string prefix = part["prefix"].text_or("##");
      spec.joined = prefix.empty() ? std::nullopt : std::optional(prefix);
      spec.cleans_up = part["cleanup"].flag(true);
    } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
      part["type"].unsupported("`" + type + "`, a decoder");
    }
  }
}

}  // namespace

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

TokenizerSpec parse_tokenizer(std::string_view text, const std::string& path) {
  const nlohmann::json json = parse_tokenizer_json(text, path);
  const TokenizerField all(json, "", path);
  TokenizerSpec spec;
  read_model(all["model"], path, spec);
  read_added(all["added_tokens"], path, spec);
  read_normalizers(all["normalizer"], spec);
  read_pre_tokenizer(all["pre_tokenizer"], spec);
  read_decoder(all["decoder"], spec);
  return spec;
}

}  // namespace meshtrain
