// What was learned from training data, as files keep it.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/checksum.h"
#include "support/temp_folder.h"
#include "train/learned_file.h"

namespace meshtrain {
namespace {

using test::caught;
using test::Caught;

LearnedData example() {
  LearnedData learned;
  learned.source = "csv";
  learned.csv.has_header = true;
  learned.csv.columns = {{{"x", "a", "-2"}, {"a", "b"}}, {{"y", "kind"}, {"kind"}}};
  learned.csv.features = {"a", "b"};
  learned.csv.categories = {{"kind", {"cat", "dog \"tall\"", "caf\xe9", ""}}};
  learned.csv.numbers = {"a", "b",
                         "Stra\xc3\x9f"
                         "e"};
  learned.csv.means = {{"a", 0.1}, {"b", -3e300}};
  learned.csv.tables = {{"review", {{"cat", "caf\xe9"}, {0.1, 2.5}, {}, 40}},
                        {"age", {{}, {}, {-1.5, 0.1, 1e30}, 0}}};
  learned.characters = {U'\n', U'a', U'\u00e9', U'\u20ac', U'\U0001F600', U'\0'};
  learned.class_names = {"cat", "\xff"};
  return learned;
}

// With the checksum that it should have.
std::string sealed(std::string body) {
  body = body.substr(0, body.rfind(",\n\"self_xxh3_128\""));
  const std::string sum = checksum128(std::as_bytes(std::span(body)));
  return body + ",\n\"self_xxh3_128\": \"" + sum + "\"\n}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return text.replace(at, from.size(), to);
}

TEST_CASE("learned data: what is written is read again, in any bytes") {
  const LearnedData learned = example();
  const LearnedPtr read = parse_learned(learned_text(learned), "data.json");
  CHECK(read->source == learned.source);
  CHECK(read->csv.has_header);
  CHECK(read->csv.columns == learned.csv.columns);
  CHECK(read->csv.features == learned.csv.features);
  CHECK(read->csv.categories == learned.csv.categories);
  CHECK(read->csv.numbers == learned.csv.numbers);
  CHECK(read->csv.means == learned.csv.means);
  CHECK(read->csv.tables == learned.csv.tables);
  CHECK(read->characters == learned.characters);
  CHECK(read->class_names == learned.class_names);
  CHECK(learned_text(*read) == learned_text(learned));
  const LearnedPtr nothing = parse_learned(learned_text({}), "data.json");
  CHECK(nothing->csv.categories.empty());
}

TEST_CASE("learned data: more texts than JSON may have values at once") {
  LearnedData learned = example();
  for (int i = 0; i < 100000; ++i) {
    const std::string text = std::to_string(i);
    learned.csv.categories["many"].push_back(text);
    learned.csv.categories["more"].push_back(text);
    learned.csv.features.push_back(text);
    learned.csv.numbers.insert(text);
    learned.csv.means[text] = i;
    learned.class_names.push_back(text);
  }
  const LearnedPtr read = parse_learned(learned_text(learned), "data.json");
  CHECK(read->csv.categories == learned.csv.categories);
  CHECK(read->csv.means == learned.csv.means);
  CHECK(read->class_names == learned.class_names);
}

TEST_CASE("learned data: damaged files are refused with what is wrong") {
  const std::string text = learned_text(example());
  const auto refused = [](const std::string& bad, const char* code, const char* says) {
    const Caught error = caught([&] { parse_learned(bad, "run/data.json"); });
    CHECK(error.code == code);
    CHECK_MESSAGE(error.says(says), error.text);
    CHECK(error.says("`run/data.json`"));
  };
  refused("", "E402", "does not end as a data.json does");
  refused(text.substr(0, text.size() - 1), "E402", "does not end as a data.json does");
  refused(replaced(text, "cat", "cow"), "E403", "its checksum does not match");
  const auto inside = [&](const std::string& from, const std::string& to, const char* code,
                          const char* says) {
    refused(sealed(replaced(text, from, to)), code, says);
  };
  inside("\"learned_data\": 1", "\"learned_data\": 2", "E408", "format 2");
  inside("\"learned_data\": 1", "\"other\": 1", "E402", "`learned_data` is missing");
  inside("\"source\": \"csv\"", "\"source\": 1", "E402", "`source` must be a text");
  inside("\"header\": true", "\"header\": 1", "E402", "`header` must be true or false");
  inside("\"features\": [", "\"features\": 1, \"f\": [", "E402", "`features` must be a list");
  inside("\"a\",\"b\"],\"written\"", "\"a\"],\"written\"", "E402", "a name for each column");
  inside("{\"hex\":\"636166e9\"}", "{\"hex\":\"636166e\"}", "E402", "two hexadecimal digits");
  inside("{\"hex\":\"636166e9\"}", "\"cat\"", "E402", "`cat` twice");
  inside("{\"hex\":\"636166e9\"}", "7", "E402", "where an object is expected");
  inside("{\"column\":\"a\",\"mean\":0.1}", "{\"column\":\"a\",\"mean\":[]}", "E402",
         "`mean` must be a number");
  inside("\"characters\": \"\\n", "\"characters\": \"a\\n", "E402", "there twice");
}

TEST_CASE("learned data: what lies beside weights") {
  const test::TempFolder folder;
  const std::string text = learned_text(example());
  const auto at = [&](const std::string& name) {
    const std::string path = folder.file(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    return path;
  };
  // A run, and what lies anywhere in it.
  std::filesystem::create_directories(folder.file("run/checkpoints"));
  folder.write("run/metrics.jsonl", "");
  CHECK(learned_beside(folder.file("run")) == nullptr);
  CHECK(learned_beside(folder.file("run/weights.safetensors")) == nullptr);
  folder.write("run/data.json", text);
  for (const char* name : {"run", "run/weights.safetensors", "run/best/deep/1.keras"}) {
    CAPTURE(name);
    const LearnedPtr learned = learned_beside(folder.file(name));
    REQUIRE(learned != nullptr);
    CHECK(learned->source == "csv");
  }
  // A file of that name elsewhere counts beside a run's weights alone, when it is one.
  at("moved/x");
  folder.write("moved/data.json", text);
  CHECK(learned_beside(folder.file("moved/weights.safetensors")) != nullptr);
  CHECK(learned_beside(folder.file("moved/m.npz")) == nullptr);
  folder.write("moved/data.json", "{\"mine\": 1}");
  CHECK(learned_beside(folder.file("moved/weights.safetensors")) == nullptr);
  folder.write("run/data.json", "{\"mine\": 1}");
  CHECK(caught([&] { learned_beside(folder.file("run")); }).code == "E402");
  // Beside exported weights.
  CHECK(write_learned_beside(folder.file("m.npz"), std::make_shared<LearnedData>(example())) ==
        folder.file("m.npz.data.json"));
  CHECK(learned_beside(folder.file("m.npz"))->class_names.size() == 2);
  CHECK(write_learned_beside(folder.file("m.npz"), nullptr) == "");
  CHECK(learned_beside(folder.file("m.npz")) == nullptr);
}

}  // namespace
}  // namespace meshtrain
