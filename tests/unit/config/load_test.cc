#include "config/load.h"

#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

std::string small_with(const std::string& more) {
  return kSmall + more;
}

}  // namespace

TEST_CASE("load_config: defaults are those of Keras' fit") {
  const Config config = load_text(kSmall);
  CHECK(config.name.value == "t");
  CHECK(config.seed.value == 1337);
  CHECK(config.dtype_policy.value == "float32");
  CHECK(config.fit.batch_size.value == 32);
  CHECK(config.fit.epochs.value == 1);
  CHECK(config.fit.validation_freq.value == 1);
  CHECK(config.data.shuffle.value);
  CHECK(config.data.remainder == Remainder::kKeep);
  CHECK(config.evaluate.on == EvaluatedData::kAuto);
  CHECK(config.run.verbose == Verbosity::kAuto);
  CHECK(config.distribution.type == DistributionType::kDataParallel);
  CHECK(config.distribution.mesh.devices.value == "auto");
  CHECK(config.distribution.mesh.axis_names.value == std::vector<std::string>{"batch"});
  CHECK(config.source_text == kSmall);
  CHECK_FALSE(config.fit.batch_size.loc);
  CHECK(config.warnings.list().empty());
}

TEST_CASE("load_config: every section is read") {
  const Config config = load_text(small_with(
      "version: 1\nname: run-1\nseed: 7\ndtype_policy: float64\n"
      "distribution:\n  type: ModelParallel\n  batch_dim_name: data\n"
      "  device_mesh: {shape: [2, 4], axis_names: [data, model], devices: cpu:8}\n"
      "  layout_map:\n    d1/kernel: [null, model]\n    d1/bias: [[data, model]]\n    d1/output: "
      "[data]\n"
      "  layout_match: search\n  zero: 2\n  zero_axes: [data]\n  checks: {unmatched_rule: warn}\n"
      "  auto_shard_dataset: true\n"
      "fit: {batch_size: 16, epochs: 3, initial_epoch: 1, steps_per_epoch: 10, limit_steps: 5,\n"
      "  validation_split: 0.25, validation_batch_size: 8, validation_steps: 2, validation_freq: "
      "[1, 3],\n"
      "  class_weight: {0: 1, 1: 2.5}, initial_weights: w.safetensors}\n"
      "evaluate: {on: train, batch_size: 4, steps: 3}\nrun: {dir: out, log_steps: true, verbose: "
      "2}\n"));
  CHECK(config.dtype_policy.value == "float64");
  const DistributionConfig& d = config.distribution;
  CHECK(d.batch_dim_name.value == std::vector<std::string>{"data"});
  CHECK(d.mesh.shape.value == std::vector<int64_t>{2, 4});
  CHECK(d.mesh.devices.value == "cpu:8");
  REQUIRE(d.layout_map.size() == 3);
  CHECK(d.layout_map[0].loc.to_string().find(":16:5") != std::string::npos);
  CHECK(d.layout_map[0].loc.length == 9);
  CHECK(d.layout_map[0].layout.dims == std::vector<std::vector<std::string>>{{}, {"model"}});
  CHECK(d.layout_map[0].layout.axis_locs[1][0].column == 23);
  CHECK(d.layout_map[0].layout.loc.column == 16);
  CHECK(d.layout_map[1].layout.dims[0] == std::vector<std::string>{"data", "model"});
  CHECK(d.layout_map[1].layout.axis_locs[0][1].column == 22);
  CHECK(d.layout_match == LayoutMatch::kSearch);
  CHECK(d.zero.value == 2);
  CHECK(d.zero_axes.value == std::vector<std::string>{"data"});
  CHECK(d.unmatched_rule == Unmatched::kWarn);
  CHECK(config.fit.initial_epoch.value == 1);
  CHECK(config.fit.steps_per_epoch.value == 10);
  CHECK(config.fit.limit_steps.value == 5);
  CHECK(config.fit.validation_split.value == 0.25);
  CHECK(config.fit.validation_epochs == std::vector<int64_t>{1, 3});
  CHECK(config.fit.class_weight[1].second.value == 2.5);
  CHECK(config.fit.initial_weights.value.find("w.safetensors") != std::string::npos);
  CHECK(config.evaluate.on == EvaluatedData::kTrain);
  CHECK(config.evaluate.steps.value == 3);
  CHECK(config.run.verbose == Verbosity::kLine);
  CHECK(config.run.log_steps.value);
}

