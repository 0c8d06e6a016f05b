#include "data/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/diagnostic.h"
#include "base/json.h"
#include "data/tokenizer/unicode_text.h"
#include "support/golden.h"
#include "support/malformed.h"

namespace meshtrain {
namespace {

using nlohmann::json;
using TokenIds = std::vector<int32_t>;

std::string golden(const std::string& name) {
  return std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/" + name;
}
Tokenizer tokenizer_of(const std::string& folder) {
  return {read_tokenizer_text(folder), "tokenizer.json"};
}
TokenIds ids_of(Tokenizer& tokenizer, const std::string& text) {
  TokenIds ids;
  tokenizer.encode(text, ids, "text");
  return ids;
}

// The message of what `call` throws.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    const Diagnostic& problem = error.diagnostics().list().front();
    return problem.code + " " + problem.message;
  }
  return "no problem";
}

void check_each(Tokenizer& tokenizer, const json& cases) {
  for (const json& one : cases) {
    const auto text = one.at("text").get<std::string>();
    CAPTURE(text);
    const TokenIds ids = ids_of(tokenizer, text);
    CHECK(ids == one.at("ids").get<TokenIds>());
    CHECK(tokenizer.decode(ids) == one.at("decoded").get<std::string>());
    CHECK(ids_of(tokenizer, text) == ids);  // of cached words
  }
}

// tests/reference/tokenizers_golden.py
void check_cases(const std::string& folder, const std::string& name) {
  Tokenizer tokenizer = tokenizer_of(golden(folder));
  const json cases = parse_json(test::read_text(golden(name + "/cases.json")));
  REQUIRE(cases.size() > 100);
  check_each(tokenizer, cases);
}

// Of the tokenizer `base` with other parts of its tokenizer.json, a list of which is in `name`.
void check_changes(const std::string& base, const std::string& name) {
  const json file = parse_json(test::read_text(golden(base + "/tokenizer.json")));
  for (json change : parse_json(test::read_text(golden(name)))) {
    const json cases = change.at("cases");
    change.erase("cases");
    CAPTURE(json_text(change));
    REQUIRE(cases.size() > 1);
    json changed = file;
    changed.update(change);
    Tokenizer tokenizer(json_text(changed), name);
    check_each(tokenizer, cases);
  }
}

TEST_CASE("Tokenizers give the ids and texts of `tokenizers`") {
  for (const char* name : {"gpt2", "llama3", "llama2", "roberta"}) {
    CAPTURE(name);
    check_cases(name, name);
  }
}

TEST_CASE("Metaspace gives the ids and texts of `tokenizers`") {
  check_changes("llama2", "metaspace.json");
}

TEST_CASE("Normalizers give the ids and texts of `tokenizers`") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  check_changes("llama2", "forms.json");
}

TEST_CASE("Splits one after another give the ids and texts of `tokenizers`") {
  for (const char* name : {"smollm", "deepseek", "deepseek_lines"}) {
    CAPTURE(name);
    check_cases(name, name);
  }
}

TEST_CASE("Splits that leave texts out give the ids and texts of `tokenizers`") {
  check_changes("bert_cased", "word_splits_wordpiece.json");
  check_changes("llama2", "word_splits.json");
}

json small() {
  return parse_json(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
                        "merges": ["a b"]}})");
}
std::string problem_of(const json& wrong) {
  return message_of([&] { Tokenizer(json_text(wrong), "t"); });
}
json with(const char* pointer, json value) {
  json changed = small();
  changed[json::json_pointer(pointer)] = std::move(value);
  return changed;
}

json split_by(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
}

TEST_CASE(
    "Regexes: those of published tokenizers are read, and what PCRE2 reads otherwise is not") {
  constexpr const char* kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  const std::string rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)", upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string read[] = {
      std::string(gpt2_pattern()),
      fmt::format(R"({}|{}\p{{L}}+|\p{{N}}{{1,3}}{})", kContractions, before, rest),  // Llama 3
      fmt::format(R"({}|{}\p{{L}}+|\p{{N}}{})", kContractions, before, rest),         // Qwen 2
      fmt::format(R"({0}{1}*{2}+{3}?|{0}{1}+{2}*{3}?|\p{{N}}{{1,3}}{4})", before, upper, lower,
                  kContractions, rest),  // GPT-4o
      R"([\w-]+|[[:digit:]])",
      R"(\[&&)",
      R"([&]&)"};
  for (const std::string& regex : read) {
    CHECK(problem_of(with("/pre_tokenizer", split_by(regex))) == "no problem");
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"([\p{L}&&[^\p{Han}]]+)", "has `&&` within a class"},
      {"[^(a|[.,])]+", "has `[` within a class"},
      {"[]a[b]]", "has `[` within a class"},
      {"[[:alpha:]]", "has `[:alpha:]` within a class"},
      {R"(\h+)", R"(has `\h`)"},
      {R"([\H]+)", R"(has `\H` within a class)"},
      {"(?im:a.)", "has `(?im`"},
      {"x*", "can match no character"},
      {R"(\b)", "can match no character"}};
  for (const auto& [regex, what] : refused) {
    CHECK(problem_of(with("/pre_tokenizer", split_by(regex))) ==
          fmt::format("E327 `t`: the pattern `{}` {}, which is not read", regex, what));
  }
}

