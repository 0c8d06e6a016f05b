// Keras' JSON as configs.
#include "interop/keras/import.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "keras_files.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::caught;
using test::import_text;

// A layer as Keras 3 writes it.
std::string layer(const std::string& class_name, const std::string& config) {
  return R"({"module": "keras.layers", "class_name": ")" + class_name + R"(", "config": {)" +
         config + R"(}, "registered_name": null})";
}

std::string sequential(const std::string& layers, const std::string& more = "") {
  return R"({"class_name": "Sequential", "config": {"name": "m", "layers": [)" +
         layer("InputLayer", R"("name": "x", "batch_shape": [null, 4], "dtype": "float32")") +
         ", " + layers + "]}" + more + "}";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What follows `model:` and the model's name.
std::string body(const std::string& json) {
  const std::string yaml = import_text(json).yaml;
  const size_t layers = yaml.find("  layers:\n");
  REQUIRE(layers != std::string::npos);
  return yaml.substr(layers + 10);
}

TEST_CASE("a Keras model becomes a config in short hand") {
  const std::string file = test::keras_file("mlp.keras");
  const KerasArchive archive = read_keras_archive(file);
  ImportOptions options{"mlp.keras", archive.version, "weights.safetensors"};
  CHECK(import_keras(archive.config, options).yaml ==
        R"(# mlp of mlp.keras (Keras 3.15.1), imported by meshtrain.
# To train it, say where the samples come from: data: {train: {source: npz, path: train.npz}}

name: mlp

model:
  name: mlp
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 5, activation: relu, kernel_initializer: he_normal, kernel_regularizer: l2}
    - Dropout: {rate: 0.4}
    - Dense: {units: 4, activation: {leaky_relu: {negative_slope: 0.1}}, use_bias: false}
    - Dense: {units: 3, activation: softmax, kernel_constraint: {MaxNorm: {max_value: 3}}}

compile:
  optimizer:
    Adam: {clipnorm: 1, learning_rate: {CosineDecay: {decay_steps: 100, initial_learning_rate: 0.01}}}
  loss: sparse_categorical_crossentropy
  metrics: [accuracy]

fit:
  initial_weights: weights.safetensors
)");
}

TEST_CASE("whole learning rates stay floats, and metrics keep the names that Keras logs") {
  const std::string json = R"({"class_name": "Sequential", "config": {"name": "s", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 4], "name": "x"}},
      {"class_name": "Dense", "config": {"name": "d", "units": 1}}]},
      "compile_config": {"optimizer": {"class_name": "Adadelta", "config": {"learning_rate": 1.0}},
      "loss": "mse", "metrics": ["AUC", "mae", {"class_name": "MeanSquaredError",
      "config": {"name": "mean_squared_error"}}]}})";
  const ImportedModel imported = import_text(json);
  CAPTURE(imported.yaml);
  CHECK(imported.dropped.empty());
  CHECK(imported.yaml.find("Adadelta: {learning_rate: 1.0}") != std::string::npos);
  CHECK(imported.yaml.find("AUC: {name: AUC}") != std::string::npos);
  CHECK(imported.yaml.find("name: mean_squared_error") == std::string::npos);
  CHECK_NOTHROW(test::Built(imported.yaml));
}

TEST_CASE("one metric that is not here leaves the others") {
  const std::string json = R"({"class_name": "Sequential", "config": {"name": "s", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 4], "name": "x"}},
      {"class_name": "Dense", "config": {"name": "d", "units": 1}}]},
      "compile_config": {"loss": "mse", "metrics": ["mae", {"class_name": "function",
      "config": "own", "registered_name": "mine>own"}, "cosine_similarity"]}})";
  const ImportedModel imported = import_text(json);
  CHECK(contains(imported.yaml, "metrics: [mae, cosine_similarity]"));
  REQUIRE(imported.dropped.size() == 1);
  CHECK(contains(imported.dropped[0], "own"));
}