TEST_CASE("load_config: data sources and slices and transforms") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {
      files.write("c.yaml",
                  "model: {layers: [{Input: [4]}, {Dense: 2}]}\ncompile: {loss: mse}\n"
                  "data:\n  train: {source: npz, path: train.npz}\n"
                  "  validation: {source: idx, images: i.gz, labels: l.gz, slice: \"[9000:]\"}\n"
                  "  test: digits\n  shuffle: false\n  remainder: drop\n  nonfinite: allow\n  "
                  "label: {one_hot: 10}\n"
                  "  transform:\n    - Rescaling: {scale: =1/255}\n    - Reshape: [-1]\n")};
  const Config config = load_config(options);
  CHECK(config.data.base_dir + "/" == files.file(""));
  CHECK(config.data.train->string("path") == "train.npz");
  CHECK(config.data.train->string("x") == "x");
  CHECK_FALSE(config.data.train->has("sample_weight"));
  CHECK(config.data.validation->string("slice") == "[9000:]");
  CHECK(config.data.test->class_name == "digits");
  CHECK_FALSE(config.data.shuffle.value);
  CHECK(config.data.remainder == Remainder::kDrop);
  CHECK(config.data.nonfinite == Nonfinite::kAllow);
  CHECK(config.data.one_hot.value == 10);
  REQUIRE(config.data.transform.size() == 2);
  CHECK(config.data.transform[0].number("scale") == 1.0 / 255);
  CHECK(config.data.transform[1].arg("target_shape").integers() == std::vector<int64_t>{-1});
}

TEST_CASE("load_config: paths follow the file they stand in") {
  const test::TempFolder files;
  std::filesystem::create_directories(files.file("sub"));
  files.write("sub/base.yaml",
              "model: {layers: [{Input: [4]}, {Dense: 2}]}\ncompile: {loss: mse}\n"
              "data: {train: {source: npz, path: here.npz}}\n"
              "fit: {initial_weights: w.npz}\n");
  LoadOptions options;
  options.files = {files.write("top.yaml", "extends: sub/base.yaml\n")};
  const Config config = load_config(options);
  CHECK(config.data.train->string("path") == files.file("sub/here.npz"));
  CHECK(config.fit.initial_weights.value == files.file("sub/w.npz"));
  options.files = {files.write("dir.yaml", "extends: sub/base.yaml\ndata: {dir: data}\n")};
  const Config with_dir = load_config(options);
  CHECK(with_dir.data.base_dir == files.file("data"));
  CHECK(with_dir.data.train->string("path") == "here.npz");

  files.write("sub/several.yaml",
              "model: {layers: [{Input: [4]}, {Dense: 2}]}\ncompile: {loss: mse}\n"
              "data: {train: {source: npy, x: [a.npy, b.npy], y: {out: c.npy}}}\n");
  options.files = {files.write("several.yaml", "extends: sub/several.yaml\n")};
  const Config several = load_config(options);
  CHECK(several.data.train->arg("x").list()[1].string() == files.file("sub/b.npy"));
  CHECK(several.data.train->arg("y").dict()[0].second.string() == files.file("sub/c.npy"));
}

TEST_CASE("load_config: paths and patterns on the command line are those of the current folder") {
  const test::TempFolder files, here;
  here.write("a1.npz", "");
  LoadOptions options;
  options.files = {files.write("c.yaml", kSmall)};
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here.path());
  for (const char* path : {"a1.npz", "a*.npz"}) {
    CAPTURE(path);
    options.overrides = {fmt::format("data.train={{source: npz, path: {}}}", path)};
    CHECK(load_config(options).data.train->string("path") == here.file(path));
  }
  options.overrides = {"data.train={source: npz, path: b*.npz}"};
  CHECK(load_config(options).data.train->string("path") == "b*.npz");
  std::filesystem::current_path(before);
}

