#include "config/expression.h"

#include <algorithm>
#include <cstdlib>

#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

// The text that `=expression` becomes, with some vars; "E132" for an error.
std::string result(const std::string& expression) {
  Diagnostics diagnostics;
  YamlNode root{.kind = YamlNode::Kind::kMap};
  YamlNode& vars = root.at_or_add("vars", {});
  const auto set = [&](const char* name, YamlNode value) {
    value.key = name;
    vars.at_or_add(name, {}) = std::move(value);
  };
  YamlNode list{.kind = YamlNode::Kind::kList};
  list.children = {YamlNode::scalar("2", {}), YamlNode::scalar("4", {})};
  set("d_model", YamlNode::scalar("256", {}));
  set("heads", YamlNode::scalar("8", {}));
  set("half", YamlNode::scalar("=d_model // 2", {}));
  set("rate", YamlNode::scalar("0.5", {}));
  set("mesh", std::move(list));
  set("grid", YamlNode::scalar("2x4", {}));
  set("x", YamlNode::scalar("=" + expression, {}));
  Expressions(root, diagnostics).evaluate(root);
  if (diagnostics.has_errors()) {
    return diagnostics.list()[0].code;
  }
  const YamlNode& x = *root.find("vars")->find("x");
  if (!x.is_list()) {
    return x.text;
  }
  std::string out;
  for (const YamlNode& child : x.children) {
    out += child.is_list() ? child.children[0].text + "x" + child.children[1].text + " "
                           : child.text + " ";
  }
  return out;
}

}  // namespace

TEST_CASE("Expressions: arithmetic as in Python") {
  const std::pair<const char*, const char*> kCases[] = {
      {"4 * d_model", "1024"},
      {"d_model // heads", "32"},
      {"1 if heads > 4 else 2", "1"},
      {"1 if heads < 4 else 2 if heads < 8 else 3", "3"},
      {"(1 if heads == 8 else 0) + [5, 6][1 if rate < 1 else 0]", "7"},
      {"1 / 0 if heads < 0 else max(2, 3 if true else 4)", "3"},
      {"exp(0) + abs(-2) + floor(3.7) + sqrt(4) + log(1) + cos(0)", "9"},
      {"1/255", "0.00392156862745098"},
      {"2 + 3 * 4", "14"},
      {"(2 + 3) * 4", "20"},
      {"2 ** 3 ** 2", "512"},
      {"-2 ** 2", "-4"},
      {"2 ** -1", "0.5"},
      {"-7 // 2", "-4"},
      {"-7 % 3", "2"},
      {"7 % -3", "-2"},
      {"7.5 // 2", "3"},
      {"rate * 4", "2"},
      {"1 - 1 - 1", "-1"},
      {"8 / 2 / 2", "2"},
      {"d_model == 256", "true"},
      {"heads % mesh[1] == 0", "true"},
      {"3 < 2", "false"},
      {"min(3, 1, 2)", "1"},
      {"max(mesh)", "4"},
      {"round(2.5)", "2"},
      {"round(2.567, 2)", "2.57"},
      {"mesh[-1]", "4"},
      {"grid[0]", "2"},
      {"half", "128"},
      {"vars.heads + 1", "9"},
      {"[heads, 2 * heads]", "8 16 "},
      {"1e3", "1000"},
      {"--3", "3"},
      {"factorizations(8, 2)", "8x1 4x2 2x4 1x8 "},
      {"fit.epochs", "1"},
      {"fit.batch_size * 2", "64"}};
  for (const auto& [expression, value] : kCases) {
    CAPTURE(expression);
    CHECK(result(expression) == value);
  }
}

TEST_CASE("Expressions: what cannot be evaluated is E132") {
  for (const char* expression : {"",
                                 "1 +",
                                 "(1",
                                 "1)",
                                 "1 2",
                                 "d_modle",
                                 "x",
                                 "x + 1",
                                 "1 // 0",
                                 "1 / 0",
                                 "2 ** 63",
                                 "9223372036854775807 + 1",
                                 "10.0 ** 400",
                                 "mesh[2]",
                                 "heads[0]",
                                 "mesh + 1",
                                 "foo(1)",
                                 "min()",
                                 "factorizations(8)",
                                 "factorizations(0, 2)",
                                 "\"a",
                                 "$",
                                 "fit.steps_per_epoch",
                                 "vars",
                                 "1 if 2 else 3",
                                 "1 if true",
                                 "sqrt(-1)",
                                 "exp(1000)",
                                 "__import__(1)"}) {
    CAPTURE(expression);
    CHECK(result(expression) == "E132");
  }
  CHECK(result(std::string(5000, '(')) == "E132");
  CHECK(result(std::string(5000, '-') + "1") == "E132");
}

