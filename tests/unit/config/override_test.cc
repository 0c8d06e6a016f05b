#include "config/path.h"
#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

std::string parts_of(const char* path) {
  const auto parts = parse_path(path);
  if (!parts) {
    return "none";
  }
  std::string out;
  for (const std::string& part : *parts) {
    out += part + "|";
  }
  return out;
}

}  // namespace

TEST_CASE("parse_path: dots and indices and quoted keys") {
  CHECK(parts_of("fit.epochs") == "fit|epochs|");
  CHECK(parts_of("model.layers[2].units") == "model|layers|2|units|");
  CHECK(parts_of("distribution.layout_map[\"d1.x/kernel\"]") ==
        "distribution|layout_map|d1.x/kernel|");
  CHECK(parts_of("a['b.c'][0]") == "a|b.c|0|");
  CHECK(parts_of("distribution.layout_map.d1/kernel") == "distribution|layout_map|d1/kernel|");
  for (const char* bad : {"", ".", "a.", ".a", "a..b", "a[", "a[]", "a[0]b", "a.[0]"}) {
    CAPTURE(bad);
    CHECK(parts_of(bad) == "none");
  }
}

TEST_CASE("Overrides: keys and layers and arguments") {
  const Config config =
      load_text(kSmall, {"fit.epochs=20", "model.layers.d1.units=4_00",
                         "model.layers.1.activation=relu", "compile.optimizer.learning_rate=3e-4",
                         "compile.loss=mae", "distribution.device_mesh.shape=4,2",
                         "distribution.layout_map[\"d1/kernel\"]=[null,model]",
                         "distribution.layout_map.d1/bias=[model]", "data.train.samples=16"});
  CHECK(config.fit.epochs.value == 20);
  CHECK(config.fit.epochs.loc.to_string() == "command line:1:12");
  CHECK(config.model.layers[1].object.integer("units") == 400);
  CHECK(config.model.layers[1].object.string("activation") == "relu");
  CHECK(config.compile.optimizer.class_name == "RMSprop");
  CHECK(config.compile.optimizer.number("learning_rate") == 3e-4);
  CHECK(config.compile.loss[0].object.class_name == "MeanAbsoluteError");
  CHECK(config.distribution.mesh.shape.value == std::vector<int64_t>{4, 2});
  REQUIRE(config.distribution.layout_map.size() == 2);
  CHECK(config.distribution.layout_map[0].key == "d1/kernel");
  CHECK(config.distribution.layout_map[0].layout.to_string() == "[null, model]");
  CHECK(config.distribution.type == DistributionType::kModelParallel);
  CHECK(config.data.train->integer("samples") == 16);
}

TEST_CASE("Overrides: mesh shapes in each spelling") {
  const std::vector<int64_t> wanted = {4, 2};
  for (const char* word :
       {"distribution.device_mesh.shape=4x2", "distribution.device_mesh.shape=4,2",
        "distribution.device_mesh.shape=[4, 2]", "distribution.device_mesh.shape=data=4,model=2"}) {
    CAPTURE(word);
    const Config config = load_text(kSmall, {word});
    CHECK(config.distribution.mesh.shape.value == wanted);
    CHECK(config.distribution.mesh.axis_names.value.size() == 2);
  }
  const Config named = load_text(kSmall, {"distribution.device_mesh.shape=data=4,model=2"});
  CHECK(named.distribution.mesh.axis_names.value == std::vector<std::string>{"data", "model"});
  const Config one = load_text(kSmall, {"distribution.device_mesh.shape=8"});
  CHECK(one.distribution.mesh.shape.value == std::vector<int64_t>{8});
  CHECK(one.distribution.mesh.axis_names.value == std::vector<std::string>{"batch"});
}

TEST_CASE("Overrides: flags are shown as typed") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {files.write("t.yaml", kSmall)};
  options.flags = {{"distribution.device_mesh.shape", "2x4"}, {"fit.epochs", "3"}};
  options.flag_names = {"--mesh", "--epochs"};
  const Config config = load_config(options);
  CHECK(config.distribution.mesh.shape.value == std::vector<int64_t>{2, 4});
  CHECK(config.distribution.mesh.shape.loc.file->text == "--mesh 2x4");
  CHECK(config.fit.epochs.value == 3);
}

TEST_CASE("Overrides: a flag counts beside a word that sets or removes what it is part of") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {
      files.write("t.yaml", std::string(kSmall) + "fit: {epochs: 9, shuffle: false}\n")};
  options.flags = {{"distribution.device_mesh.shape", "2x4"}, {"fit.epochs", "3"}};
  options.flag_names = {"--mesh", "--epochs"};
  options.overrides = {"~distribution", "~fit"};
  const Config removed = load_config(options);
  CHECK(removed.distribution.mesh.shape.value == std::vector<int64_t>{2, 4});
  CHECK(removed.fit.epochs.value == 3);
  options.overrides = {"distribution={device_mesh: {axis_names: [a, b]}}", "fit.batch_size=16",
                       "~fit", "fit.batch_size=8"};
  const Config set = load_config(options);
  CHECK(set.distribution.mesh.shape.value == std::vector<int64_t>{2, 4});
  CHECK(set.distribution.mesh.axis_names.value == std::vector<std::string>{"a", "b"});
  CHECK(set.fit.epochs.value == 3);
  CHECK(set.fit.batch_size.value == 8);
}

