#include "config/yaml.h"

#include <ctime>

#include "config/source.h"
#include "doctest/doctest.h"

namespace meshtrain {
namespace {

struct Parsed {
  std::optional<YamlNode> node;
  Diagnostics diagnostics;
};

Parsed parse(std::string text) {
  Parsed out;
  out.node = parse_yaml(checked_source("t.yaml", std::move(text)), out.diagnostics);
  return out;
}

std::string first_code(const std::string& text) {
  try {
    const Parsed parsed = parse(text);
    return parsed.diagnostics.list().empty() ? "" : parsed.diagnostics.list()[0].code;
  } catch (const ConfigError& e) {
    return e.diagnostics().list()[0].code;
  }
}

}  // namespace

TEST_CASE("parse_yaml: keys and values know their places and lengths") {
  const Parsed parsed = parse("a: {scale: =1/255, names: [x, \"y z\"]}\nempty:\nlast: ~\n");
  REQUIRE(parsed.node);
  const YamlNode& scale = *parsed.node->find("a")->find("scale");
  CHECK(scale.text == "=1/255");
  CHECK(scale.loc.to_string() == "t.yaml:1:12");
  CHECK(scale.loc.length == 6);
  CHECK(scale.key_loc.column == 5);
  const YamlNode& names = *parsed.node->find("a")->find("names");
  CHECK(names.loc.column == 27);
  CHECK(names.loc.length == 10);
  CHECK(names.children[1].quoted);
  CHECK(names.children[1].loc.length == 5);
  CHECK_FALSE(names.children[0].quoted);
  const YamlNode& empty = *parsed.node->find("empty");
  CHECK(empty.is_null());
  CHECK_FALSE(empty.explicit_null);
  CHECK(empty.loc.line == 2);
  CHECK(parsed.node->find("last")->explicit_null);
  CHECK(parsed.node->find("last")->loc.to_string() == "t.yaml:3:7");
}

TEST_CASE("parse_yaml: scalars stay text whatever YAML would make of them") {
  const Parsed parsed = parse("[1e-4, NO, 010, 1_000, None, 'null']");
  REQUIRE(parsed.node);
  std::string all;
  for (const YamlNode& child : parsed.node->children) {
    CHECK(child.is_scalar());
    all += child.text + " ";
  }
  CHECK(all == "1e-4 NO 010 1_000 None null ");
}

TEST_CASE("parse_yaml: columns count bytes and survive umlauts and carriage returns") {
  const Parsed parsed = parse("\xEF\xBB\xBF\xC3\xA4: \xC3\xBC\r\nb: 2\r\n");
  REQUIRE(parsed.node);
  CHECK(parsed.node->children[0].loc.column == 5);
  CHECK(parsed.node->find("b")->loc.to_string() == "t.yaml:2:4");
}

TEST_CASE("parse_yaml: aliases copy and remember where they stand") {
  const Parsed parsed = parse("a: &x {b: 1}\nc: *x\n");
  REQUIRE(parsed.node);
  const YamlNode& c = *parsed.node->find("c");
  CHECK(c.find("b")->text == "1");
  CHECK(c.find("b")->loc.line == 1);
  CHECK(c.alias_loc.to_string() == "t.yaml:2:4");
}

TEST_CASE("parse_yaml: merge keys give way to own keys and earlier maps win") {
  const Parsed parsed = parse("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\n");
  REQUIRE(parsed.node);
  CHECK_FALSE(parsed.diagnostics.has_errors());
  const YamlNode& c = *parsed.node->find("c");
  CHECK(c.find("x")->text == "3");
  CHECK(c.find("y")->text == "1");
  CHECK(c.find("z")->text == "2");
  CHECK(c.find("<<") == nullptr);
}

TEST_CASE("parse_yaml: every problem has its code") {
  const std::pair<const char*, const char*> kCases[] = {
      {"a: \xFF\n", "E103"},    {"a:\n\tb: 1\n", "E104"},      {"a: \"x\n", "E104"},
      {"a: 'x\n", "E104"},      {"a: [1\n", "E104"},           {"a: {b: [1}\n", "E104"},
      {"- a\nb: 1\n", "E104"},  {"a: b: c\n", "E104"},         {"? [1]\n: 2\n", "E104"},
      {"\"\\d\": 1\n", "E104"}, {"a: 1\n---\nb: 2\n", "E105"}, {"a: 1\n...\nb: 2\n", "E105"},
      {"a: &a [*a]\n", "E107"}, {"a: *b\n", "E108"},           {"*.dense: 1\n", "E108"},
      {"a: 1\na: 2\n", "E109"}, {"a: !x 1\n", "E110"},         {"a: !!map {}\n", "E110"},
      {"<<: [1]\n", "E112"},
  };
  for (const auto& [text, code] : kCases) {
    CAPTURE(text);
    CHECK(first_code(text) == code);
  }
}

TEST_CASE("parse_yaml: only comments make a null and no problem") {
  const Parsed parsed = parse("# nothing\n\n");
  REQUIRE(parsed.node);
  CHECK(parsed.node->is_null());
  CHECK(parsed.diagnostics.list().empty());
}

TEST_CASE("parse_yaml: hostile texts are refused at once") {
  const std::clock_t begin = std::clock();  // of this process: other load does not count
  CHECK(first_code(std::string(100000, '[')) == "E106");
  std::string dashes;
  std::string list = "[";
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 0; i < 100000; ++i) {
    dashes += "- ";
    list += "1,";
  }
  for (int i = 1; i < 12; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) {
      bomb += (k == 0 ? "*a" : ", *a") + std::to_string(i - 1);
    }
    bomb += "]\n";
  }
  CHECK(first_code(dashes) == "E106");
  CHECK(first_code(list + "1]") == "E102");
  CHECK(first_code(bomb) == "E107");
  CHECK(first_code(std::string(kMaxConfigBytes + 1, ' ')) == "E102");
  std::string chain = "k0: &k0 [1]\n";
  for (int i = 1; i < 70; ++i) {
    chain += "k" + std::to_string(i) + ": &k" + std::to_string(i) + " [*k" + std::to_string(i - 1) +
             "]\n";
  }
  CHECK(first_code(chain) == "E107");
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(seconds < 5);
}

TEST_CASE("parse_yaml: any cut of a config ends in a tree or in a problem") {
  const std::string text =
      "a: &x {b: \"q\\\"\", c: [1, 'two', ~]}\nd: *x\ne:\n  - f: |\n      text\n  - {<<: *x, g: "
      "2}\n";
  for (size_t length = 0; length <= text.size(); ++length) {
    const Parsed parsed = parse(text.substr(0, length));
    CHECK((parsed.node.has_value() || parsed.diagnostics.has_errors()));
  }
}

TEST_CASE("parse_yaml_at: places are those in the larger text") {
  const auto file = checked_source("command line", "fit.epochs=[1, x]");
  Diagnostics diagnostics;
  const auto node = parse_yaml_at("[1, x]", {file, 1, 12, 6}, diagnostics);
  REQUIRE(node);
  CHECK(node->children[1].loc.column == 16);
}

}  // namespace meshtrain