TEST_CASE("every model that Keras wrote is a config that loads") {
  for (const std::string& name : test::keras_models()) {
    CAPTURE(name);
    const KerasArchive archive = read_keras_archive(test::keras_file(name + ".keras"));
    const ImportedModel imported = import_text(archive.config);
    CAPTURE(imported.yaml);
    CHECK(imported.dropped.empty());
    CHECK_NOTHROW(test::Built(imported.yaml));
  }
}

TEST_CASE("nested models are dissolved and layers keep names that are unique") {
  const KerasArchive archive = read_keras_archive(test::keras_file("nested.keras"));
  const ImportedModel imported = import_text(archive.config);
  CHECK(imported.yaml.find("- Dense: {name: head, units: 4, inputs: a}") != std::string::npos);
  CHECK(imported.yaml.find("- Call: {layer: head,") != std::string::npos);
  CHECK(imported.yaml.find("- Dense: {name: head_1, units: 4}") != std::string::npos);
  CHECK(imported.yaml.find("- Lambda: {name: subtract, function: \"=1.0 - x\"}") !=
        std::string::npos);
  CHECK(imported.yaml.find("- Activation: {name: relu, activation: relu}") != std::string::npos);
  bool found = false;
  for (const KerasGroup& group : imported.groups) {
    found = found || (group.layer == "head_1" && group.group == "layers/sequential/layers/dense_1");
  }
  CHECK(found);
}

TEST_CASE("arguments that are defaults or mean nothing here are not written") {
  CHECK(body(sequential(layer("Dense", R"("name": "dense", "trainable": true, "units": 2,
      "activation": "linear", "use_bias": true, "lora_rank": null, "quantization_config": null,
      "kernel_initializer": {"class_name": "GlorotUniform", "config": {"seed": null}},
      "bias_initializer": {"class_name": "Zeros", "config": {}}, "kernel_regularizer": null)"))) ==
        "    - Input: {name: x, shape: [4]}\n    - Dense: {units: 2}\n");
  CHECK(
      body(sequential(layer("Dense", R"("name": "dense_7", "trainable": false, "units": 2,
      "kernel_initializer": {"class_name": "RandomNormal",
        "config": {"mean": 0.0, "stddev": 0.10000000149011612, "seed": 3}},
      "activity_regularizer": {"class_name": "L1", "config": {"l1": 0.5}})"))) ==
      "    - Input: {name: x, shape: [4]}\n"
      "    - Dense: {name: dense_7, units: 2, kernel_initializer: {RandomNormal: {seed: 3, stddev: "
      "0.1}}, trainable: false, activity_regularizer: {L1: {l1: 0.5}}}\n");
}

TEST_CASE("a layer within another one keeps what it is trained and computed with") {
  const std::string inner = R"({"class_name": "Dense", "module": "keras.layers",
      "registered_name": null, "config": {"name": "dense", "units": 2, "trainable": false,
        "dtype": {"class_name": "DTypePolicy", "config": {"name": "float16"}}}})";
  CHECK(
      body(sequential(layer("TimeDistributed", R"("name": "td", "trainable": true,
      "dtype": {"class_name": "DTypePolicy", "config": {"name": "float32"}}, "layer": )" +
                                                   inner))) ==
      "    - Input: {name: x, shape: [4]}\n"
      "    - TimeDistributed: {name: td, layer: {Dense: {dtype: float16, trainable: false, units: "
      "2}}}\n");
}

TEST_CASE("equal penalties of both directions are that of a Bidirectional that joins them") {
  const auto both = [](const std::string& merge_mode, const std::string& backward_l2) {
    const auto lstm = [](const std::string& name, const std::string& l2) {
      return R"({"class_name": "LSTM", "config": {"units": 2, "name": ")" + name +
             R"(", "activity_regularizer": {"class_name": "L2", "config": {"l2": )" + l2 +
             R"(}, "shared_object_id": )" + std::to_string(name.size()) + "}}}";
    };
    return sequential(layer("Reshape", R"("name": "r", "target_shape": [2, 2])") + ", " +
                      layer("Bidirectional", R"("name": "both", "merge_mode": )" + merge_mode +
                                                 R"(, "layer": )" + lstm("forward_lstm", "0.5") +
                                                 R"(, "backward_layer": )" +
                                                 lstm("backward_lstm", backward_l2)));
  };
  for (const char* merge_mode : {R"("concat")", "null"}) {
    const std::string joined = body(both(merge_mode, "0.5"));
    CHECK_MESSAGE(joined.find("activity_regularizer: {L2: {l2: 0.5}}}\n") != std::string::npos,
                  joined);
    CHECK(joined.find("activity_regularizer") == joined.rfind("activity_regularizer"));
  }
  for (const std::string& other : {both(R"("sum")", "0.5"), both(R"("concat")", "0.25")}) {
    const test::Caught error = caught([&] { import_text(other); });
    CHECK(error.code == "E416");
    CHECK(
        error.says("layer `both` (Bidirectional): meshtrain does not support "
                   "`activity_regularizer` inside Bidirectional; give it to the Bidirectional "
                   "itself"));
  }
}

TEST_CASE("a policy that most layers have becomes the config's") {
  const std::string yaml =
      import_text(sequential(layer("Dense", R"("name": "a", "units": 2, "dtype": "float64")") +
                             ", " +
                             layer("Dense", R"("name": "b", "units": 2, "dtype": {"class_name":
                          "DTypePolicy", "config": {"name": "float64"}})") +
                             ", " + layer("Flatten", R"("name": "c", "dtype": "float32")")))
          .yaml;
  CHECK(yaml.find("dtype_policy: float64\n") != std::string::npos);
  CHECK(yaml.find("- Input: {name: x, shape: [4], dtype: float32}") != std::string::npos);
  CHECK(yaml.find("- Dense: {name: a, units: 2}") != std::string::npos);
  CHECK(yaml.find("- Flatten: {name: c, dtype: float32}") != std::string::npos);
}