TEST_CASE("Expressions: overrides come first so that what depends on them follows") {
  const std::string text =
      std::string(kSmall) + "vars: {n: 3}\nfit: {epochs: =2 * n, batch_size: =fit.epochs}\n";
  CHECK(load_text(text).fit.epochs.value == 6);
  const Config config = load_text(text, {"vars.n=5"});
  CHECK(config.fit.epochs.value == 10);
  CHECK(config.fit.batch_size.value == 10);
}

TEST_CASE("Expressions: layers are reached by name") {
  const Config config = load_text(
      "model:\n  layers:\n    - Input: {shape: [4]}\n    - Dense: {name: up, units: 6}\n"
      "    - Dense: 7\n    - Dense: =model.layers.up.units + model.layers.dense.units\n"
      "compile: {loss: mse}\ndata: {train: digits}\n");
  CHECK(config.model.layers[3].object.integer("units") == 13);
}

TEST_CASE("References: a variable that holds a secret by its name is not read") {
  for (const char* name : {"API_KEY", "HF_TOKEN", "Client_Secret", "DBPASSWORD"}) {
    setenv(name, "hidden", 1);
    for (const char* rest : {"", ",x"}) {
      const test::Caught error = test::caught(
          [&] { load_text(fmt::format("{}name: a${{env:{}{}}}\n", kSmall, name, rest)); });
      CHECK(error.code == "E131");
      CHECK(error.says(fmt::format("`{}` is not read", name)));
      CHECK(error.says("give the variable another name"));
      CHECK_FALSE(error.says("hidden"));
    }
    unsetenv(name);
  }
}

TEST_CASE("References: the environment and OmegaConf's spelling") {
  setenv("MESHTRAIN_TEST_WIDTH", "12", 1);
  setenv("MESHTRAIN_TEST_SHELL", "$(rm -rf x) =1", 1);
  unsetenv("MESHTRAIN_TEST_NONE");
  const std::string text =
      std::string(kSmall) +
      "vars: {n: 3}\n"
      "fit: {epochs: \"${vars.n}\", batch_size: \"${env:MESHTRAIN_TEST_WIDTH}\"}\n"
      "run: {dir: \"${env:MESHTRAIN_TEST_NONE,runs}/${n}\"}\n"
      "name: ${env:MESHTRAIN_TEST_SHELL}\n";
  const Config config = load_text(text);
  CHECK(config.fit.epochs.value == 3);
  CHECK(config.fit.batch_size.value == 12);
  CHECK(config.run.dir.value == "runs/3");
  CHECK(config.name.value == "$(rm -rf x) =1");
  setenv("MESHTRAIN_TEST_SHELL", "=2 ${n}", 1);
  const Config once = load_text(std::string(kSmall) +
                                "name: ${env:MESHTRAIN_TEST_SHELL}\nrun: {dir: \"${name}\"}\n");
  CHECK(once.name.value == "=2 ${n}");  // a name, and no expression
  CHECK(once.run.dir.value.ends_with("=2 ${n}"));
  CHECK(codes_of(std::string(kSmall) + "name: ${env:MESHTRAIN_TEST_NONE}\n") == "E131");
  const std::vector<std::string> read = environment_read();
  for (const char* name : {"MESHTRAIN_TEST_NONE", "MESHTRAIN_TEST_SHELL", "MESHTRAIN_TEST_WIDTH"}) {
    CHECK(std::count(read.begin(), read.end(), name) == 1);
  }
  CHECK(codes_of(std::string(kSmall) + "name: ${env:}\n") == "E132");
  CHECK(codes_of(std::string(kSmall) + "name: a${b\n") == "E132");
}

TEST_CASE("References: doubling lists and texts stay within bounds") {
  std::string lists = std::string(kSmall) + "vars:\n  a0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  std::string texts = std::string(kSmall) + "vars:\n  a0: xxxxxxxxxxxxxxxx\n";
  for (int i = 1; i < 40; ++i) {
    const std::string name = "a" + std::to_string(i - 1);
    lists += "  a" + std::to_string(i) + ": \"=[" + name + ", " + name + ", " + name + "]\"\n";
    texts += "  a" + std::to_string(i) + ": ${" + name + "}${" + name + "}${" + name + "}\n";
  }
  CHECK(codes_of(lists) == "E132");
  CHECK(codes_of(texts) == "E132");
}

}  // namespace meshtrain