TEST_CASE("load_config: other images are made as those of the training data") {
  const Config config = load_text(
      "model: {layers: [{Input: [4]}, {Dense: 2}]}\ncompile: {loss: mse}\n"
      "data:\n  train: {source: image_folder, directory: a, image_size: [8, 9], class_names: [b, "
      "a], "
      "interpolation: nearest, seed: 1, validation_split: 0.2, subset: training}\n"
      "  validation: {source: image_folder, directory: b, interpolation: bicubic}\n");
  CHECK(config.data.validation->arg("image_size").integers() == std::vector<int64_t>{8, 9});
  CHECK(config.data.validation->arg("class_names").list()[0].string() == "b");
  CHECK(config.data.validation->string("interpolation") == "bicubic");
  CHECK(config.data.validation->string("directory") == "b");
  for (const char* own : {"seed", "validation_split", "subset"}) {
    CHECK_FALSE(config.data.validation->has(own));
  }
}

TEST_CASE("load_config: a vocabulary has each text once") {
  CHECK(codes_of(
            "model: {layers: [{Input: [4]}, {Dense: 2}]}\ncompile: {loss: mse}\n"
            "data: {train: {source: csv, path: a.csv, vocabulary: {c: [Rome, Bonn, Rome]}}}\n") ==
        "E318");
}

TEST_CASE("load_config: None is null in layouts and shapes and a note") {
  const std::string text = small_with("distribution: {layout_map: {d1/kernel: [None, batch]}}\n");
  CHECK(codes_of(text) == "W114");
  CHECK(load_text(text).distribution.layout_map[0].layout.to_string() == "[null, batch]");
  CHECK(codes_of(small_with("fit: {steps_per_epoch: None}\n")) == "E114");
}

TEST_CASE(
    "load_config: an override that moves the axes of the mesh leaves the batch with its axis") {
  const std::string named = small_with(
      "distribution: {device_mesh: {shape: [2, 4], axis_names: [data, model]}}\n"
      "profiles:\n  swapped: {distribution.device_mesh.axis_names: [model, data]}\n");
  const auto batch_of = [](const std::string& text, const std::vector<std::string>& words,
                           const std::string& profile = "") {
    const test::TempFolder files;
    LoadOptions options;
    options.files = {files.write("t.yaml", text)};
    options.overrides = words;
    options.profile = profile;
    return load_config(options).distribution.batch_dim_name.value;
  };
  const std::vector<std::string> data = {"data"};
  CHECK(batch_of(named, {}).empty());  // the first
  CHECK(batch_of(named, {"distribution.device_mesh.shape=4x2"}).empty());
  CHECK(batch_of(named, {"distribution.device_mesh.shape=data=4,model=2"}).empty());
  CHECK(batch_of(named, {"distribution.device_mesh.shape=model=4,data=2"}) == data);
  CHECK(batch_of(named, {"distribution.device_mesh.axis_names=[model, data]"}) == data);
  CHECK(batch_of(named, {"distribution.device_mesh={shape: [2, 4], axis_names: [x, data]}"}) ==
        data);
  CHECK(batch_of(named, {}, "swapped") == data);
  const std::vector<std::string> choice = {"model"};
  CHECK(batch_of(named, {"distribution.device_mesh.shape=model=4,data=2",
                         "distribution.batch_dim_name=model"}) == choice);
  const std::string sizes = small_with("distribution: {device_mesh: {shape: 'data=2,model=4'}}\n");
  CHECK(batch_of(sizes, {"distribution.device_mesh.axis_names=[model, data]"}) == data);
  CHECK(batch_of(sizes, {"distribution.device_mesh.axis_names=[model, data]",
                         "distribution.device_mesh.shape=[4, 2]"}) == data);
  const std::string unnamed = small_with("distribution: {device_mesh: {shape: [2, 4]}}\n");
  CHECK(batch_of(unnamed, {"distribution.device_mesh.shape=model=4,batch=2"}) ==
        std::vector<std::string>{"batch"});
  CHECK(batch_of(unnamed, {"distribution.device_mesh.shape=rows=4,columns=2"}).empty());
  CHECK(codes_of(unnamed, {"distribution.device_mesh.shape=rows=4,columns=2"}).empty());
  CHECK(codes_of(named, {"distribution.device_mesh.shape=rows=4,columns=2"}) == "W211");
  const std::string chosen = small_with(
      "distribution: {batch_dim_name: data, device_mesh: {shape: [2], axis_names: [data]}}\n");
  CHECK(codes_of(chosen, {"distribution.device_mesh.shape=rows=4"}) == "E113");
}