TEST_CASE("Overrides: removal returns to the default and appending adds") {
  const std::string text = std::string(kSmall) + "fit: {epochs: 9}\n";
  CHECK(load_text(text, {"~fit.epochs"}).fit.epochs.value == 1);
  CHECK(load_text(text, {"~run.dir"}).run.dir.value.empty());
  const Config config =
      load_text(text, {"compile.metrics+=mae", "compile.metrics+=mse", "model.layers+={Dense: 3}",
                       "~model.layers.0", "~model.layers.d1",
                       "model.layers=[{Input: [4]}, {Dense: {name: a, units: 1}}]"});
  CHECK(config.compile.metrics.size() == 2);
  CHECK(config.compile.metrics[0].object.spelled == "mae");
  CHECK(config.model.layers.size() == 2);
  CHECK(load_text(text, {"distribution.layout_map+={d1/kernel: [null, batch]}"})
            .distribution.layout_map.size() == 1);
}

TEST_CASE("Overrides: entries of maps of names are set, added and removed") {
  const std::string table =
      "data: {train: {source: csv, path: t.csv, label: y, features: {p: [a], q: b}}}\n"
      "model: {layers: [{Input: [1]}, {Dense: 1}]}\ncompile: {loss: mse}\n";
  const auto features = [&](const std::vector<std::string>& words) {
    const Config config = load_text(table, words);
    std::string text;
    for (const auto& [name, columns] : config.data.train->arg("features").dict()) {
      text += name + ":";
      for (const std::string& column :
           columns.is_list() ? columns.strings() : std::vector<std::string>{columns.string()}) {
        text += " " + column;
      }
      text += "; ";
    }
    return text;
  };
  CHECK(features({"data.train.features.p=[b]"}) == "p: b; q: b; ");
  CHECK(features({"data.train.features.p=b,c"}) == "p: b c; q: b; ");
  CHECK(features({"data.train.features.p+=c"}) == "p: a c; q: b; ");
  CHECK(features({"data.train.features.r=c"}) == "p: a; q: b; r: c; ");
  CHECK(features({"~data.train.features.q"}) == "p: a; ");
  CHECK(codes_of(table, {"data.train.label.a=x"}) == "E140");  // one name, no map
  const std::string arrays =
      "data: {train: {source: npz, path: t.npz, x: {a: a, b: b}, y: y}}\n"
      "model: {layers: [{Input: [1]}, {Dense: 1}]}\ncompile: {loss: mse}\n";
  const Config config = load_text(arrays, {"data.train.x.a=b"});
  CHECK(config.data.train->arg("x").dict()[0].second.string() == "b");
}

TEST_CASE("Overrides: an absent object is made by its class") {
  CHECK(
      load_text(kSmall, {"compile.optimizer.Adam.beta_1=0.5"}).compile.optimizer.number("beta_1") ==
      0.5);
  const Config config = load_text(kSmall, {"data.test.source=digits", "data.test.split=test"});
  REQUIRE(config.data.test);
  CHECK(config.data.test->class_name == "digits");
  CHECK(config.data.test->string("split") == "test");
  CHECK(load_text(kSmall, {"compile.loss.reduction=sum"})
            .compile.loss[0]
            .object.string("reduction") == "sum");
}

TEST_CASE("Overrides: what is no override or leads nowhere is refused") {
  const std::pair<const char*, const char*> kCases[] = {{"fit.epochs", "E140"},
                                                        {"=3", "E140"},
                                                        {"fit.epochs=", "E140"},
                                                        {"fit.epohcs=3", "E111"},
                                                        {"model.layers.d9.units=3", "E140"},
                                                        {"model.layers.d1.unitz=3", "E111"},
                                                        {"fit.epochs.x=3", "E140"},
                                                        {"fit.epochs+=3", "E140"},
                                                        {"distribution.layout_map[\"a=[1]", "E140"},
                                                        {"compile.loss.Huber.delta=1", "E140"},
                                                        {"fit.epochs=[1", "E104"},
                                                        {"fit.epochs=ten", "E112"},
                                                        {"fit.epochs=null", "E112"},
                                                        {"fit.epochs=*x", "E108"},
                                                        {"data.train.source=parquet", "E122 E140"}};
  for (const auto& [word, code] : kCases) {
    CAPTURE(word);
    const std::string codes = codes_of(kSmall, {word});
    CHECK(std::string(code).find(codes.substr(0, 4)) != std::string::npos);
    CHECK_FALSE(codes.empty());
  }
}

TEST_CASE("Overrides: limits of number and length") {
  CHECK(codes_of(kSmall, std::vector<std::string>(10000, "fit.epochs=2")) == "E140");
  CHECK(codes_of(kSmall, {"name=" + std::string(1 << 20, 'x')}) == "E140");
}

}  // namespace meshtrain