TEST_CASE("vocab.json and merges.txt are the tokenizer of the same tokenizer.json") {
  check_cases("gpt2_files", "gpt2");
}

TEST_CASE("vocab.json and merges.txt are read with the choices of tokenizer_config.json") {
  const test::TempFolder folder;
  const std::string config = folder.path() + "/tokenizer_config.json";
  folder.write("vocab.json", R"({"a": 0, "\u0120a": 1, "\u0120": 2, "<x>": 3})");
  folder.write("merges.txt", "#version: 0.2\n\u0120 a\n");
  folder.write("added_tokens.json", R"({"<y>": 4})");
  const std::pair<const char*, TokenIds> cases[] = {
      {R"({"bos_token": "<x>"})", {0, 3, 0, 4}},
      {R"({"pad_token": {"content": "<x>"}, "add_prefix_space": true})", {1, 3, 1, 4}},
      {R"({"tokenizer_class": "GPT2TokenizerFast", "eos_token": "<x>",
           "added_tokens_decoder": {"7": {"content": "<y>", "special": true}}})",
       {0, 3, 0, 7}}};
  for (const auto& [text, ids] : cases) {
    CAPTURE(text);
    folder.write("tokenizer_config.json", text);
    Tokenizer tokenizer = tokenizer_of(folder.path());
    CHECK(ids_of(tokenizer, "a<x>a<y>") == ids);
    CHECK(tokenizer.decode(TokenIds{0, 3, ids.back()}, true) == "a");
  }
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  CHECK(message_of([&] { tokenizer_of(folder.path()); }) ==
        fmt::format("E327 `{}`: `tokenizer_class` is `RobertaTokenizer`, but `vocab.json` and "
                    "`merges.txt` alone are read only for `GPT2Tokenizer`; a `tokenizer.json` "
                    "beside them would be read",
                    config));
}

TEST_CASE("WordPiece tokenizers give the ids and texts of `tokenizers`") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  for (const char* name : {"bert", "bert_cased"}) {
    CAPTURE(name);
    check_cases(name, name);
  }
  check_cases("bert_files", "bert_cased");
  check_changes("bert", "no_decoder.json");
  Tokenizer tokenizer = tokenizer_of(golden("bert"));
  CHECK(tokenizer.find("[MASK]") == 4);
  const TokenIds ids = ids_of(tokenizer, "[CLS] The King");
  CHECK(tokenizer.decode(ids, true) == "the king");
}

TEST_CASE("vocab.txt is read with the choices of tokenizer_config.json") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  const test::TempFolder folder;
  folder.write("vocab.txt", test::read_text(golden("bert_files/vocab.txt")));
  for (const json& one : parse_json(test::read_text(golden("bert_choices.json")))) {
    CAPTURE(json_text(one.at("config")));
    folder.write("tokenizer_config.json", json_text(one.at("config")));
    Tokenizer tokenizer = tokenizer_of(folder.path());
    check_each(tokenizer, one.at("cases"));
  }
  // Folders of older versions of transformers.
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "DistilBertTokenizerFast"})");
  folder.write("added_tokens.json", R"({"NewTok": 500})");
  Tokenizer tokenizer = tokenizer_of(folder.path());
  CHECK(tokenizer.size() == 501);
  CHECK(ids_of(tokenizer, "newtok") == TokenIds{500});
}