TEST_CASE("mixed policies and maps of policies are those of the layers") {
  const std::string map = R"({"class_name": "DTypePolicyMap", "config": {"default_policy":
      "mixed_float16", "policy_map": {"m/b.*": {"class_name": "DTypePolicy", "config":
      {"name": "mixed_bfloat16"}}, "m/c": {"class_name": "DTypePolicy", "config":
      {"name": "float32"}}}}})";
  std::string layers;
  for (const char* name : {"a", "b1", "b2", "c"}) {
    layers += (layers.empty() ? "" : ", ") +
              layer("Dense", R"("units": 2, "dtype": )" + map + R"(, "name": ")" + name + "\"");
  }
  const std::string yaml = import_text(sequential(layers)).yaml;
  CHECK(yaml.find("dtype_policy: mixed_bfloat16\n") != std::string::npos);
  CHECK(yaml.find("- Input: {name: x, shape: [4]}") != std::string::npos);
  CHECK(yaml.find("- Dense: {name: a, dtype: mixed_float16, units: 2}") != std::string::npos);
  CHECK(yaml.find("- Dense: {name: b1, units: 2}") != std::string::npos);
  CHECK(yaml.find("- Dense: {name: c, dtype: float32, units: 2}") != std::string::npos);
}

TEST_CASE("a Constant of an array is that of the weights, of one number this number") {
  const auto constant = [](const std::string& value) {
    return R"({"module": "keras.initializers", "class_name": "Constant", "config": {"value": )" +
           value + "}, \"registered_name\": null}";
  };
  const std::string array = R"({"class_name": "__numpy__", "config": {"value": )";
  const std::string json =
      sequential(layer("Dense", R"("name": "d", "units": 2, "kernel_initializer": )" +
                                    constant(array + "[[1, 2], [3, 4], [5, 6], [7, 8]]}}")) +
                 ", " +
                 layer("Dense", R"("name": "e", "units": 1, "bias_initializer": )" +
                                    constant(array + "[-1.5]}}")));
  const ImportedModel imported = import_keras(json, {"m.json", "", "weights.safetensors"});
  CHECK(contains(imported.yaml, "- Dense: {name: d, units: 2, kernel_initializer: zeros}\n"));
  CHECK(contains(imported.yaml,
                 "- Dense: {name: e, units: 1, bias_initializer: {Constant: {value: -1.5}}}\n"));
  CHECK(imported.dropped ==
        std::vector<std::string>{"layer `d` (Dense), `kernel_initializer`: a Constant of an array; "
                                 "the weights hold it"});
  CHECK(caught([&] {
          import_text(json);
        }).says("`kernel_initializer`: a Constant of an array, for which there must be weights"));
}

