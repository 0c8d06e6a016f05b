// Texts padded to one length: against Keras Hub (tests/reference/packed_texts.py), and from files.
#include "data/packed_text.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "base/json.h"
#include "config/catalogue.h"
#include "data/learned.h"
#include "data/sources.h"
#include "data/text_codec.h"
#include "data/tokenizer/unicode_text.h"
#include "source_config.h"
#include "support/golden.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using namespace test;
using Json = nlohmann::json;
using IntRows = std::vector<std::vector<int32_t>>;

std::string tokenizers() {
  return std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/";
}

ConfigValue tokenizer_value(const std::string& name) {
  return value(ConfigValue::Dict{{"tokenizer", value(tokenizers() + name)}});
}
ConfigValue text_or_null(const Json& text) {
  return text.is_null() ? null_value() : value(text.get<std::string>());
}

ConfigObject with_args(Category category, const char* class_name, const Args& args) {
  ConfigObject out = default_object(category, class_name);
  out.loc = place(2);
  for (const auto& [name, arg] : args) {
    out.args[name] = arg;
  }
  return out;
}
ConfigObject lines(const Args& args) {
  return with_args(Category::kSource, "lines", args);
}

IntRows int_rows(const RowsPtr& rows) {
  const HostTensor all = whole(rows);
  IntRows out;
  for (int64_t i = 0; i < all.shape()[0]; ++i) {
    out.emplace_back();
    for (int64_t k = 0; k < all.shape()[1]; ++k) {
      out.back().push_back(static_cast<int32_t>(all.at(i * all.shape()[1] + k)));
    }
  }
  return out;
}

// A problem with its place: "E314 2:3 message".
template <class Call>
std::string thrown_by(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    const Diagnostic& problem = error.diagnostics().list().front();
    return fmt::format("{} {}:{} {}", problem.code, problem.loc.line, problem.loc.column,
                       problem.message);
  }
  return "no problem";
}

TEST_CASE("lines are packed as Keras Hub packs them, for language models and classifiers") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  const Json golden = parse_json(read_text(tokenizers() + "packed.json"));
  TempFolder folder;
  std::string text;
  for (const Json& line : golden.at("texts")) {
    text += line.get<std::string>() + "\r\n\n";  // an empty line is no sample
  }
  folder.write("lines.txt", text);
  REQUIRE(golden.at("cases").size() == 5);
  for (const Json& one : golden.at("cases")) {
    CAPTURE(one.dump());
    Args args = {{"path", value("lines.txt")},
                 {"vocabulary", tokenizer_value(one.at("tokenizer"))},
                 {"max_length", value(one.at("length").get<int64_t>())},
                 {"start_token", text_or_null(one.at("start"))},
                 {"end_token", text_or_null(one.at("end"))},
                 {"pad_token", text_or_null(one.at("padding"))}};
    const Dataset pairs = read_source(lines(args), folder.path());
    CHECK(int_rows(pairs.inputs.at(0).rows) == one.at("x").get<IntRows>());
    CHECK(int_rows(pairs.inputs.at(1).rows) == one.at("x_mask").get<IntRows>());
    CHECK(int_rows(pairs.targets.at(0).rows) == one.at("y").get<IntRows>());
    CHECK(int_rows(pairs.sample_weight) == one.at("weights").get<IntRows>());
    CHECK(pairs.sample_weight->dtype() == DType::kFloat32);
    args.emplace_back("target", null_value());
    const Dataset alone = read_source(lines(args), folder.path());
    CHECK(alone.targets.empty());
    CHECK(alone.sample_weight == nullptr);
    CHECK(int_rows(alone.inputs.at(0).rows) == one.at("token_ids").get<IntRows>());
    CHECK(alone.inputs.at(1).name == "padding_mask");
    CHECK(alone.inputs.at(1).is_optional);
    CHECK(int_rows(alone.inputs.at(1).rows) == one.at("padding_mask").get<IntRows>());
    CHECK(alone.inputs.at(2).name == "segment_ids");
    for (const std::vector<int32_t>& row : int_rows(alone.inputs.at(2).rows)) {
      CHECK(std::accumulate(row.begin(), row.end(), 0) == 0);
    }
  }
}

TEST_CASE("a run needs the tokenizer's folder no more, and continues texts as it was trained") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  TempFolder folder;
  folder.write("lines.txt", "The King\nhear me speak\n");
  Args args = {{"path", value("lines.txt")},
               {"vocabulary", tokenizer_value("bert")},
               {"max_length", value(8)},
               {"start_token", value("[CLS]")},
               {"end_token", value("[SEP]")}};
  const Dataset first = read_source(lines(args), folder.path());
  REQUIRE(first.learned != nullptr);
  args[1].second = value(ConfigValue::Dict{{"tokenizer", value("gone")}});
  const Dataset second = read_source(lines(args), folder.path(), first.learned);
  CHECK(int_rows(second.inputs[0].rows) == int_rows(first.inputs[0].rows));
  const auto codec = text_codec(lines(args), first.learned);
  REQUIRE(codec != nullptr);
  const std::vector<int32_t> king = codec->encode("The King", "prompt");
  const std::vector<int32_t> row = int_rows(first.inputs[0].rows)[0];
  CHECK(std::equal(king.begin(), king.end(), row.begin()));  // without the end token
  CHECK(codec->end() == row[king.size()]);
  CHECK(codec->decode(row) == " the king");  // behind other words
}