#ifdef MESHTRAIN_SENTENCEPIECE
// tests/reference/sentencepiece_golden.py
TEST_CASE("Models of SentencePiece give the ids and texts of `sentencepiece`") {
  ::setenv("MESHTRAIN_SENTENCEPIECE_LIBRARY", MESHTRAIN_SENTENCEPIECE, 1);
  for (const char* name : {"sentencepiece_bpe", "sentencepiece_unigram"}) {
    CAPTURE(name);
    check_cases(name, name);
  }
  Tokenizer tokenizer = tokenizer_of(golden("sentencepiece_bpe"));
  CHECK(tokenizer.size() == 420);
  CHECK(tokenizer.find("</s>") == 2);
  CHECK(tokenizer.find("<0x0A>") == 13);
  CHECK(!tokenizer.find("no such token"));
  CHECK(tokenizer.decode(TokenIds{2}, true) == "");
  CHECK(message_of([&] { ids_of(tokenizer, "ab\xff"); }) ==
        "E318 `text`: byte 0xff at offset 2 is not UTF-8");
  CHECK(message_of([&] { tokenizer.decode(TokenIds{420}); }) ==
        "E314 `tokenizer.json`: no token has the id 420");
}

TEST_CASE("Damaged models of SentencePiece, and a program without its library") {
  ::setenv("MESHTRAIN_SENTENCEPIECE_LIBRARY", MESHTRAIN_SENTENCEPIECE, 1);
  const std::string bytes = test::read_text(golden("sentencepiece_bpe/tokenizer.model"));
  for (const size_t length : {size_t{0}, size_t{1}, bytes.size() / 2, bytes.size() - 1}) {
    const std::string part = bytes.substr(0, length);
    CHECK(sentence_piece_bytes(sentence_piece_text(part)) == part);
    CHECK(message_of([&] {
            Tokenizer(sentence_piece_text(part), "t");
          }).find("E318 `t`: no model of SentencePiece") == 0);
  }
  ::setenv("MESHTRAIN_SENTENCEPIECE_LIBRARY", "/nowhere.so", 1);
  CHECK(message_of([&] {
          Tokenizer(sentence_piece_text(bytes), "t");
        }).find("E327 `t`: a model of SentencePiece: cannot load /nowhere.so") == 0);
  ::unsetenv("MESHTRAIN_SENTENCEPIECE_LIBRARY");
}
#endif

TEST_CASE("Ids of a byte-level tokenizer keep every byte; half a character is its bytes") {
  Tokenizer tokenizer = tokenizer_of(golden("gpt2"));
  const TokenIds ids = ids_of(tokenizer, "\xF0\x9F\x98\x80");
  REQUIRE(ids.size() == 4);
  CHECK(tokenizer.decode(std::span(ids).first(2)) == "\xF0\x9F");
  CHECK(tokenizer.size() == 600);
  CHECK(tokenizer.find("<|endoftext|>") == 0);
  CHECK(tokenizer.find("\xC4\xA0the").has_value());
  CHECK(!tokenizer.find("no such token"));
  const TokenIds special = ids_of(tokenizer, "a<|endoftext|>b");
  CHECK(tokenizer.decode(special) == "a<|endoftext|>b");
  CHECK(tokenizer.decode(special, true) == "ab");
  CHECK(message_of([&] { tokenizer.decode(TokenIds{600}); }) ==
        "E314 `tokenizer.json`: no token has the id 600");
}

TEST_CASE("A text that is no UTF-8 is refused with the offset") {
  Tokenizer tokenizer = tokenizer_of(golden("gpt2"));
  for (const char* bad : {"abc\xFF", "abc\xC3", "abc\xED\xA0\x80", "abc\xC0\x80"}) {
    const std::string text = bad;
    CHECK(message_of([&] { ids_of(tokenizer, text); }) ==
          fmt::format("E318 `text`: byte 0x{:02x} at offset 3 is not UTF-8",
                      static_cast<unsigned char>(text[3])));
  }
}

json with(const char* pointer, json value, json pre_tokenizer) {
  json changed = with(pointer, std::move(value));
  changed["pre_tokenizer"] = std::move(pre_tokenizer);
  return changed;
}
json behind(json first) {
  return {{"type", "Sequence"}, {"pretokenizers", {std::move(first), {{"type", "ByteLevel"}}}}};
}