TEST_CASE("numbers have all their digits, and those of a float32 few") {
  CHECK(body(sequential(layer("Rescaling", R"("name": "r", "scale": 3291.890625, "offset": )"
                                           "0.0010000000474974513"))) ==
        "    - Input: {name: x, shape: [4]}\n"
        "    - Rescaling: {name: r, scale: 3291.890625, offset: 0.001}\n");
}

TEST_CASE("models of Keras 2 are read as well") {
  const std::string json = R"({"class_name": "Functional", "config": {"name": "old", "layers": [
    {"class_name": "InputLayer", "name": "a", "inbound_nodes": [],
     "config": {"batch_input_shape": [null, 3], "dtype": "float32", "sparse": false, "name": "a"}},
    {"class_name": "Dense", "name": "d", "inbound_nodes": [[["a", 0, 0, {}]]],
     "config": {"name": "d", "units": 3, "activation": "relu"}},
    {"class_name": "Add", "name": "sum", "inbound_nodes": [[["a", 0, 0, {}], ["d", 0, 0, {}]]],
     "config": {"name": "sum"}}],
    "input_layers": [["a", 0, 0]], "output_layers": [["sum", 0, 0]]},
    "keras_version": "2.4.0", "backend": "tensorflow"})";
  CHECK(body(json) ==
        "    - Input: {name: a, shape: [3]}\n    - Dense: {name: d, units: 3, activation: relu, "
        "inputs: a}\n"
        "    - Add: {name: sum, inputs: [a, d]}\n");
}

// A functional model of one layer on an image.
std::string functional(const std::string& class_name, const std::string& config,
                       const std::string& keywords) {
  return R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "name": "x", "inbound_nodes": [],
     "config": {"batch_shape": [null, 8, 8, 3], "dtype": "float32", "name": "x"}},
    {"class_name": ")" +
         class_name + R"(", "name": "it", "config": {"name": "it", )" + config +
         R"(}, "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
       "config": {"shape": [null, 8, 8, 3], "dtype": "float32", "keras_history": ["x", 0, 0]}}],
       "kwargs": )" +
         keywords + R"(}]}], "input_layers": [["x", 0, 0]], "output_layers": [["it", 0, 0]]}})";
}

TEST_CASE("the `training` that Keras writes beside a call changes nothing") {
  // Of augmentation it is always true.
  for (const char* training : {"true", "false", "null"}) {
    CHECK(body(functional("RandomFlip", R"("mode": "horizontal")",
                          std::string(R"({"training": )") + training + "}")) ==
          "    - Input: {name: x, shape: [8, 8, 3]}\n"
          "    - RandomFlip: {name: it, mode: horizontal, inputs: x}\n");
  }
  const test::Caught error =
      caught([] { import_text(functional("Flatten", R"("trainable": true)", R"({"mask": 1})")); });
  CHECK(error.says("layer `it` (Flatten) is called with `mask`"));
}

TEST_CASE("calls that give inputs by name, and lists of no masks, are calls like others") {
  const std::string tensor =
      R"({"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}})";
  std::string named =
      functional("Flatten", R"("trainable": true)", R"({"inputs": )" + tensor + "}");
  const size_t begin = named.find("\"args\": ["), end = named.find("],\n       \"kwargs\"");
  REQUIRE(end != std::string::npos);
  named.replace(begin, end + 1 - begin, "\"args\": []");
  for (const std::string& json :
       {named, functional("Flatten", R"("trainable": true)", R"({"mask": [null, [null]]})")}) {
    CHECK(contains(body(json), "- Flatten: {name: it, inputs: x}"));
  }
}

