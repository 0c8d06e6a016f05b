// import and export, and Keras' weight files in the other subcommands, on models that Keras saved.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "example.h"
#include "tensor/npy.h"
#include "tensor/npz.h"
#include "tensor/safetensors.h"
#include "tensor/zip.h"

namespace meshtrain {
namespace {

const std::string kFolder = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/keras/io/";

// The inputs of NAME.npz as a file for `predict`, and what Keras predicted.
std::vector<HostTensor> split_samples(const std::string& name, const std::string& inputs) {
  std::vector<NamedTensor> given;
  std::vector<HostTensor> expected;
  for (NamedTensor& tensor : read_npz(kFolder + name + ".npz")) {
    if (tensor.name == "y" + std::to_string(expected.size())) {
      expected.push_back(std::move(tensor.tensor));
    } else {
      given.push_back(std::move(tensor));
    }
  }
  write_npz(inputs, given);
  return expected;
}

void check_close(const HostTensor& got, const HostTensor& expected) {
  REQUIRE(got.shape() == expected.shape());
  for (int64_t i = 0; i < got.size(); ++i) {
    CHECK(std::abs(got.at(i) - expected.at(i)) <= 1e-5 * std::max(1.0, std::abs(expected.at(i))));
  }
}

// What `config` with `weights` predicts for the samples of `name`.
void check_predictions(const TemporaryFolder& folder, const std::string& name,
                       const std::string& config, const std::string& weights) {
  const std::vector<HostTensor> expected = split_samples(name, folder.file("x.npz"));
  const std::string out = expected.size() > 1 ? "y.npz" : "y.npy";
  const Result result = meshtrain(
      {"predict", config, "--weights", weights, "--input", "x.npz", "--output", out, "-q"},
      folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  if (expected.size() == 1) {
    return check_close(read_npy(folder.file(out)), expected[0]);
  }
  NpzReader archive(folder.file(out));
  REQUIRE(archive.names().size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    check_close(archive.read(archive.names()[i]), expected[i]);
  }
}

TEST_CASE("models that Keras saved predict here what they predicted there") {
  for (const std::string name :
       {"mlp", "convnet", "several", "shared", "resnet", "separable", "normalized", "adapted",
        "nested", "translated", "heads", "weighed", "counted", "merged", "frames", "tied", "tables",
        "answered"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const Result imported =
        meshtrain({"import", kFolder + name + ".keras", "-o", "in"}, folder.path());
    REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
    CHECK(contains(imported.out, "in/config.yaml: "));
    CHECK(imported.err.empty());
    CHECK(meshtrain({"summary", "in/config.yaml"}, folder.path()).exit_code == 0);
    check_predictions(folder, name, "in/config.yaml", "in/weights.safetensors");
    // The same weights once more, through each kind of file that is written.
    for (const std::string file : {"out.keras", "out.weights.h5", "out.npz"}) {
      CAPTURE(file);
      const Result written = meshtrain({"export", "in/config.yaml", "-o", file}, folder.path());
      REQUIRE_MESSAGE(written.exit_code == 0, written.err);
      check_predictions(folder, name, "in/config.yaml", file);
    }
    const Result again = meshtrain({"import", "out.keras", "-o", "again"}, folder.path());
    REQUIRE_MESSAGE(again.exit_code == 0, again.err);
    check_predictions(folder, name, "again/config.yaml", "again/weights.safetensors");
  }
}

TEST_CASE("sizes that a Keras model leaves open are given to import") {
  const TemporaryFolder folder;
  const auto import = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"import", kFolder + "unsized.keras", "-o", "in"});
    return meshtrain(more, folder.path());
  };
  const Result open = import({});
  CHECK(open.exit_code == 2);
  CHECK(contains(open.err, "error[E120]: layer `conv1d` (Conv1D) gets (None, None, 4)"));
  CHECK(contains(open.err, "--shape ids=SIZE --shape images=SIZE,SIZE,2"));
  CHECK_FALSE(contains(open.err, "config.yaml"));  // which is not written
  CHECK_FALSE(std::filesystem::exists(folder.file("in")));
  for (const auto& [shape, text] : std::vector<std::pair<std::string, std::string>>{
           {"7", "--shape without a name, but the model has 2 inputs"},
           {"idx=7", "the model has no input `idx`"},
           {"ids=7,7", "--shape 7,7 does not fit the input `ids`, which is (None)"},
           {"images=7,7,3", "--shape images=SIZE,SIZE,2"},
           {"ids=none", "--shape `ids=none` is no shape"},
           {"ids=0", "--shape `ids=0` is no shape"},
           {"ids=", "--shape `ids=` is no shape"}}) {
    const Result wrong = import({"--shape", shape});
    CHECK(wrong.exit_code == 2);
    CHECK_MESSAGE(contains(wrong.err, "error[E140]"), wrong.err);
    CHECK_MESSAGE(contains(wrong.err, text), wrong.err);
  }
  CHECK(import({"--shape", "ids=7", "--shape", "ids=7"}).exit_code == 2);
  const Result sized = import({"--shape", "ids=7", "--shape", "images=7,7,2"});
  REQUIRE_MESSAGE(sized.exit_code == 0, sized.err);
  check_predictions(folder, "unsized", "in/config.yaml", "in/weights.safetensors");
  // The file of weights fits by its names, whatever the sizes.
  check_predictions(folder, "unsized", "in/config.yaml", kFolder + "unsized.keras");
}

TEST_CASE("layers of a nested model that no output is computed from are left out") {
  const TemporaryFolder folder;
  const std::string file = kFolder + "halved.keras";
  const Result imported = meshtrain({"import", file, "-o", "in"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK(contains(imported.err, "warning[W416]"));
  CHECK(contains(imported.err,
                 "not taken over: layers `before` (Dense), `z_log_var` (Dense): no "
                 "output is computed from them"));
  CHECK(contains(imported.out, ": 4 layers, 6 weights in"));
  check_predictions(folder, "halved", "in/config.yaml", "in/weights.safetensors");
  check_predictions(folder, "halved", "in/config.yaml", file);
}

TEST_CASE("a mask of what a layer cast before is that of its input") {
  const TemporaryFolder folder;
  const std::string file = kFolder + "cast.keras";
  const Result imported = meshtrain({"import", file, "-o", "in"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  check_predictions(folder, "cast", "in/config.yaml", "in/weights.safetensors");
}

TEST_CASE("a TimeDistributed model becomes one TimeDistributed for each of its layers") {
  const TemporaryFolder folder;
  const std::string file = kFolder + "filmstrip.keras";
  const Result imported = meshtrain({"import", file, "-o", "in"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK(imported.err.empty());
  const std::string config = folder.read("in/config.yaml");
  CHECK(contains(config, "- TimeDistributed: {name: frames_conv, layer: {Conv2D: {"));
  CHECK(contains(config, "- Call: {layer: frames_conv,"));
  check_predictions(folder, "filmstrip", "in/config.yaml", "in/weights.safetensors");
  check_predictions(folder, "filmstrip", "in/config.yaml", file);
  const Result written = meshtrain({"export", "in/config.yaml", "-o", "out.keras"}, folder.path());
  REQUIRE_MESSAGE(written.exit_code == 0, written.err);
  check_predictions(folder, "filmstrip", "in/config.yaml", "out.keras");
}

TEST_CASE("a TimeDistributed model with masks or branches sees merged steps") {
  const TemporaryFolder folder;
  const std::string file = kFolder + "hierarchy.keras";
  const Result imported = meshtrain({"import", file, "-o", "in"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK(imported.err.empty());
  const std::string config = folder.read("in/config.yaml");
  CHECK(contains(config, "- MergeSteps: {name: time_distributed_steps, inputs: ids}"));
  CHECK(contains(config, "- SplitSteps: {name: time_distributed, inputs: [lstm"));
  check_predictions(folder, "hierarchy", "in/config.yaml", "in/weights.safetensors");
  check_predictions(folder, "hierarchy", "in/config.yaml", file);
  const Result written = meshtrain({"export", "in/config.yaml", "-o", "out.keras"}, folder.path());
  CHECK(written.exit_code == 6);
  CHECK(contains(written.err,
                 "error[E417]: layer `time_distributed_1`: `SplitSteps` of steps with "
                 "a mask cannot be expressed in Keras"));
}

TEST_CASE("models are read where whoever started the program ignores the end of children") {
  const TemporaryFolder folder;
  Command command;
  command.program = "python3";
  command.args = {"-c",
                  "import os, signal, sys\n"
                  "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
                  "os.execv(sys.argv[1], sys.argv[1:])",
                  MESHTRAIN_BINARY,
                  "import",
                  kFolder + "mlp.keras",
                  "-o",
                  "in"};
  command.folder = folder.path();
  const Result imported = run(command);
  CHECK_MESSAGE(imported.exit_code == 0, imported.err);
}

TEST_CASE("weights that Keras saved begin a training run") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q", "-o", "run"}, folder.path()).exit_code == 0);
  const std::string weights = "run/weights.safetensors";
  REQUIRE(
      meshtrain({"export", "small.yaml", "--weights", weights, "-o", "w.weights.h5"}, folder.path())
          .exit_code == 0);
  const Result from_h5 = meshtrain({"train", "small.yaml", "-q", "--log-format=json", "-o", "a",
                                    "fit.initial_weights=w.weights.h5"},
                                   folder.path());
  const Result from_safetensors = meshtrain({"train", "small.yaml", "-q", "--log-format=json", "-o",
                                             "b", "fit.initial_weights=" + weights},
                                            folder.path());
  REQUIRE_MESSAGE(from_h5.exit_code == 0, from_h5.err);
  CHECK(folder.read("a/weights.safetensors") == folder.read("b/weights.safetensors"));
  CHECK(from_safetensors.exit_code == 0);
  const Result other =
      meshtrain({"evaluate", "small.yaml", "--weights", kFolder + "mlp.weights.h5"}, folder.path());
  CHECK(other.exit_code == 6);
  CHECK(contains(other.err, "error[E410]"));
  CHECK(contains(other.err, "other shape: d1/kernel is (6, 5) in the file, (6, 8) in the model"));
}

TEST_CASE("a model.json takes the weights beside it or those named") {
  const TemporaryFolder folder;
  for (const char* file : {"mlp.json", "mlp.weights.h5"}) {
    std::filesystem::copy_file(kFolder + file, folder.file(file));
  }
  const Result beside = meshtrain({"import", "mlp.json"}, folder.path());
  REQUIRE_MESSAGE(beside.exit_code == 0, beside.err);
  check_predictions(folder, "mlp", "mlp/config.yaml", "mlp/weights.safetensors");
  std::filesystem::rename(folder.file("mlp.weights.h5"), folder.file("other.h5"));
  CHECK(contains(meshtrain({"import", "mlp.json", "-o", "bare"}, folder.path()).out, "no weights"));
  CHECK_FALSE(std::filesystem::exists(folder.file("bare/weights.safetensors")));
  const Result named =
      meshtrain({"import", "mlp.json", "-o", "named", "--weights", "other.h5"}, folder.path());
  CHECK(named.exit_code == 0);
  CHECK(folder.read("named/weights.safetensors") == folder.read("mlp/weights.safetensors"));
}

TEST_CASE("a model of Keras Hub becomes a config, which reads Hub's file, too") {
  const TemporaryFolder folder;
  const std::string model = kFolder + "../hub/gpt2.keras";
  const Result imported =
      meshtrain({"import", model, "-o", "in", "--shape", "token_ids=7"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK_MESSAGE(imported.err.empty(), imported.err);
  CHECK(imported.out == "in/config.yaml: GPT2CausalLM, 36 weights in in/weights.safetensors\n");
  check_predictions(folder, "../hub/gpt2", "in/config.yaml", model);
}

TEST_CASE("a preset of Keras Hub comes with its tokenizer, or names the weights that do not fit") {
  const TemporaryFolder folder;
  const ZipReader zip(kFolder + "../hub/preset_bert.zip", {"E404", "E405"});
  std::filesystem::create_directories(folder.file("presets/bert/assets/tokenizer"));
  for (const std::string& file : zip.names()) {
    folder.write("presets/bert/" + file, zip.text(file, 1 << 20));
  }
  const Result imported = meshtrain({"import", "presets/bert/"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK(contains(imported.out, "bert/config.yaml: BertTextClassifier"));
  if (contains(imported.out, " with its tokenizer")) {  // it needs utf8proc
    CHECK(contains(folder.read("bert/tokenizer.json"), "BertNormalizer"));
    CHECK(!contains(imported.err, "tokenizer"));
  }
  const Result unfit = meshtrain(
      {"import", "presets/bert", "-o", "other", "--weights", "presets/bert/model.weights.h5"},
      folder.path());
  CHECK(unfit.exit_code == 6);
  CHECK_MESSAGE(contains(unfit.err, "save both anew, model.save_to_preset()"), unfit.err);
}

TEST_CASE("a whole model as .h5 is imported, and weights by path fit it, on every mesh") {
  const TemporaryFolder folder;
  const Result imported = meshtrain({"import", kFolder + "legacy.h5", "-o", "in"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK_MESSAGE(imported.err.empty(), imported.err);
  const std::string config = folder.read("in/config.yaml");
  CHECK_MESSAGE(contains(config, "Adam: {learning_rate: 0.002"), config);
  CHECK_MESSAGE(contains(config, "sparse_categorical_crossentropy"), config);
  const std::vector<HostTensor> expected = split_samples("legacy", folder.file("x.npz"));
  for (const std::string& weights : {std::string("in/weights.safetensors"), kFolder + "legacy.h5",
                                     kFolder + "legacy_weights.h5"}) {
    CAPTURE(weights);
    for (const std::string mesh : {"1x1", "2x2"}) {
      CAPTURE(mesh);
      const Result result =
          meshtrain({"predict", "in/config.yaml", "--weights", weights, "--input", "x.npz", "-o",
                     "y.npy", "-q", "distribution.type=ModelParallel",
                     "distribution.device_mesh={shape: [1, 1], axis_names: [data, model]}",
                     "distribution.layout_map={both/.*_lstm/.*kernel: [null, model]}", "--mesh",
                     mesh, "--devices", mesh == "1x1" ? "cpu:1" : "cpu:4"},
                    folder.path());
      REQUIRE_MESSAGE(result.exit_code == 0, result.err);
      check_close(read_npy(folder.file("y.npy")), expected[0]);
    }
  }
  const Result bare =
      meshtrain({"import", kFolder + "legacy_weights.h5", "-o", "bare"}, folder.path());
  CHECK(bare.exit_code == 2);
  CHECK_MESSAGE(contains(bare.err, "has weights alone, and no model"), bare.err);
}

TEST_CASE("import names the file of weights that do not fit the model") {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kFolder + "mlp.weights.h5", folder.file("w.weights.h5"));
  std::filesystem::copy_file(kFolder + "mlp.json", folder.file("mlp.json"));
  std::string model = folder.read("mlp.json");
  const size_t units = model.find("\"units\": 5");
  REQUIRE(units != std::string::npos);
  folder.write("other.json", model.replace(units, 10, "\"units\": 7"));
  const Result result =
      meshtrain({"import", "other.json", "--weights", "w.weights.h5"}, folder.path());
  CHECK(result.exit_code == 6);
  CHECK_MESSAGE(contains(result.err, "the weights in `w.weights.h5` do not fit"), result.err);
  CHECK(contains(result.err, "model and weights must be of one network"));
  CHECK_FALSE(contains(result.err, "--partial"));
}

TEST_CASE("scripts and architectures are written without weights as well") {
  const ExampleFolder folder;
  const Result script = meshtrain({"export", "small.yaml", "-o", "m.py"}, folder.path());
  REQUIRE_MESSAGE(script.exit_code == 0, script.err);
  const std::string text = folder.read("m.py");
  CHECK(contains(text, "mesh = keras.distribution.DeviceMesh((2, 2,), [\"data\", \"model\"])"));
  CHECK(contains(text, "layout_map[\"sequential/d1/kernel\"] = (None, \"model\",)"));
  CHECK_FALSE(contains(text, "load_weights"));
  CHECK(meshtrain({"export", "small.yaml", "-o", "m.json"}, folder.path()).exit_code == 0);
  CHECK(contains(folder.read("m.json"), R"("class_name":"Sequential")"));
}

TEST_CASE("exports know nothing of pad_to, nor of a layout that needs it") {
  const TemporaryFolder folder;
  folder.write("c.yaml", R"(
distribution: {device_mesh: {shape: [1, 4], axis_names: [data, model]}, layout_map: {ids/embeddings: [model, null]}}
data: {train: {source: csv, path: t.csv, label: y, dtype: int32}}
model:
  layers:
    - Input: {shape: [2], dtype: int32}
    - Embedding: {name: ids, input_dim: 11, output_dim: 4, pad_to: 4}
    - Flatten
    - Dense: {name: out, units: 1}
compile: {loss: mse}
fit: {batch_size: 2}
)");
  folder.write("t.csv", "a,b,y\n0,10,1\n7,3,0\n");
  const auto run = [&](std::vector<std::string> words) {
    const Result result = meshtrain(std::move(words), folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  };
  run({"train", "c.yaml", "-o", "run", "-q"});
  for (const char* file : {"m.keras", "m.onnx", "m.json", "m.py", "m.npz"})
    run({"export", "run", "-o", file});
  run({"import", "m.keras", "-o", "in"});
  CHECK(!contains(folder.read("in/config.yaml"), "pad_to"));
  CHECK(folder.read("in/weights.safetensors").size() ==
        folder.read("run/weights.safetensors").size());
  const std::string script = folder.read("m.py");
  CHECK(contains(script,
                 "# ids/embeddings is split with `pad_to`, which Keras has not: it stays "
                 "whole.\n"));
  CHECK(!contains(script, "layout_map[\"ids/embeddings\"]"));
  CHECK(!contains(script, "pad_to="));
}

TEST_CASE("a script has one axis for DataParallel on a mesh of several") {
  const ExampleFolder folder;
  const Result script = meshtrain({"export", "small.yaml", "-o", "m.py",
                                   "distribution.type=DataParallel", "~distribution.layout_map"},
                                  folder.path());
  REQUIRE_MESSAGE(script.exit_code == 0, script.err);
  const std::string text = folder.read("m.py");
  CHECK(contains(text,
                 "# The config's mesh is 2x2; Keras' DataParallel takes one axis.\n"
                 "mesh = keras.distribution.DeviceMesh((4,), [\"data\"])\n"));
}

TEST_CASE("a run is exported as its config is: no default and no argument of ours is written") {
  const TemporaryFolder folder;
  folder.write("m.yaml", R"(
data: {train: {source: random, samples: 16, shape: [6, 4], labels: [1], seed: 1}}
model:
  layers:
    - Input: {name: x, shape: [6, 4]}
    - MultiHeadAttention: {name: heads, num_heads: 2, key_dim: 2, inputs: {query: x, value: x}}
    - SpatialDropout1D: 0.1
    - GlobalAveragePooling1D
    - Dense: 1
compile:
  optimizer: {SGD: {learning_rate: {PiecewiseConstantDecay: {boundaries: 5, values: [0.1, 0.01]}}, momentum: 0}}
  loss: mse
fit: {batch_size: 8, epochs: 1}
)");
  REQUIRE(meshtrain({"train", "m.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  for (const auto& [from, to] : {std::pair("m.yaml", "config.json"), {"run", "run.json"}}) {
    const Result written = meshtrain({"export", from, "-o", to}, folder.path());
    REQUIRE_MESSAGE(written.exit_code == 0, written.err);
  }
  CHECK(folder.read("run.json") == folder.read("config.json"));
  CHECK_FALSE(contains(folder.read("run.json"), "rotary"));
  for (const char* file : {"rotary.json", "rotary.py"}) {
    const Result rotary =
        meshtrain({"export", "run", "-o", file, "model.layers.heads.rotary={RotaryEmbedding: {}}"},
                  folder.path());
    CHECK(rotary.exit_code == 6);
    CHECK(
        contains(rotary.err, "error[E417]: layer `heads`: `rotary` cannot be expressed in Keras"));
  }
  CHECK(contains(folder.read("run.json"), R"("boundaries":[5])"));
  folder.write("plain.yaml", R"(
data: {train: {source: random, samples: 16, shape: [4], labels: [1], seed: 1}}
model: {layers: [{Input: {shape: [4]}}, {Dense: 1}]}
compile: {optimizer: {SGD: {momentum: 0}}, loss: mse}
fit: {epochs: 1}
)");
  CHECK(meshtrain({"export", "plain.yaml", "-o", "plain.py"}, folder.path()).exit_code == 0);
  CHECK_FALSE(contains(folder.read("plain.py"), "momentum=0,"));
  CHECK_FALSE(contains(folder.read("plain.py"), "momentum=0)"));
}

TEST_CASE("folders of Hugging Face come in and go out") {
  const std::string golden = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/huggingface/";
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& words) {
    return meshtrain(words, folder.path());
  };
  const Result imported = run({"import", golden + "llama31", "-o", "in"});
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  CHECK(imported.out == "in/config.yaml: LlamaForCausalLM, 21 weights in in/weights.safetensors\n");
  CHECK(imported.err.empty());
  CHECK(run({"summary", "in/config.yaml"}).exit_code == 0);
  // bfloat16 as in the file, in shards and whole.
  const Result shards =
      run({"export", "in/config.yaml", "--format", "hf", "--shard-size", "20 kB", "-o", "back"});
  REQUIRE_MESSAGE(shards.exit_code == 0, shards.err);
  CHECK(std::filesystem::exists(folder.file("back/model.safetensors.index.json")));
  CHECK(read_safetensors(folder.file("back/model-00001-of-00002.safetensors"))
            .tensors[0]
            .tensor.dtype() == DType::kBFloat16);
  CHECK(contains(folder.read("back/config.json"), "\"eos_token_id\": 2"));
  const Result again = run({"import", "back", "-o", "again", "-q"});
  REQUIRE_MESSAGE(again.exit_code == 0, again.err);
  CHECK(folder.read("again/weights.safetensors") == folder.read("in/weights.safetensors"));

  // Weights that are read are not replaced.
  const std::string shard = folder.read("back/model-00001-of-00002.safetensors");
  const Result same =
      run({"export", "in/config.yaml", "--weights", "back/model-00001-of-00002.safetensors",
           "--format", "hf", "-o", "back"});
  CHECK(same.exit_code == 2);
  CHECK_MESSAGE(contains(same.err,
                         "back/model-00001-of-00002.safetensors` would replace the "
                         "weights that are exported"),
                same.err);
  CHECK(folder.read("back/model-00001-of-00002.safetensors") == shard);

  // A folder is named as it is, with a slash or without, and nothing is written into it.
  std::filesystem::create_directories(folder.file("models"));
  std::filesystem::copy(golden + "gpt2_base", folder.file("models/base"));
  CHECK(contains(run({"import", "models/base/"}).out, "base/config.yaml: GPT2Model"));
  std::filesystem::rename(folder.file("models/base"), folder.file("own"));
  for (const char* model : {"own", "own/"}) {
    const Result inside = run({"import", model});
    CHECK(inside.exit_code == 2);
    CHECK_MESSAGE(contains(inside.err, "error[E141]: `own` is the model's own folder"), inside.err);
  }

  const Result base =
      run({"import", golden + "bert_masked", "--architecture", "BertModel", "-o", "headless"});
  CHECK_MESSAGE(base.exit_code == 0, base.err);
  CHECK(contains(base.out, "headless/config.yaml: BertModel, "));
  const Result keras =
      run({"import", kFolder + "mlp.keras", "--architecture", "BertModel", "-o", "keras"});
  CHECK(keras.exit_code == 2);
  CHECK(contains(keras.err, "leave --architecture out: Keras' files have one model"));

  const Result taken = run({"import", golden + "gpt2", "-o", "in"});
  CHECK(taken.exit_code == 2);
  CHECK(contains(taken.err, "`in/config.yaml` exists already"));
  CHECK(run({"import", golden + "gpt2", "-w", "w.h5"}).exit_code == 2);
  CHECK(run({"export", "in/config.yaml", "--format", "tf", "-o", "x"}).exit_code == 2);
  CHECK(run({"export", "in/config.yaml", "--format", "hf", "--shard-size", "few", "-o", "x"})
            .exit_code == 2);
  const Result missing = run({"import", "gpt2-medium"});
  CHECK(missing.exit_code == 2);
  CHECK(contains(missing.err, "there is no folder or file `gpt2-medium`"));
  CHECK(contains(missing.err, "nothing is downloaded"));
  folder.write("model.bin", "");
  const Result pickle = run({"import", "model.bin"});
  CHECK(pickle.exit_code == 6);
  CHECK(contains(pickle.err, "error[E415]"));
}

TEST_CASE("misuse of import and export has its exit codes") {
  const ExampleFolder folder;
  const auto code = [&](std::vector<std::string> args) {
    return meshtrain(std::move(args), folder.path()).exit_code;
  };
  const std::string model = kFolder + "mlp.keras";
  CHECK(code({"import"}) == 2);
  CHECK(code({"import", "small.yaml"}) == 2);
  CHECK(code({"import", kFolder + "mlp.weights.h5"}) == 2);
  CHECK(code({"import", "none.keras"}) == 6);
  CHECK(code({"import", model, "-o", "in"}) == 0);
  const Result twice = meshtrain({"import", model, "-o", "in"}, folder.path());
  CHECK(twice.exit_code == 2);
  CHECK(contains(twice.err, "error[E141]"));
  CHECK(code({"import", model, "-o", "small.yaml"}) == 2);
  CHECK(code({"import", model, "-o", "/proc/none"}) == 74);
  CHECK(code({"export", "in/config.yaml", "-o", "model.pt"}) == 2);
  CHECK(code({"export", "in/config.yaml"}) == 2);
  CHECK(code({"export", "small.yaml", "-o", "model.keras"}) == 2);
  CHECK(code({"export", "in/config.yaml", "-o", "none/model.keras"}) == 74);
  CHECK(code({"export", "in/config.yaml", "-o", "none/model.weights.h5"}) == 74);
  CHECK(code({"export", "in/config.yaml", "-w", "none.safetensors", "-o", "m.keras"}) == 6);
  std::string text = folder.read("in/weights.safetensors");
  folder.write("cut.safetensors", text.substr(0, text.size() - 4));
  CHECK(code({"export", "in/config.yaml", "-w", "cut.safetensors", "-o", "m.keras"}) == 6);
  CHECK_FALSE(std::filesystem::exists(folder.file("m.keras")));
  CHECK(code({"export", "in/config.yaml", "-o", "own.weights.h5"}) == 0);
  CHECK(code({"export", "in/config.yaml", "-w", "own.weights.h5", "-o", "own.weights.h5"}) == 2);
  CHECK(code({"export", "in/config.yaml", "-w", "own.weights.h5", "-o", "own.py"}) == 2);
  CHECK(code({"export", "in/config.yaml", "-o", "own.weights.h5"}) == 0);  // an export before
}

}  // namespace
}  // namespace meshtrain