TEST_CASE("Wrong tokenizers: each is refused with its exact message") {
  CHECK(problem_of(small()) == "no problem");
  const std::pair<json, const char*> cases[] = {
      {"text", "E318 `t`: no JSON object; cut off?"},
      {with("/model/type", "Unigram"),
       "E327 `t`: `model.type` is `Unigram`, a tokenizer that is neither BPE nor WordPiece, which "
       "is "
       "not read"},
      {with("/model/type", "WordPiece"),
       "E318 `t`: `model.unk_token` is `[UNK]`, which is not in the vocabulary"},
      {with("/normalizer", {{"type", "NFC"}}),
       has_unicode_tables() ? "no problem"
                            : "E327 `t`: `normalizer.type` is `NFC`, which needs utf8proc, and "
                              "this program was built without it; install libutf8proc-dev and "
                              "build again"},
      {with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
       has_unicode_tables() ? "no problem"
                            : "E327 `t`: `pre_tokenizer.type` is `BertPreTokenizer`, which needs "
                              "utf8proc, and this program was built without it; install "
                              "libutf8proc-dev and build again"},
      {with("/model/vocab", json::object()),
       "E318 `t`: `model.vocab` must be an object of tokens and their ids"},
      {with("/model/vocab/b", 0), "E318 `t`: `model.vocab` gives the id 0 to `a` and to `b`"},
      {with("/model/vocab/b", -1),
       "E318 `t`: `model.vocab[\"b\"]` must be an id from 0 to 16777215"},
      {with("/model/vocab/b", 1.5),
       "E318 `t`: `model.vocab[\"b\"]` must be an id from 0 to 16777215"},
      {with("/model/vocab/", 3), "E318 `t`: `model.vocab` has an empty token, id 3"},
      {with("/model/merges", nullptr),
       "E318 `t`: `model.merges` must be a list of merges; it is missing"},
      {with("/model/merges/0", "ab"),
       "E318 `t`: `model.merges[0]` must be two tokens with one space between"},
      {with("/model/merges/0", json{"a", "b", "c"}),
       "E318 `t`: `model.merges[0]` must be two tokens, \"a b\" or [\"a\", \"b\"]"},
      {with("/model/merges/0", "a c"),
       "E318 `t`: `model.merges[0]` merges `a` and `c`, but `c` is not in the vocabulary"},
      {with("/model/merges/0", "b a"),
       "E318 `t`: `model.merges[0]` merges `b` and `a`, but `ba` is not in the vocabulary"},
      {with("/model/unk_token", "<unk>"),
       "E318 `t`: `model.unk_token` is `<unk>`, which is not in the vocabulary"},
      {with("/model/dropout", 0.1), "E327 `t`: `model.dropout` is 0.1, which is not read"},
      {with("/model/end_of_word_suffix", "</w>"),
       "E327 `t`: `model.end_of_word_suffix` is `</w>`, which is not read"},
      {with("/model/byte_fallback", 1), "E318 `t`: `model.byte_fallback` must be true or false"},
      {with("/added_tokens", {{{"content", "x"}, {"id", 1}}}),
       "E318 `t`: `added_tokens[0]` is `x` with the id 1, which is that of the token `b`"},
      {with("/added_tokens", {{{"content", "x"}, {"id", 5}}, {{"content", "y"}, {"id", 5}}}),
       "E318 `t`: `added_tokens[1]` is `y` with the id 5; another one is `x` with 5"},
      {with("/added_tokens", {{{"content", ""}, {"id", 5}}}),
       "E318 `t`: `added_tokens[0].content` must be at least one character"},
      {with("/added_tokens", {{{"content", "x"}, {"id", 5}, {"single_word", true}}}),
       "E327 `t`: `added_tokens[0].single_word` is true, which is not read"},
      {with("/normalizer", {{"type", "Nmt"}}),
       "E327 `t`: `normalizer.type` is `Nmt`, a normalizer, which is not read"},
      {with("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
       "E327 `t`: `pre_tokenizer.type` is `UnicodeScripts`, a pre-tokenizer, which is not read"},
      {with("/pre_tokenizer", {{"type", "Metaspace"}}),
       "E318 `t`: `pre_tokenizer.replacement` must be a text; it is missing"},
      {with("/pre_tokenizer",
            {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}}),
       "E327 `t`: `pre_tokenizer.prepend_scheme` is `last`, which is not read"},
      {with("/pre_tokenizer", {{"type", "Split"},
                               {"pattern", {{"Regex", "a"}}},
                               {"behavior", "MergedWithNext"},
                               {"invert", false}}),
       "E327 `t`: `pre_tokenizer.behavior` is `MergedWithNext`, which is not read"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}}),
       "E318 `t`: the pattern `(a` is not a regular expression: missing closing parenthesis"},
      {with("/pre_tokenizer", {{"type", "Punctuation"}, {"behavior", "Contiguous"}}),
       "E327 `t`: `pre_tokenizer.behavior` is `Contiguous`, which is not read"},
      {with("/pre_tokenizer", behind({{"type", "Metaspace"}, {"replacement", "_"}})),
       "E327 `t`: `pre_tokenizer.pretokenizers[1].type` is `ByteLevel` behind Metaspace, which is "
       "not read"},
      {with("/model", {{"type", "WordPiece"}, {"vocab", {{"[UNK]", 0}}}}, {{"type", "ByteLevel"}}),
       "E327 `t`: `pre_tokenizer.type` is `ByteLevel`, with WordPiece, which is not read"},
      {with("/decoder", {{"type", "WordPiece"}}),
       "E327 `t`: `decoder.type` is `WordPiece`, a decoder, which is not read"}};
  for (const auto& [wrong, message] : cases) {
    CHECK(problem_of(wrong) == message);
  }
  if (has_unicode_tables()) {
    CHECK(problem_of(with("/pre_tokenizer", behind({{"type", "BertPreTokenizer"}}))) ==
          "E327 `t`: `pre_tokenizer.pretokenizers[1].type` is `ByteLevel` behind BertPreTokenizer, "
          "which is not read");
  }
  Tokenizer tokenizer(json_text(small()), "t");
  TokenIds ids;
  CHECK(message_of([&] { tokenizer.encode("abc", ids, "x.txt"); }) ==
        "E314 `x.txt`: the character U+0063 has no token in `t`, which names no unknown token");
}