TEST_CASE("of an operation that gives a list each tensor that is read is a layer") {
  const auto tensor = [](const std::string& name, int part) {
    return R"({"class_name": "__keras_tensor__", "config": {"shape": [null, 2], "dtype": "float32",
               "keras_history": [")" +
           name + R"(", 0, )" + std::to_string(part) + "]}}";
  };
  const auto model = [&](const std::string& operation, const std::string& more, int part) {
    return R"({"class_name": "Functional", "config": {"name": "m", "layers": [)"
           R"({"class_name": "InputLayer", "name": "x", "inbound_nodes": [],
               "config": {"name": "x", "batch_shape": [null, 6], "dtype": "float32"}},
              {"module": "keras.src.ops.numpy", "class_name": ")" +
           operation + R"(", "name": "s", "config": {"name": "s", "axis": 1)" + more + R"(},
               "inbound_nodes": [{"args": [)" +
           tensor("x", 0) + R"(], "kwargs": {}}]},
              {"class_name": "Add", "name": "sum", "config": {"name": "sum"},
               "inbound_nodes": [{"args": [[)" +
           tensor("s", 0) + ", " + tensor("s", part) + R"(]], "kwargs": {}}]}],
            "input_layers": [["x", 0, 0]], "output_layers": [["sum", 0, 0]]}})";
  };
  CHECK(body(model("Split", R"(, "indices_or_sections": 3)", 2)) ==
        R"(    - Input: {name: x, shape: [6]}
    - Lambda: {name: s, function: "=split(x, indices_or_sections=3, axis=1)[0]", inputs: x}
    - Lambda: {name: s_2, function: "=split(x, indices_or_sections=3, axis=1)[2]", inputs: x}
    - Add: {name: sum, inputs: [s, s_2]}
)");
  CHECK(caught([&] { import_text(model("Flip", "", 1)); }).says("has no output 1"));
}

TEST_CASE("losses name outputs of nested models by the models") {
  const auto model = [](const std::string& name) {
    return R"({"class_name": "Sequential", "name": ")" + name + R"(", "config": {"name": ")" +
           name + R"(", "layers": [)" +
           layer("InputLayer",
                 R"("name": "in_)" + name + R"(", "batch_shape": [null, 4], "dtype": "float32")") +
           ", " + layer("Dense", R"("name": "d_)" + name + R"(", "units": 2)") +
           R"(]}, "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__", "config": )"
           R"({"keras_history": ["x", 0, 0]}}], "kwargs": {}}]})";
  };
  const std::string json =
      R"({"class_name": "Functional", "config": {"name": "m", "layers": [)"
      R"({"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 4], )"
      R"("dtype": "float32"}, "inbound_nodes": []}, )" +
      model("decoder") + ", " + model("judge") +
      R"(], "input_layers": [["x", 0, 0]], )"
      R"("output_layers": [["decoder", 0, 0], ["judge", 0, 0]]}, )"
      R"("compile_config": {"optimizer": "adam", "loss": {"decoder": "mse", "judge": "mae"}}})";
  const std::string yaml = import_text(json).yaml;
  CHECK(contains(yaml, "  outputs: [d_decoder, d_judge]\n"));
  CHECK(contains(yaml, "  loss: {d_decoder: mse, d_judge: mae}\n"));
}

TEST_CASE("an optimizer stays when only its schedule is the user's own") {
  const auto with = [](const std::string& optimizer) {
    return import_text(
        sequential(layer("Dense", R"("name": "d", "units": 2)"),
                   R"(, "compile_config": {"loss": "mse", "optimizer": )" + optimizer + "}"));
  };
  const ImportedModel own =
      with(R"({"class_name": "Adam", "config": {"beta_1": 0.8, "learning_rate": )"
           R"({"class_name": "WarmUp", "registered_name": "my>WarmUp", "config": {}}}})");
  CHECK(contains(own.yaml, "Adam: {beta_1: 0.8}"));
  REQUIRE(own.dropped.size() == 1);
  CHECK(contains(own.dropped[0], "default learning rate"));
  const ImportedModel none = with(R"({"class_name": "Mine", "config": {}})");
  CHECK(contains(none.dropped.at(0), "RMSprop"));
}

