#include <algorithm>
#include <functional>
#include <regex>
#include <sstream>

#include "base/json.h"
#include "config/catalogue.h"
#include "config/run_files.h"
#include "config/schema.h"
#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

// The line of `text` that begins with `start` after its indentation.
std::string line_with(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t begin = line.find_first_not_of(" -");
    if (begin != std::string::npos && line.compare(begin, start.size(), start) == 0) {
      return line;
    }
  }
  return "";
}

bool ends_in(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

TEST_CASE("show_config: every value has an origin") {
  const test::TempFolder files;
  setenv("MESHTRAIN_TEST_OUT", "out", 1);
  LoadOptions options;
  options.files = {files.write("t.yaml", std::string(kSmall) +
                                             "vars: {n: 2}\nfit: {epochs: =n + 1}\n"
                                             "run: {dir: \"${env:MESHTRAIN_TEST_OUT,runs}\"}\n")};
  options.flags = {{"distribution.device_mesh.shape", "2x4"}};
  options.flag_names = {"--mesh"};
  options.overrides = {"seed=5"};
  const std::string shown = show_config(options, true);
  const std::string path = options.files[0];
  CHECK(ends_in(line_with(shown, "units: 2 "), "# " + path + ":4"));
  CHECK(ends_in(line_with(shown, "epochs: 3 "), "# " + path + ":8 (=n + 1)"));
  CHECK(
      ends_in(line_with(shown, "dir: out "), "# environment MESHTRAIN_TEST_OUT at " + path + ":9"));
  CHECK(ends_in(line_with(shown, "shape: [2, 4] "), "# --mesh"));
  CHECK(ends_in(line_with(shown, "seed: 5 "), "# command line: seed=5"));
  CHECK(ends_in(line_with(shown, "batch_size: 32 "), "# default"));
  CHECK(ends_in(line_with(shown, "use_bias: true "), "# default"));
  CHECK(show_config(options, false).find('#') == std::string::npos);
}

TEST_CASE("show_config: its text is a config that means the same") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {files.write(
      "t.yaml",
      "name: \"1\"\nmodel:\n  layers:\n    - Input: {name: x, shape: [null, 4]}\n    - Dense: "
      "{units: 3, activation: {relu: {max_value: 6}},\n"
      "        kernel_initializer: {VarianceScaling: {scale: 2}}}\n    - Activation: {softmax: "
      "{axis: 1}}\n"
      "    - Dense: {name: a, inputs: x, units: 3}\n    - Add: {inputs: [a, activation]}\n"
      "compile: {loss: {Huber: {delta: 2}}, metrics: [acc, {mse: {name: err}}], optimizer: {Adam: "
      "{learning_rate: {ExponentialDecay: [1]}}}}\n"
      "data: {train: {source: npz, path: \"a b.npz\", slice: \"[1:]\"}, transform: [{Rescaling: "
      "{scale: [1, 2]}}]}\n"
      "distribution:\n  layout_map: {'.*/ker\\w+': [null, [batch]], \"a\\\"b\": []}\nfit: "
      "{class_weight: {0: 2}}\nrun: {verbose: 1, dir: \"yes\"}\n")};
  options.overrides = {
      "compile.optimizer.learning_rate={ExponentialDecay: {initial_learning_rate: 1, decay_steps: "
      "3, decay_rate: 0.5}}"};
  const std::string once = show_config(options, false);
  LoadOptions again;
  again.files = {files.write("again.yaml", once)};
  CHECK(show_config(again, false) == once);
  const Config config = load_config(again);
  CHECK(config.name.value == "1");
  CHECK(config.run.dir.value == "yes");
  CHECK(config.distribution.layout_map[0].key == ".*/ker\\w+");
  CHECK(config.distribution.layout_map[1].key == "a\"b");
  CHECK(config.compile.metrics[0].object.spelled == "acc");
  CHECK(config.compile.metrics[1].object.string("name") == "err");
  for (const std::string rate : {"1.0", "0.0", "1e22", "0.5"}) {
    options.overrides = {"compile.optimizer.learning_rate=" + rate};
    again.files = {files.write("again.yaml", show_config(options, false))};
    CHECK(load_config(again).compile.optimizer.number("learning_rate") == std::stod(rate));
  }
}