TEST_CASE("A tokenizer may be given as its file") {
  CHECK(read_tokenizer_text(golden("gpt2/tokenizer.json")) == read_tokenizer_text(golden("gpt2")));
  CHECK(message_of([] {
          read_tokenizer_text(golden("gpt2_files/merges.txt"));
        }).find("this is a file; name its folder, a tokenizer.json or a .model") !=
        std::string::npos);
}

TEST_CASE("Wrong folders of tokenizers") {
  const test::TempFolder folder;
  const std::string path = folder.path();
  CHECK(message_of([&] { read_tokenizer_text(path); }) ==
        fmt::format("E300 `{}`: no tokenizer is here: it has neither `tokenizer.json` nor "
                    "`vocab.json` and `merges.txt`, `vocab.txt`, `tokenizer.model` nor "
                    "`spiece.model`",
                    path));
  const std::pair<const char*, const char*> vocabularies[] = {
      {"[PAD]\n[UNK]\r\n\n[PAD]\n", "line 4: the token `[PAD]` is that of line 1, too"},
      {"[UNK]\na\xff\n", "line 2: byte 0xff is not UTF-8"},
      {"\n", "no token is here; each line is one, in the order of their ids"},
      {"[PAD]\na\n",
       "no line is `[UNK]`, the token of unknown words; another one is `unk_token` of "
       "`tokenizer_config.json`"}};
  for (const auto& [text, message] : vocabularies) {
    folder.write("vocab.txt", text);
    CHECK(message_of([&] { read_tokenizer_text(path); }) ==
          fmt::format("E318 `{}/vocab.txt`: {}", path, message));
  }
  folder.write("vocab.txt", "[UNK]\na\n");
  const std::pair<const char*, const char*> choices[] = {
      {R"({"do_lower_case": "yes"})", "E318 `{}`: `do_lower_case` must be true or false"},
      {R"({"unk_token": 1})", "E318 `{}`: `unk_token` must be a text"},
      {R"({"added_tokens_decoder": {"x": {}}})",
       "E318 `{}`: `added_tokens_decoder` must be an object of ids and tokens"},
      {R"({"added_tokens_decoder": {"1": {"content": 1}}})",
       "E318 `{}`: `added_tokens_decoder.1.content` must be a text"},
      {R"({"tokenizer_class": "EsmTokenizer"})",
       "E327 `{}`: `tokenizer_class` is `EsmTokenizer`, which does not split texts as BERT's do, "
       "so `vocab.txt` alone is not read; a `tokenizer.json` beside it would be"}};
  for (const auto& [text, message] : choices) {
    folder.write("tokenizer_config.json", text);
    CHECK(message_of([&] { read_tokenizer_text(path); }) ==
          fmt::format(fmt::runtime(message), path + "/tokenizer_config.json"));
  }
  folder.write("tokenizer_config.json", "{}");
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.write("merges.txt", "#version: 0.2\na b\nab\n");
  CHECK(
      message_of([&] { read_tokenizer_text(path); }) ==
      fmt::format("E318 `{}/merges.txt`: line 3: must be two tokens with one space between", path));
  folder.write("vocab.json", R"({"a": 0, )");
  CHECK(message_of([&] { read_tokenizer_text(path); }) ==
        fmt::format("E318 `{}/vocab.json`: no JSON object; cut off?", path));
}

}  // namespace
}  // namespace meshtrain