TEST_CASE("what only concerns training is left out with a comment") {
  const ImportedModel imported = import_text(
      sequential(layer("Dense", R"("name": "d", "units": 2)"),
                 R"(, "compile_config": {"optimizer": {"class_name": "MyOptimizer", "config": {}},
           "loss": "mse", "metrics": ["my_metric"]})"));
  REQUIRE(imported.dropped.size() == 2);
  CHECK(imported.yaml.find("# not taken over: compile: optimizer: optimizer `MyOptimizer`") !=
        std::string::npos);
  CHECK(imported.yaml.find("compile:\n  loss: mse\n") != std::string::npos);
  CHECK(imported.yaml.find("my_metric") != std::string::npos);
}

TEST_CASE("an empty list of layers is none, and a loss without reduction is left out") {
  const std::string settings = R"(, "compile_config": {
      "optimizer": {"class_name": "Muon", "config": {"learning_rate": 0.5, "exclude_layers": []}},
      "loss": {"class_name": "MeanSquaredError", "config": {"reduction": REDUCTION}}})";
  for (const std::string reduction : {"\"none\"", "null", "\"sum\""}) {
    std::string given = settings;
    given.replace(given.find("REDUCTION"), 9, reduction);
    const ImportedModel imported =
        import_text(sequential(layer("Dense", R"("name": "d", "units": 2)"), given));
    CAPTURE(imported.yaml);
    CHECK(imported.yaml.find("Muon: {learning_rate: 0.5}") != std::string::npos);
    const bool is_sum = reduction == "\"sum\"";
    CHECK(imported.dropped.size() == (is_sum ? 0 : 1));
    CHECK((imported.yaml.find("reduction: sum}") != std::string::npos) == is_sum);
  }
}

TEST_CASE("blocks of Keras Hub take masks by keyword, and its gelu") {
  const auto tensor = [](const std::string& of) {
    return R"({"class_name": "__keras_tensor__", "config": {"shape": [null, 6], "dtype": "int32",
               "keras_history": [")" +
           of + R"(", 0, 0]}})";
  };
  const auto input = [](const std::string& name, const std::string& more) {
    return R"({"class_name": "InputLayer", "name": ")" + name + R"(", "config": {"name": ")" +
           name + R"(", "batch_shape": [null, 6)" + more + R"(]}, "inbound_nodes": []})";
  };
  const std::string json = R"({"class_name": "Functional", "config": {"name": "m", "layers": [)" +
                           input("x", ", 8") + ", " + input("mask", "") + R"(,
      {"class_name": "TransformerDecoder", "name": "block",
       "registered_name": "keras_hub>TransformerDecoder",
       "config": {"name": "block", "intermediate_dim": 16, "num_heads": 2,
         "activation": {"module": "builtins", "class_name": "function",
                        "config": "keras_hub>gelu_approximate", "registered_name": "function"}},
       "inbound_nodes": [{"args": [)" +
                           tensor("x") + R"(], "kwargs": {"decoder_padding_mask": )" +
                           tensor("mask") + R"(}}]}],
      "input_layers": [["x", 0, 0], ["mask", 0, 0]], "output_layers": [["block", 0, 0]]}})";
  const std::string yaml = body(json);
  CAPTURE(yaml);
  CHECK(contains(yaml, "inputs: {decoder_sequence: x, decoder_padding_mask: mask}"));
  CHECK(contains(yaml, "activation: {gelu: {approximate: true}}"));
}

std::string steps_of(const std::string& name) {
  return R"({"class_name": "__keras_tensor__", "config": {"shape": [null, 3, 4],
             "keras_history": [")" +
         name + R"(", 0, 0]}})";
}

// An entry of a functional model. `of`: what it is called with, and perhaps `mask`; its `more`
// begins with a comma.
std::string entry(const std::string& class_name, const std::string& name, const std::string& more,
                  const std::string& of, const std::string& mask = "") {
  const std::string call = R"({"args": [)" + of + R"(], "kwargs": {)" +
                           (mask.empty() ? "" : R"("mask": )" + steps_of(mask)) + "}}";
  return R"("class_name": ")" + class_name + R"(", "name": ")" + name +
         R"(", "config": {"name": ")" + name + "\"" + more + R"(}, "inbound_nodes": [)" +
         (of.empty() ? "" : call) + "]}";
}

