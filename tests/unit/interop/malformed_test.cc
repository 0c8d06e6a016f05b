// Damaged and hostile models.
#include "support/malformed.h"

#include <doctest/doctest.h>

#include "base/json.h"
#include "keras_files.h"
#include "tensor/zip.h"

namespace meshtrain {
namespace {

using test::caught;
using test::import_text;
using test::TempFolder;

std::string functional(const std::string& layers, const std::string& outputs) {
  return R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "name": "a", "inbound_nodes": [],
     "config": {"name": "a", "batch_shape": [null, 3]}}, )" +
         layers + R"(], "input_layers": ["a", 0, 0], "output_layers": )" + outputs + "}}";
}

std::string dense(const std::string& name, const std::string& from) {
  return R"({"class_name": "Dense", "name": ")" + name + R"(", "config": {"name": ")" + name +
         R"(", "units": 3}, "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
           "config": {"keras_history": )" +
         from + R"(}}], "kwargs": {}}]})";
}

TEST_CASE("JSON that is no model is refused") {
  struct Case {
    std::string json, says;
  };
  std::string deep = R"({"class_name": "Sequential", "config": )";
  for (int i = 0; i < 100000; ++i) {
    deep += "[";
  }
  for (const Case& c : std::vector<Case>{
           {"", "not valid JSON"},
           {"{", "not valid JSON"},
           {"[]", "has no `class_name`"},
           {"7", "has no `class_name`"},
           {"null", "has no `class_name`"},
           {R"({"class_name": 3, "config": {}})", "`class_name` of the model is no text"},
           {R"({"class_name": "Dense", "config": {"units": 3}})", "is a Dense"},
           {R"({"class_name": "Sequential", "config": {"layers": 4}})",
            "the model is a Sequential"},
           {R"({"class_name": "Sequential", "config": {"name": 5, "layers": []}})",
            "not the JSON of a Keras model"},
           {R"({"class_name": "Sequential", "config": {"layers": [1]}})", "has no `class_name`"},
           {R"({"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}})",
            "the model was never built"},
           {functional(dense("d", "[\"a\", 0]"), R"(["d", 0, 0])"), "is not [layer, node, tensor]"},
           {functional(dense("d", "[\"a\", 0, 1]"), R"(["d", 0, 0])"),
            "output 1 of `a` is nowhere computed"},
           {functional(dense("d", "[\"b\", 0, 0]"), R"(["d", 0, 0])"), "depends on itself or"},
           {functional(dense("d", "[\"d\", 0, 0]"), R"(["d", 0, 0])"), "depends on itself or"},
           {functional(dense("d", "[\"a\", 0, 0]"), R"(["e", 0, 0])"), "is nowhere computed"},
           {functional(dense("d", "[\"a\", 0, 0]"), "[]"), "`output_layers` names nothing"},
           {functional(dense("a", "[\"a\", 0, 0]"), R"(["a", 0, 0])"), "two layers are named `a`"},
           {deep, "nested deeper"}}) {
    CAPTURE(c.json.substr(0, 200));
    const test::Caught error = caught([&] { import_text(c.json); });
    CAPTURE(error.text);
    CHECK(error.exit_code == 6);
    CHECK(error.says(c.says));
    CHECK(error.says("model.json"));
  }
}

TEST_CASE("models nested to grow without bounds are refused") {
  // Each model calls the one inside twice: 2^30 layers in the end.
  std::string inner = functional(dense("d", "[\"a\", 0, 0]"), R"(["d", 0, 0])");
  for (int i = 0; i < 30; ++i) {
    inner.insert(1, R"("name": "n", "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["a", 0, 0]}}]},
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["n", 0, 0]}}]}], )");
    inner = functional(inner, R"(["n", 2, 0])");
  }
  const test::Caught error = caught([&] { import_text(inner); });
  CHECK(error.exit_code == 6);
  CHECK(error.says("more than 100000 calls"));
}

TEST_CASE("damaged JSON is refused or read and nothing else") {
  for (const std::string name : {"mlp", "nested"}) {
    const std::string json = read_keras_archive(test::keras_file(name + ".keras")).config;
    for (size_t length = 0; length < json.size(); length += 13) {
      CHECK(caught([&] { import_text(json.substr(0, length)); }).exit_code == 6);
    }
    uint64_t counter = 0;
    for (int i = 0; i < 1500; ++i) {
      std::string damaged = json;
      const uint64_t at = test::splitmix_bits(7, counter++) % damaged.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << test::splitmix_bits(8, counter++) % 8));
      CAPTURE(damaged.substr(at > 40 ? at - 40 : 0, 80));
      const test::Caught error = caught([&] { test::Built built(import_text(damaged).yaml); });
      CHECK(error.code != "?");
    }
  }
}

// Members of the JSON replaced by values of other types, one at a time.
void replace_each(nlohmann::json& node, const std::function<void()>& check) {
  for (auto& child : node) {
    const nlohmann::json kept = child;
    for (const nlohmann::json& other : {nlohmann::json(), nlohmann::json(-7), nlohmann::json("x"),
                                        nlohmann::json::array({1}), nlohmann::json::object()}) {
      child = other;
      check();
    }
    child = kept;
    if (child.is_structured()) {
      replace_each(child, check);
    }
  }
}

TEST_CASE("members of other types never end in a crash") {
  for (const std::string name : {"mlp", "shared"}) {
    nlohmann::json model = parse_json(read_keras_archive(test::keras_file(name + ".keras")).config);
    size_t count = 0;
    replace_each(model, [&] {
      const test::Caught error =
          caught([&] { test::Built built(import_text(json_text(model)).yaml); });
      CAPTURE(error.text);
      CHECK(error.code != "?");
      ++count;
    });
    CHECK(count > 500);
  }
}

TEST_CASE("damaged archives are exit code 6") {
  const TempFolder folder;
  std::string whole;
  {
    std::ifstream file(test::keras_file("shared.keras"), std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto read = [](const std::string& path) { read_keras_archive(path); };
  for (size_t length = 0; length < whole.size(); length += 41) {
    CAPTURE(length);
    CHECK(caught([&] { read(folder.write("cut.keras", whole.substr(0, length))); }).exit_code == 6);
  }
  test::check_bit_flips(whole, "flipped.keras", 6, 300, read);
}

TEST_CASE("archives without a part or with paths that lead out are refused") {
  const TempFolder folder;
  const auto bytes = [](const std::string& text) {
    return std::span(reinterpret_cast<const std::byte*>(text.data()), text.size());
  };
  const std::string text = "{}";
  const auto refused = [&](const std::vector<std::string>& names) {
    std::vector<ZipMember> members;
    for (const std::string& name : names) {
      members.push_back({name, {bytes(text)}});
    }
    write_zip(folder.file("m.keras"), members);
    return caught([&] { read_keras_archive(folder.file("m.keras")); });
  };
  CHECK(refused({"config.json"}).says("no `model.weights.h5` inside"));
  CHECK(refused({"model.weights.h5", "metadata.json"}).says("no `config.json` inside"));
  CHECK(refused({"config.json", "model.weights.h5", "../evil"}).says("name that is not accepted"));
  CHECK(refused({"config.json", "model.weights.h5"}).says("not an HDF5 file"));
  CHECK(refused({"config.json", "model.weights.h5"}).exit_code == 6);
  CHECK(caught([&] { read_keras_archive(folder.file("none.keras")); }).code == "E404");
}

}  // namespace
}  // namespace meshtrain