TEST_CASE("load_config: warnings are no errors") {
  CHECK(codes_of(small_with(
            "distribution: {type: DataParallel, layout_map: {d1/kernel: [null]}}\n")) == "W205");
  const Config config = load_text(
      small_with("distribution: {type: DataParallel, layout_map: {d1/kernel: [null]}}\n"));
  CHECK(config.distribution.layout_map.empty());
}

TEST_CASE("load_config: all problems come together in the order of the file") {
  CHECK(
      codes_of(
          "model:\n  layers:\n    - Input: {shape: [0]}\n    - Dens: 4\n    - Dense: {units: 010}\n"
          "compile: {loss: hubber}\nfit: {epochs: 1e3, batchsize: 2}\n") ==
      "E112 E115 E122 E114 E122 E112 E111");
}

TEST_CASE("load_config: what needs data asks for it only then") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {files.write("m.yaml", "model: {layers: [{Input: [4]}, {Dense: 2}]}\n")};
  CHECK_THROWS_AS(load_config(options), ConfigError);
  options.require_data = false;
  CHECK(load_config(options).model.layers.size() == 2);
}

TEST_CASE("load_config: schedules and learning rates") {
  const std::string text =
      "model: {layers: [{Input: [4]}, {Dense: 2}]}\ndata: {train: digits}\ncompile:\n  loss: mse\n"
      "  optimizer:\n    SGD:\n      learning_rate: ";
  const Config config = load_text(
      text +
      "{CosineDecay: {initial_learning_rate: 0.0, warmup_target: 6e-4, warmup_steps: 20,\n"
      "        decay_steps: =fit.epochs * 100, alpha: 0.1}}\nfit: {epochs: 3}\n");
  const ConfigObject& schedule = config.compile.optimizer.arg("learning_rate").object();
  CHECK(schedule.class_name == "CosineDecay");
  CHECK(schedule.integer("decay_steps") == 300);
  CHECK(schedule.number("warmup_target") == 6e-4);
  CHECK(load_text(text + "1.0\n").compile.optimizer.number("learning_rate") == 1);
  CHECK(codes_of(text + "1\n") == "E112");
  CHECK(load_text(text + "0.0\n").compile.optimizer.number("learning_rate") == 0);
  CHECK(codes_of(text + "-0.1\n") == "E113");
  CHECK(codes_of(text + "fast\n") == "E112");
  CHECK(codes_of(text + "{CosineDecy: {}}\n") == "E122");
  CHECK(codes_of(text + "{PiecewiseConstantDecay: {boundaries: [2, 1], values: [1, 1]}}\n") ==
        "E113 E113");
}

TEST_CASE("Configs: those that are shipped load without a warning") {
  for (const char* name :
       {"quickstart", "keras_guide_data_parallel", "keras_guide_model_parallel", "mirrored_mlp"}) {
    CAPTURE(name);
    LoadOptions options;
    options.files = {std::string(MESHTRAIN_SOURCE_DIR) + "/configs/" + name + ".yaml"};
    const Config config = load_config(options);
    CHECK(config.warnings.render() == "");
    CHECK(config.name.value == name);
    CHECK(config.data.train);
  }
}

}  // namespace meshtrain