constexpr const char* kReviewTable =
    "review,stars,age\n"
    "\"The King, speak\",good,3\n"
    "  hear me,bad,4\n"
    "\"First Citizen: Before we proceed any further\",good,5\n";

ConfigObject reviews(const Args& more, const Args& transform_args = {}) {
  Args transform = {{"column", value("review")},   {"vocabulary", tokenizer_value("bert")},
                    {"max_length", value(6)},      {"start_token", value("[CLS]")},
                    {"end_token", value("[SEP]")}, {"pad_token", value("[PAD]")}};
  transform.insert(transform.end(), transform_args.begin(), transform_args.end());
  ConfigValue tokenizer;
  tokenizer.data =
      std::make_shared<ConfigObject>(with_args(Category::kTransform, "Tokenizer", transform));
  Args args = {{"path", value("reviews.csv")},
               {"label", value("stars")},
               {"features", value(ConfigValue::Dict{{"token_ids", value("review")}})},
               {"preprocessing", value(ConfigValue::List{tokenizer})}};
  args.insert(args.end(), more.begin(), more.end());
  return with_args(Category::kSource, "csv", args);
}

TEST_CASE("a column of a table becomes padded ids with their mask, beside labels") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  TempFolder folder;
  folder.write("reviews.csv", kReviewTable);
  const Dataset dataset = read_source(reviews({}), folder.path());
  TextPacker packer(read_tokenizer_text(tokenizers() + "bert"), "bert",
                    packed_text_options(reviews({}).arg("preprocessing").list()[0].object()));
  IntRows expected, mask;
  for (const char* text :
       {"The King, speak", "  hear me", "First Citizen: Before we proceed any further"}) {
    expected.emplace_back();
    packer.append(text, "text", 6, expected.back());
    mask.emplace_back(expected.back().size(), 1);
    mask.back().resize(6);
    expected.back().resize(6);  // [PAD] is 0
  }
  CHECK(dataset.inputs.at(0).name == "token_ids");
  CHECK(dataset.inputs[0].rows->dtype() == DType::kInt32);
  CHECK(Json(int_rows(dataset.inputs[0].rows)).dump() == Json(expected).dump());
  CHECK(dataset.inputs.at(1).name == "padding_mask");
  CHECK(int_rows(dataset.inputs[1].rows) == mask);
  CHECK(dataset.inputs.at(2).name == "segment_ids");
  CHECK(dataset.class_names == std::vector<std::string>{"bad", "good"});
  // Another table, by what was learned from this one.
  folder.write("new.csv", "review\nhear me\n");
  const Dataset more =
      read_source(reviews({{"path", value("new.csv")}, {"label", null_value()}},
                          {{"vocabulary", value(ConfigValue::Dict{{"tokenizer", value("gone")}})}}),
                  folder.path(), dataset.learned);
  CHECK(int_rows(more.inputs.at(0).rows).size() == 1);
  CHECK(more.inputs.size() == 3);
}

TEST_CASE("texts that cannot be packed are errors with their place") {
  if (!has_unicode_tables()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  TempFolder folder;
  folder.write("reviews.csv", kReviewTable);
  const auto read_reviews = [&](const Args& more, const Args& transform = {}) {
    return thrown_by([&] { read_source(reviews(more, transform), folder.path()); });
  };
  CHECK(read_reviews({}, {{"end_token", value("</s>")}}).find("E314 2:3 `</s>` is no token of") ==
        0);
  CHECK(read_reviews({{"features", value(ConfigValue::List{value("review"), value("age")})}}) ==
        "E310 2:3 the array `x` has `review`, which is tokenized, and other columns");
  CHECK(
      read_reviews({}, {{"vocabulary", value(ConfigValue::Dict{{"tokenizer", value("missing")}})}})
          .find("E300") == 0);
  folder.write("reviews.csv", "review,stars\nok,good\nno\xff,bad\n");
  CHECK(read_reviews({}).find("is no UTF-8") != std::string::npos);
  folder.write("lines.txt", "good\n\nb\xff\n");
  const std::string message = thrown_by([&] {
    read_source(lines({{"path", value("lines.txt")},
                       {"vocabulary", tokenizer_value("gpt2")},
                       {"max_length", value(4)}}),
                folder.path());
  });
  CHECK(message.find("E318") == 0);
  CHECK(message.find("lines.txt, line 3") != std::string::npos);
}

}  // namespace
}  // namespace meshtrain
