#include "config/key.h"

#include "config/reader.h"
#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

struct Sample {
  Located<int64_t> size{3, {}};
  Located<int64_t> limit;
  Located<double> rate{0, {}};
  Located<std::string> label;
  Located<std::vector<std::string>> axes;
  Located<Remainder> remainder{Remainder::kDrop, {}};
  Located<Interval> every{{Interval::Unit::kSteps, 200}, {}};
  Located<int64_t> memory;
};

const Section& sample_section() {
  static const Section kSection = section_of<Sample>(
      "sample", {key("size", &Sample::size, "a size"),
                 count("limit", &Sample::limit, "a limit").null_by_default(),
                 key("rate", &Sample::rate, "a rate"), key("label", &Sample::label, "a label"),
                 key("axes", &Sample::axes, "names"), key("remainder", &Sample::remainder, "rest"),
                 interval("every", &Sample::every, "how often"),
                 bytes("memory", &Sample::memory, "most memory")});
  return kSection;
}

Sample read(const std::string& text, Diagnostics& diagnostics) {
  const auto file = std::make_shared<SourceFile>(SourceFile{"sample.yaml", text});
  const std::optional<YamlNode> node = parse_yaml(file, diagnostics);
  const ConfigValue tree =
      Reader(diagnostics).section(node ? &*node : nullptr, sample_section(), {});
  Sample out;
  sample_section().store(&out, tree, {"", diagnostics});
  return out;
}

}  // namespace

TEST_CASE("a key has its default from the member") {
  const std::pair<const char*, const char*> defaults[] = {
      {"size", "3"},    {"limit", "null"},     {"rate", "0.0"},        {"label", "null"},
      {"axes", "null"}, {"remainder", "drop"}, {"every", "200 steps"}, {"memory", "null"}};
  for (const auto& [name, text] : defaults) {
    CHECK(sample_section().find(name)->default_text == text);
  }
  CHECK(sample_section().find("remainder")->allowed == std::vector<std::string>{"keep", "drop"});
  Diagnostics diagnostics;
  const Sample sample = read("{}", diagnostics);
  CHECK(diagnostics.list().empty());
  CHECK(sample.size == 3);
  CHECK(sample.remainder == Remainder::kDrop);
  CHECK(sample.every.value == Interval{Interval::Unit::kSteps, 200});
  CHECK_FALSE(sample.every.loc);
}

TEST_CASE("a value is stored in the member, with its place") {
  Diagnostics diagnostics;
  const Sample sample = read(
      "size: 5\nlimit: 7\nrate: 1\nlabel: a\naxes: [b, c]\nremainder: keep\nevery: 2 epochs\n"
      "memory: 1 KiB\n",
      diagnostics);
  CHECK(diagnostics.render() == "");
  CHECK(sample.size == 5);
  CHECK(sample.limit == 7);
  CHECK(sample.rate == 1.0);
  CHECK(sample.label.value == "a");
  CHECK(sample.axes.value == std::vector<std::string>{"b", "c"});
  CHECK(sample.remainder == Remainder::kKeep);
  CHECK(sample.every.value == Interval{Interval::Unit::kEpochs, 2});
  CHECK(sample.memory == 1024);
  CHECK(sample.limit.loc.line == 2);
}

TEST_CASE("a text that cannot be read is refused at its place") {
  Diagnostics diagnostics;
  read("every: now\nmemory: much\n", diagnostics);
  REQUIRE(diagnostics.num_errors() == 2);
  CHECK(diagnostics.list()[0].message == "`every` cannot be `now`");
  CHECK(diagnostics.list()[1].loc.line == 2);
}

}  // namespace meshtrain
