#include "config/scalars.h"

#include "doctest/doctest.h"

namespace meshtrain {

TEST_CASE("parse_integer: decimal, signs, underscores, hexadecimal, octal") {
  const std::pair<const char*, int64_t> kCases[] = {{"0", 0},
                                                    {"-5", -5},
                                                    {"+7", 7},
                                                    {"1_000", 1000},
                                                    {"0x1f", 31},
                                                    {"0o12", 10},
                                                    {"9223372036854775807", INT64_MAX},
                                                    {"-9223372036854775808", INT64_MIN}};
  for (const auto& [text, value] : kCases) {
    CAPTURE(text);
    REQUIRE(parse_integer(text).value);
    CHECK(*parse_integer(text).value == value);
  }
}

TEST_CASE("parse_integer: what is no integer says what to write") {
  const struct {
    const char* text;
    const char* code;
    const char* label;
  } kCases[] = {{"1e3", "E112", "write 1000"},
                {"3.5", "E112", ""},
                {"2.0", "E112", "write 2"},
                {"ten", "E112", ""},
                {"012", "E114", "write `12` or `0o12`"},
                {"-089", "E114", "write `89`"},
                {"1,000", "E114", "write `1000` or `1.000`"},
                {"_1", "E112", ""},
                {"1__0", "E112", ""},
                {"9223372036854775808", "E112", ""},
                {"0x", "E112", ""},
                {"", "E112", ""},
                {"--5", "E112", ""},
                {"1 2", "E112", ""}};
  for (const auto& c : kCases) {
    CAPTURE(c.text);
    const auto result = parse_integer(c.text);
    CHECK_FALSE(result.value);
    CHECK(result.problem.code == c.code);
    CHECK(result.problem.label == c.label);
  }
}

TEST_CASE("parse_number: every finite spelling") {
  const std::pair<const char*, double> kCases[] = {
      {"1e-4", 1e-4},  {".5", 0.5},           {"5.", 5}, {"1_000.5", 1000.5}, {"-3", -3},
      {"+1.5E2", 150}, {"4.9e-324", 4.9e-324}};
  for (const auto& [text, value] : kCases) {
    CAPTURE(text);
    REQUIRE(parse_number(text).value);
    CHECK(*parse_number(text).value == value);
  }
}

TEST_CASE("parse_number: what is not finite or not a number is refused") {
  const std::pair<const char*, const char*> kCases[] = {
      {"nan", "E113"},   {".nan", "E113"},   {"-.inf", "E113"}, {"Infinity", "E113"},
      {"1e400", "E113"}, {"1e-400", "E113"}, {"010", "E114"},   {"1,5", "E114"},
      {"1/255", "E112"}, {"fast", "E112"},   {"1e", "E112"},    {"", "E112"}};
  for (const auto& [text, code] : kCases) {
    CAPTURE(text);
    CHECK_FALSE(parse_number(text).value);
    CHECK(parse_number(text).problem.code == code);
  }
  CHECK(parse_number("1/255").problem.label == "write `=1/255`");
}

TEST_CASE("parse_boolean: true and false and no other word") {
  for (const char* text : {"true", "True", "TRUE"}) {
    CHECK(*parse_boolean(text).value);
  }
  for (const char* text : {"false", "False", "FALSE"}) {
    CHECK_FALSE(*parse_boolean(text).value);
  }
  for (const char* text : {"yes", "on", "Y", "1"}) {
    CAPTURE(text);
    CHECK(parse_boolean(text).problem.code == "E114");
    CHECK(parse_boolean(text).problem.label == "write `true`");
  }
  for (const char* text : {"NO", "off", "n", "0"}) {
    CAPTURE(text);
    CHECK(parse_boolean(text).problem.label == "write `false`");
  }
  CHECK(parse_boolean("maybe").problem.code == "E112");
  CHECK(parse_boolean("tRUE").problem.code == "E112");
}

TEST_CASE("list_of_tuple: Python's tuples of numbers and nothing else") {
  CHECK(list_of_tuple("(28,28,1)") == "[28, 28, 1]");
  CHECK(list_of_tuple(" (3, ) ") == "[3]");
  CHECK(list_of_tuple("(None, -1, 0.5)") == "[null, -1, 0.5]");
  for (const char* text : {"", "()", "(", "(a, b)", "3", "(d1|d2)/kernel", "(1, 2", "1, 2)"}) {
    CAPTURE(text);
    CHECK_FALSE(list_of_tuple(text));
  }
}

}  // namespace meshtrain
