#include "config/merge.h"

#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

Config load_files(std::vector<std::string> paths, const std::string& profile = "") {
  LoadOptions options;
  options.files = std::move(paths);
  options.profile = profile;
  return load_config(options);
}

std::string first_code(std::vector<std::string> paths) {
  try {
    load_files(std::move(paths));
    return "";
  } catch (const ConfigError& e) {
    return e.diagnostics().list()[0].code;
  }
}

}  // namespace

TEST_CASE("Files: maps merge and lists are replaced and null removes") {
  const test::TempFolder files;
  const std::string base =
      files.write("base.yaml", std::string(kSmall) +
                                   "fit: {epochs: 2, batch_size: 4}\nname: base\n"
                                   "distribution:\n  layout_map:\n    d1/kernel: [null, model]\n"
                                   "    d1/bias: [model]\n");
  const std::string over = files.write(
      "over.yaml",
      "fit: {epochs: 7}\ncompile: {metrics: [mae]}\n"
      "distribution:\n  layout_map:\n    d1/bias: null\n    d1/output: [batch]\nname: null\n");
  const Config config = load_files({base, over});
  CHECK(config.fit.epochs.value == 7);
  CHECK(config.fit.batch_size.value == 4);
  CHECK(config.name.value == "base");
  CHECK(config.compile.loss.size() == 1);
  REQUIRE(config.distribution.layout_map.size() == 2);
  CHECK(config.distribution.layout_map[0].key == "d1/kernel");
  CHECK(config.distribution.layout_map[1].key == "d1/output");
  CHECK(config.fit.epochs.loc.file->name == over);
  CHECK(config.fit.batch_size.loc.file->name == base);
}

TEST_CASE("Files: an empty heading changes nothing") {
  const test::TempFolder files;
  const std::string base = files.write("base.yaml", std::string(kSmall) + "fit: {epochs: 2}\n");
  CHECK(load_files({base, files.write("over.yaml", "fit:\nrun:\n")}).fit.epochs.value == 2);
}

TEST_CASE("Files: an object keeps its arguments when the class stays") {
  const test::TempFolder files;
  const std::string base = files.write("base.yaml",
                                       "model: {layers: [{Input: [4]}, {Dense: 2}]}\n"
                                       "compile: {loss: mse, optimizer: {Adam: {beta_1: 0.5}}}\n"
                                       "data: {train: {source: npz, path: a.npz, x: images}}\n");
  const Config same = load_files({base, files.write("same.yaml",
                                                    "compile: {optimizer: {adam: {beta_2: 0.9}}}\n"
                                                    "data: {train: {source: npz, y: z}}\n")});
  CHECK(same.compile.optimizer.number("beta_1") == 0.5);
  CHECK(same.compile.optimizer.number("beta_2") == 0.9);
  CHECK(same.data.train->string("x") == "images");
  const Config other =
      load_files({base, files.write("other.yaml",
                                    "compile: {optimizer: {SGD: {momentum: 0.9}}}\n"
                                    "data: {train: digits}\n")});
  CHECK(other.compile.optimizer.class_name == "SGD");
  CHECK(other.compile.optimizer.number("momentum") == 0.9);
  CHECK(other.data.train->class_name == "digits");
}

TEST_CASE("Files: arguments without a class are those of the class below") {
  const test::TempFolder files;
  const std::string base = files.write(
      "base.yaml",
      "model: {layers: [{Input: [4]}, {Dense: 2}]}\n"
      "compile: {loss: {Huber: {delta: 2}}, optimizer: {SGD: {momentum: 0.5, learning_rate: "
      "{ExponentialDecay: {initial_learning_rate: 1, decay_steps: 5, decay_rate: 0.5}}}}}\n"
      "data: {train: {source: npz, path: a.npz, x: images}}\n");
  const Config config =
      load_files({base, files.write("over.yaml",
                                    "compile: {loss: {reduction: sum}, optimizer: {learning_rate: "
                                    "{decay_steps: 7}}}\n"
                                    "data: {train: {path: e.npz}}\n")});
  CHECK(config.compile.loss[0].object.number("delta") == 2);
  CHECK(config.compile.loss[0].object.string("reduction") == "sum");
  CHECK(config.compile.optimizer.number("momentum") == 0.5);
  const ConfigObject& schedule = config.compile.optimizer.arg("learning_rate").object();
  CHECK(schedule.class_name == "ExponentialDecay");
  CHECK(schedule.integer("decay_steps") == 7);
  CHECK(schedule.number("decay_rate") == 0.5);
  CHECK(config.data.train->string("path").find("e.npz") != std::string::npos);
  CHECK(config.data.train->string("x") == "images");
  CHECK(
      load_files({base, files.write("number.yaml", "compile: {optimizer: {learning_rate: 3.0}}\n")})
          .compile.optimizer.number("learning_rate") == 3);
  CHECK(first_code({base, files.write("other.yaml", "compile: {optimizer: {beta_1: 0.5}}\n")}) ==
        "E122");
}