// Steps with a mask beside what `inner`, the layer `name`, makes of them. The mask of both that
// Keras writes is all true for the second.
std::string joined_to_masked(const std::string& inner, const std::string& name) {
  const std::string layer = R"({"module": "keras.layers", )";
  const std::string operation = R"({"module": "keras.src.ops.numpy", )";
  const std::string entries[] = {
      layer + entry("InputLayer", "x", R"(, "batch_shape": [null, 3, 4])", ""),
      operation + entry("NotEqual", "not_equal", "", steps_of("x") + ", 0.0"),
      layer + entry("Masking", "m", "", steps_of("x")),
      operation + entry("Any", "any", R"(, "axis": -1)", steps_of("not_equal")),
      layer + inner,
      operation + entry("OnesLike", "ones", "", steps_of(name)),
      operation + entry("Concatenate", "masks", R"(, "axis": 1)",
                        "[" + steps_of("any") + ", " + steps_of("ones") + "]"),
      layer + entry("Concatenate", "c", R"(, "axis": 1)",
                    "[" + steps_of("m") + ", " + steps_of(name) + "]"),
      layer + entry("LSTM", "l", R"(, "units": 2)", steps_of("c"), "masks")};
  return R"({"class_name": "Functional", "config": {"name": "f", "layers": [)" +
         join(entries, ", ") +
         R"(], "input_layers": [["x", 0, 0]], "output_layers": [["l", 0, 0]]}})";
}

TEST_CASE("a mask goes through a SpectralNormalization, where Keras' graph has none") {
  const std::string dropping = entry("Permute", "p", R"(, "dims": [1, 2])", steps_of("m"));
  CHECK(contains(body(joined_to_masked(dropping, "p")), "LSTM: {name: l"));
  const std::string passing =
      entry("SpectralNormalization", "sn",
            R"(, "layer": )" + layer("Dense", R"("name": "d", "units": 4)"), steps_of("m"));
  const auto error = caught([&] { import_text(joined_to_masked(passing, "sn")); });
  CHECK(error.says("layer `l` (LSTM) is called with a `mask` that is not the one of its input"));
}

TEST_CASE("what is not in meshtrain is refused by layer and argument") {
  struct Case {
    std::string layers, code, says;
  };
  const std::string good = layer("Dense", R"("name": "g", "units": 2)");
  for (const Case& c : std::vector<Case>{
           {layer("Lambda", R"("name": "f", "function": {"class_name": "__lambda__"})"), "E415",
            "layer `f` (Lambda) holds Python code"},
           {layer("HashedCrossing", R"("name": "r", "num_bins": 2)"), "E416",
            "layer `r` (HashedCrossing) is not in meshtrain"},
           {R"({"class_name": "Mine", "config": {"name": "own"}, "registered_name": "my>Mine"})",
            "E416", "layer `own` (Mine) is a class of your own"},
           {R"({"class_name": "Mine", "name": "own", "config": {"units": 2},
               "registered_name": "my>Mine"})",
            "E416", "layer `own` (Mine) is a class of your own"},
           {R"({"class_name": "UnitNormalization", "name": "own", "module": null,
               "registered_name": "UnitNormalization", "config": {"name": "own"}})",
            "E416", "layer `own` (UnitNormalization) is a class of your own"},
           {layer("Dense", R"("name": "d", "units": 2, "kernel_initializer":
               {"class_name": "Zeros", "module": "mine", "registered_name": "Zeros", "config": {}})"),
            "E416", "initializer `Zeros` is a class of your own"},
           {layer("Dense", R"("name": "a/b", "units": 2)"), "E416", "has a `/` in its name"},
           {layer("LSTMCell", R"("name": "c", "units": 2)"), "E416",
            "layer `c` (LSTMCell) is called by itself, for one step; here cells stand in an RNN"},
           {layer("Dense", R"("name": "d", "units": 2, "quantization_config": {"bits": 8})"),
            "E416", "layer `d` (Dense): `quantization_config"},
           {layer("Dense", R"("name": "d", "units": 2, "sparkle": true)"), "E416",
            "`sparkle: true`"},
           {layer("Dense", R"("name": "d", "units": 2.5)"), "E416", "`units`"},
           {layer("Dense", R"("name": "d", "units": 2, "activation": "wobble")"), "E416",
            "layer `d` (Dense), `activation`: activation `wobble`"},
           {layer("Dense", R"("name": "d", "units": 2, "kernel_initializer":
               {"class_name": "Mine", "config": {}})"),
            "E416", "initializer `Mine`"},
           {layer("Dense", R"("name": "d", "units": 2, "dtype": "int8_from_float32")"), "E416",
            "the dtype policy `int8_from_float32`"},
           {layer("TimeDistributed", R"("name": "td", "layer": {"class_name": "Functional",
               "config": {"name": "f", "input_layers": [["i", 0, 0]],
                 "output_layers": [["i", 0, 0], ["i", 0, 0]],
                 "layers": [{"class_name": "InputLayer", "config": {"name": "i"},
                             "inbound_nodes": []}]}})"),
            "E416", "layer `td` (TimeDistributed) holds a model with several outputs"}}) {
    CAPTURE(c.layers);
    const test::Caught error = caught([&] { import_text(sequential(good + ", " + c.layers)); });
    CAPTURE(error.text);
    CHECK(error.code == c.code);
    CHECK(error.exit_code == 6);
    CHECK(error.says(c.says));
    CHECK(error.says("model.json"));
  }
}