// A run resumes only with the config that it had: reading it again must not change its text.
TEST_CASE("show_config: arguments that say their defaults are no change") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {files.write("t.yaml", R"(
model:
  layers:
    - Input: {shape: [2]}
    - Dense:
        units: 3
        kernel_regularizer: {L2: {l2: 0.01}}
        bias_regularizer: {L1: 0.01}
        kernel_initializer: {RandomNormal: {mean: 0.0, stddev: 0.05, seed: null}}
        kernel_constraint: {MaxNorm: {max_value: 2}}
        activation: {leaky_relu: {negative_slope: 0.2}}
    - Activation: {activation: {softmax: {axis: -1}}}
compile:
  loss: mse
  metrics: [{AUC: {num_thresholds: 200}}]
  optimizer:
    MultiOptimizer:
      default_optimizer: {Adam: {learning_rate: 0.001, amsgrad: false}}
      optimizer_map: {"dense/.*": {SGD: {learning_rate: 0.01, momentum: 0.0}}}
data: {train: digits}
)")};
  const std::string shown = show_config(options, false);
  LoadOptions again;
  again.source = std::make_shared<SourceFile>(SourceFile{run_files::kResolved, shown});
  CHECK(show_config(again, false) == shown);
}

TEST_CASE("show_config: the name Accuracy alone stays the word, with braces the class") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {files.write("t.yaml", std::string(kSmall) +
                                             "override:\n  compile.metrics: [Accuracy, "
                                             "Accuracy: {}, {class_name: Accuracy}]\n")};
  const std::string once = show_config(options, false);
  LoadOptions again;
  again.files = {files.write("again.yaml", once)};
  CHECK(show_config(again, false) == once);
  const Config config = load_config(again);
  REQUIRE(config.compile.metrics.size() == 3);
  CHECK(config.compile.metrics[0].object.class_name == "accuracy");
  CHECK(config.compile.metrics[0].object.spelled == "Accuracy");
  CHECK(config.compile.metrics[1].object.class_name == "Accuracy");
  CHECK(config.compile.metrics[2].object.class_name == "Accuracy");
}

TEST_CASE("show_config: lists of losses and metrics by output mean the same again") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {
      files.write("t.yaml",
                  "name: n\nmodel:\n  layers:\n    - Input: {name: x, shape: [4]}\n"
                  "    - Dense: {name: p, units: 2}\n    - Dense: {name: q, inputs: x, units: 1}\n"
                  "  outputs: [p, q]\ndata: {train: digits}\ncompile: {loss: [mse, null], "
                  "metrics: [[mae, {mse: {name: err}}], null], weighted_metrics: [mae, mse]}\n")};
  const std::string once = show_config(options, false);
  LoadOptions again;
  again.files = {files.write("again.yaml", once)};
  CHECK(show_config(again, false) == once);
  const Config config = load_config(again);
  CHECK(config.compile.loss.size() == 1);
  CHECK(config.compile.metrics.size() == 2);
  CHECK(config.compile.metrics[1].output == "p");
  CHECK(config.compile.weighted_metrics[1].output == "q");
}