TEST_CASE("Files: null is set where it is a value and not the default") {
  const test::TempFolder files;
  const std::string base =
      files.write("base.yaml",
                  "model: {layers: [{Input: [4]}, {Dense: 2}]}\ndata: {train: digits}\n"
                  "compile: {loss: mse, optimizer: {AdamW: {weight_decay: 0.1, beta_1: 0.5}}}\n");
  for (const char* changes : {"compile: {optimizer: {AdamW: {weight_decay: null, beta_1: null}}}\n",
                              "override: {compile.optimizer.weight_decay: null, "
                              "compile.optimizer.beta_1: null}\n"}) {
    const std::string path = files.write("c.yaml", std::string("extends: base.yaml\n") + changes);
    const Config config = load_files({path});
    CHECK_FALSE(config.compile.optimizer.has("weight_decay"));
    CHECK(config.compile.optimizer.number("beta_1") == 0.9);
  }
  LoadOptions removed;
  removed.files = {base};
  removed.overrides = {"~compile.optimizer.weight_decay"};
  CHECK(load_config(removed).compile.optimizer.number("weight_decay") == 0.004);
}

TEST_CASE("extends: siblings and folders below") {
  const test::TempFolder files;
  std::filesystem::create_directories(files.file("bases/more"));
  files.write("bases/model.yaml", kSmall);
  files.write("bases/fit.yaml", "extends: more/run.yaml\nfit: {epochs: 3}\n");
  files.write("bases/more/run.yaml", "fit: {epochs: 1, batch_size: 2}\nrun: {log_steps: true}\n");
  const Config config = load_files({files.write(
      "a.yaml", "extends: [bases/model.yaml, bases/fit.yaml]\nfit: {batch_size: 8}\n")});
  CHECK(config.fit.epochs.value == 3);
  CHECK(config.fit.batch_size.value == 8);
  CHECK(config.run.log_steps.value);
  CHECK(config.name.value == "a");
}

TEST_CASE("extends: cycles and depth and other folders are refused") {
  const test::TempFolder files;
  files.write("x.yaml", "extends: y.yaml\n");
  files.write("y.yaml", "extends: ./x.yaml\n");
  CHECK(first_code({files.file("x.yaml")}) == "E130");
  for (int i = 0; i < 20; ++i) {
    files.write("d" + std::to_string(i) + ".yaml",
                "extends: d" + std::to_string(i + 1) + ".yaml\n");
  }
  files.write("d20.yaml", kSmall);
  CHECK(first_code({files.file("d0.yaml")}) == "E130");
  CHECK(first_code({files.file("d8.yaml")}) == "");
  CHECK(first_code({files.write("abs.yaml", "extends: /etc/hosts\n")}) == "E130");
  CHECK(first_code({files.write("up.yaml", "extends: a/../../b.txt\n")}) == "E130");
  // A config of another folder is followed, and missing here.
  CHECK(first_code({files.write("other.yaml", "extends: a/../../b.yaml\n")}) == "E100");
  CHECK(first_code({files.write("none.yaml", "extends: nothing.yaml\n")}) == "E100");
  for (int i = 0; i < 10; ++i) {
    std::string text = "extends: [";
    for (int k = 0; k < 20; ++k) {
      text += "w" + std::to_string(i + 1) + ".yaml, ";
    }
    files.write("w" + std::to_string(i) + ".yaml", text + "]\n");
  }
  files.write("w10.yaml", kSmall);
  CHECK(first_code({files.file("w0.yaml")}) == "E130");
}

TEST_CASE("override and profiles: changes by path") {
  const test::TempFolder files;
  files.write("base.yaml", std::string(kSmall) +
                               "fit: {epochs: 2}\n"
                               "profiles: {debug: {fit.limit_steps: 5, fit: {epochs: 1}}}\n");
  const std::string path =
      files.write("a.yaml",
                  "extends: base.yaml\noverride: {model.layers.d1.units: 400, fit.epochs: 4}\n"
                  "profiles: {cluster: {distribution.device_mesh.shape: 2x4}}\n");
  const Config plain = load_files({path});
  CHECK(plain.model.layers[1].object.integer("units") == 400);
  CHECK(plain.fit.epochs.value == 4);
  CHECK(plain.fit.limit_steps.value == 0);
  const Config debug = load_files({path}, "debug");
  CHECK(debug.fit.limit_steps.value == 5);
  CHECK(debug.fit.epochs.value == 1);
  CHECK(load_files({path}, "cluster").distribution.mesh.shape.value == std::vector<int64_t>{2, 4});
  CHECK_THROWS_AS(load_files({path}, "debgu"), ConfigError);
}

TEST_CASE("Files: all that are missing or broken are reported") {
  const test::TempFolder files;
  try {
    load_files({files.file("a.yaml"), files.write("b.yaml", "a: [\n"), files.file("c.yaml")});
    FAIL("accepted");
  } catch (const ConfigError& e) {
    CHECK(e.diagnostics().num_errors() == 3);
    CHECK(e.exit_code() == ExitCode::kConfig);
  }
}

}  // namespace meshtrain