TEST_CASE("a TimeDistributed of a model with branches or masks works on merged steps") {
  const auto distributed = [](const std::string& model) {
    return body(sequential(layer("TimeDistributed", R"("name": "td", "layer": )" + model)));
  };
  const std::string branches = R"({"class_name": "Functional", "config": {"name": "f",
      "input_layers": [["i", 0, 0]], "output_layers": [["a", 0, 0]], "layers": [
        {"class_name": "InputLayer", "config": {"name": "i"}, "inbound_nodes": []},
        {"class_name": "Add", "config": {"name": "a"},
         "inbound_nodes": [[["i", 0, 0, {}], ["i", 0, 0, {}]]]}]}})";
  CHECK(distributed(branches) ==
        "    - Input: {name: x, shape: [4]}\n"
        "    - MergeSteps: {name: td_steps}\n"
        "    - Add: {name: a, inputs: [td_steps, td_steps]}\n"
        "    - SplitSteps: {name: td, inputs: [a, x]}\n");
  const std::string masks = R"({"class_name": "Sequential", "config": {"name": "s", "layers": [)" +
                            layer("Masking", R"("name": "m", "mask_value": 2.0)") + ", " +
                            layer("LSTM", R"("name": "l", "units": 3)") + "]}}";
  CHECK(distributed(masks) ==
        "    - Input: {name: x, shape: [4]}\n"
        "    - MergeSteps: {name: td_steps}\n"
        "    - Masking: {name: m, mask_value: 2}\n"
        "    - LSTM: {name: l, units: 3}\n"
        "    - SplitSteps: {name: td, inputs: [l, x]}\n");
}

TEST_CASE("layers that mix batches become identities, and the line for data.transform is said") {
  const ImportedModel imported = import_text(
      sequential(layer("MixUp", R"("name": "mix", "alpha": 0.3, "seed": 4)") + ", " +
                 layer("CutMix", R"("name": "cut", "factor": [0.5, 1.0], "dtype": "float64")")));
  CHECK(imported.yaml.find("- Identity: {name: mix}") != std::string::npos);
  CHECK(imported.yaml.find("- Identity: {name: cut") != std::string::npos);
  REQUIRE(imported.dropped.size() == 2);
  CHECK(imported.dropped[0].find("`data: {transform: [{MixUp: {alpha: 0.3}}]}`") !=
        std::string::npos);
  CHECK(imported.dropped[1].find("{CutMix: {factor: [0.5,1.0]}}") != std::string::npos);
}

TEST_CASE("all problems of a model are shown together") {
  try {
    import_text(sequential(layer("HashedCrossing", R"("name": "r", "num_bins": 2)") + ", " +
                           layer("TextVectorization", R"("name": "s", "ngrams": 1)")));
    FAIL("not refused");
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().num_errors() == 2);
  }
}

}  // namespace
}  // namespace meshtrain