TEST_CASE("json_schema: names every section and class") {
  const nlohmann::json schema = parse_json(json_schema());
  for (const std::string& name : root_section().names()) {
    CAPTURE(name);
    CHECK(schema["properties"].contains(name));
  }
  // Aliases with arguments, which `config show` writes as they were spelled.
  const std::pair<const char*, const char*> spellings[] = {
      {"metric", "mse"}, {"loss", "huber"}, {"optimizer", "adam"}, {"optimizer", "Adam"}};
  for (const auto& [category, name] : spellings) {
    CAPTURE(name);
    const auto& options = schema["$defs"][category]["anyOf"];
    const auto of_name = std::find_if(options.begin(), options.end(), [&](const auto& option) {
      return option.contains("maxProperties") && option["properties"].contains(name);
    });
    REQUIRE(of_name != options.end());
    const std::string place = (*of_name)["properties"][name]["$ref"];
    CHECK(schema["$defs"][place.substr(8)]["anyOf"].is_array());  // "#/$defs/..."
  }
  CHECK(json_text(schema["$defs"]["callback"]).find("\"EarlyStopping\"") != std::string::npos);
  CHECK(schema["additionalProperties"] == false);
  // A bare word is a class, by any of its names, or an expression: an editor marks `digit`.
  for (const char* category : {"source", "metric", "loss", "optimizer", "activation"}) {
    CAPTURE(category);
    const auto& words = schema["$defs"][category]["anyOf"][0]["anyOf"];
    REQUIRE(words.size() == 2);
    CHECK(words[0]["enum"].size() > 5);
    CHECK(words[1].contains("pattern"));
  }
  // Changes are paths that begin with a key of the top level.
  const auto& profiles = schema["properties"]["profiles"]["additionalProperties"];
  const std::regex path(
      schema["properties"]["override"]["propertyNames"]["pattern"].get<std::string>());
  CHECK(profiles["propertyNames"] == schema["properties"]["override"]["propertyNames"]);
  for (const char* known : {"fit", "fit.epochs", "callbacks[0].patience", "vars.width"}) {
    CHECK(std::regex_search(known, path));
  }
  for (const char* unknown : {"fitt.epochs", "epochs", "fits", ""}) {
    CHECK_FALSE(std::regex_search(unknown, path));
  }
  const std::string layers = json_text(schema["$defs"]["layer"]);
  for (const std::string& name : class_names(Category::kLayer)) {
    CHECK(layers.find("\"" + name + "\"") != std::string::npos);
  }
}

TEST_CASE("Schema: every field has a help and a default that can be read") {
  const std::function<void(const Section&)> check = [&](const Section& section) {
    for (const Spec& field : section.fields) {
      CAPTURE(section.path);
      CAPTURE(field.name);
      CHECK_FALSE(field.help.empty());
      if (field.kind == ValueKind::kSection) {
        check(*field.section);
      }
    }
  };
  check(root_section());
}

TEST_CASE("minimal_config: what differs from the defaults, and means the same") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {
      files.write("t.yaml",
                  "seed: 1337\nname: t\n"
                  "model:\n  layers:\n    - Input: {shape: [4]}\n"
                  "    - Dense: {name: d1, units: 3, use_bias: true}\n    - Flatten\n"
                  "    - Dense: {units: 2, kernel_regularizer: {L2: 0.5}}\n"
                  "compile: {optimizer: {Adam: {beta_1: 0.9}}, loss: mse}\n"
                  "data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}\n"
                  "fit: {epochs: 1, batch_size: 2}\n"
                  "run: {log_steps: false}\n")};
  const std::string minimal = minimal_config(options);
  CHECK(minimal.find("seed") == std::string::npos);
  CHECK(minimal.find("epochs") == std::string::npos);
  CHECK(minimal.find("run:") == std::string::npos);
  CHECK(minimal.find("use_bias") == std::string::npos);
  CHECK(minimal.find("\n  optimizer: Adam\n") != std::string::npos);
  CHECK(minimal.find("    - Flatten\n") != std::string::npos);
  CHECK(minimal.find("  batch_size: 2\n") != std::string::npos);
  const std::string all = show_config(options, false);
  options.files = {files.write("again.yaml", minimal)};
  CHECK(show_config(options, false) == all);
  CHECK(minimal_config(options) == minimal);
}

}  // namespace meshtrain
