// Text for people: columns, and what strangers' files hold; numbers of texts.
#include "base/text.h"

#include <doctest/doctest.h>

#include "base/columns.h"
#include "base/parse_number.h"
#include "base/printable.h"

namespace meshtrain {
namespace {

TEST_CASE("columns are as wide as their widest text in characters") {
  CHECK(aligned_columns({{"a", "b"}, {"größe", "c"}, {"x", "yy"}}) ==
        "a      b\ngröße  c\nx      yy\n");
  CHECK(aligned_columns({{"name", "n"}, {"a", "10"}, {"b", "9"}}, {1}) ==
        "name   n\na     10\nb      9\n");
}

TEST_CASE("rows of different lengths and empty cells leave no blanks at the end") {
  CHECK(aligned_columns({{"a"}, {"bb", "c", ""}, {"", "d"}}) == "a\nbb  c\n    d\n");
  CHECK(aligned_columns({}) == "");
}

TEST_CASE("escape sequences and continuation bytes take no width") {
  CHECK(visible_width("\x1b[31mred\x1b[0m") == 3);
  CHECK(visible_width("é") == 1);
  CHECK(visible_width("\x1b[3") == 0);
}

TEST_CASE("text of strangers cannot steer a terminal") {
  CHECK(printable("a\x1b[2Jb\xff") == "a?[2Jb?");
  CHECK(printable(std::string(50, 'x')) == std::string(40, 'x') + "...");
  CHECK(without_controls("größe\n\x7f") == "größe??");
  CHECK(escaped_controls("größe\t\n") == "größe\t\n");
  CHECK(escaped_controls("a\x1b[2J\x7f\r\xc2\x9b") == "a\\x1b[2J\\x7f\\x0d\\x9b");
}

TEST_CASE("a number is the whole of its text and fits its type") {
  CHECK(parse_number<int>("-12") == -12);
  CHECK(parse_number<int>("2147483647") == 2147483647);
  CHECK(parse_number<uint64_t>("ff", 16) == 255);
  CHECK(parse_number<double>("1.5e3") == 1500);
  for (const char* wrong : {"", " 1", "1 ", "+1", "1x", "-", "2147483648"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_number<int>(wrong));
  }
  CHECK_FALSE(parse_number<uint64_t>("-1"));
}

TEST_CASE("names that contain a word come before those that resemble it") {
  const std::vector<std::string> losses = {"Poisson", "BinaryCrossentropy", "Tversky",
                                           "CategoricalCrossentropy", "Huber"};
  CHECK(nearest_names("crossentropy", losses, 2) ==
        std::vector<std::string>{"BinaryCrossentropy", "CategoricalCrossentropy"});
  CHECK_FALSE(nearest_name("crossentropy", losses));  // which of the two?
  CHECK(nearest_name("Hubert", losses) == "Huber");
  CHECK(nearest_names("f1", std::vector<std::string>{"Sum", "AUC", "F1Score"}, 1)[0] == "F1Score");
  const std::vector<std::string> arguments = {"beta_1", "learning_rate", "name"};
  CHECK(nearest_name("lr", arguments) == "learning_rate");
  CHECK(nearest_name("nme", arguments) == "name");
  CHECK_FALSE(nearest_name("x", arguments));
  // A slip is more likely than a part of a longer name.
  CHECK(nearest_name("unit", std::vector<std::string>{"recurrent_units", "units"}) == "units");
  CHECK(nearest_name("ab", std::vector<std::string>{"ba", "abcdefg"}) == "ba");
}

}  // namespace
}  // namespace meshtrain
