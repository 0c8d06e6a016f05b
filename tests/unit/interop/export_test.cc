// Configs as Keras' JSON and as Keras scripts.
#include <doctest/doctest.h>

#include <set>

#include "base/json.h"
#include "interop/keras/export_json.h"
#include "interop/keras/export_python.h"
#include "keras_files.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::Built;
using test::caught;
using Json = nlohmann::json;

TEST_CASE("what was imported and is exported imports as the same config") {
  for (const std::string& name : test::keras_models()) {
    CAPTURE(name);
    const KerasArchive archive = read_keras_archive(test::keras_file(name + ".keras"));
    const Built first(test::import_text(archive.config).yaml);
    const std::string json = keras_json(first.config, *first.model);
    const std::string yaml = test::import_text(json).yaml;
    const Built second(yaml);
    CHECK(test::import_text(keras_json(second.config, *second.model)).yaml == yaml);
    CHECK(keras_json(second.config, *second.model) == json);
    REQUIRE(first.model->weights().size() == second.model->weights().size());
    std::vector<std::string> paths, again;
    for (size_t i = 0; i < first.model->weights().size(); ++i) {
      paths.push_back(first.model->weights()[i]->path);
      again.push_back(second.model->weights()[i]->path);
    }
    std::sort(paths.begin(), paths.end());
    std::sort(again.begin(), again.end());
    CHECK(paths == again);
  }
}

constexpr const char* kTwoOutputs = R"(
model:
  name: pair
  layers:
    - Input: {name: a, shape: [4]}
    - Dense: {name: d1, units: 3, activation: {relu: {max_value: 6}}, kernel_regularizer: l2}
    - Call: {name: again, layer: d0, inputs: d1}
    - Add: {name: sum, inputs: [d1, again]}
    - Dense: {name: far, units: 1, inputs: d1}
  outputs: {near: sum, far_out: far}
compile:
  optimizer:
    SGD: {learning_rate: 0.5, momentum: 0.9}
  loss: {near: mse, far_out: {Huber: {delta: 2}}}
  loss_weights: {near: 1, far_out: 0.25}
  metrics: {near: [mae]}
)";

std::string two_outputs() {
  std::string yaml = kTwoOutputs;
  yaml.replace(yaml.find("    - Dense: {name: d1"), 0, "    - Dense: {name: d0, units: 4}\n");
  yaml.replace(yaml.find("units: 3"), 8, "units: 4");
  return yaml;
}

TEST_CASE("the JSON has Keras' fields") {
  const Built built(two_outputs());
  const Json json = parse_json(keras_json(built.config, *built.model));
  CHECK(json.at("class_name") == "Functional");
  CHECK(json.at("registered_name") == "Functional");
  const Json& config = json.at("config");
  CHECK(config.at("name") == "pair");
  CHECK(config.at("input_layers") == Json::array({"a", 0, 0}));
  CHECK(config.at("output_layers") == Json{{"near", {"sum", 0, 0}}, {"far_out", {"far", 0, 0}}});
  std::map<std::string, Json> layers;
  for (const Json& layer : config.at("layers")) {
    layers[layer.at("name")] = layer;
    CHECK(layer.at("config").at("name") == layer.at("name"));
  }
  REQUIRE(layers.size() == 5);
  CHECK(layers["a"].at("config").at("batch_shape") == Json::array({nullptr, 4}));
  CHECK(layers["d0"].at("inbound_nodes").size() == 2);
  CHECK(layers["sum"].at("inbound_nodes")[0].at("args")[0][1].at("config").at("keras_history") ==
        Json::array({"d0", 1, 0}));
  CHECK(layers["d1"].at("config").at("activation").at("class_name") == "ReLU");
  CHECK(layers["d1"].at("config").at("kernel_regularizer").at("class_name") == "L2");
  CHECK(layers["d1"].at("config").at("dtype").at("config").at("name") == "float32");
  const Json& compile = json.at("compile_config");
  CHECK(compile.at("optimizer").at("config").at("momentum") == 0.9);
  CHECK(compile.at("loss").at("near") == "mse");
  CHECK(compile.at("loss").at("far_out").at("config").at("delta") == 2);
  CHECK(compile.at("loss_weights") == Json{{"near", 1.0}, {"far_out", 0.25}});
  CHECK(compile.at("metrics") == Json{{"near", {"mae"}}});
}

// Keras has a class for the map, and paths of a Sequential begin with its name.
TEST_CASE("several optimizers keep their weights") {
  const Built built(R"(
model:
  name: chain
  layers:
    - Input: {name: a, shape: [4]}
    - Dense: {name: d1, units: 3}
    - Dense: {name: d2, units: 3}
compile:
  loss: mse
  optimizer:
    MultiOptimizer:
      default_optimizer: {AdamW: {exclude_from_weight_decay: [bias]}}
      optimizer_map: {"d1/.*": {SGD: {momentum: 0.9}}, d2/bias|d2/scale: Lion}
)");
  const std::string text = keras_json(built.config, *built.model);
  const Json map =
      parse_json(text).at("compile_config").at("optimizer").at("config").at("optimizer_map");
  CHECK(map.at("class_name") == "OptimizerMap");
  CHECK(map.at("config").at("default_optimizer").at("class_name") == "AdamW");
  const Json& members = map.at("config").at("optimizer_map");
  CHECK(members.at("chain/d1/.*").at("config").at("momentum") == 0.9);
  CHECK(members.at("chain/(?:d2/bias|d2/scale)").at("class_name") == "Lion");
  const Built again(test::import_text(text).yaml);
  const ConfigObject& optimizer = again.config.compile.optimizer;
  CHECK(optimizer.arg("default_optimizer").object().class_name == "AdamW");
  const ConfigValue::Dict& dict = optimizer.arg("optimizer_map").dict();  // sorted by the JSON
  REQUIRE(dict.size() == 2);
  CHECK(dict[0].first == "(?:d2/bias|d2/scale)");
  CHECK(dict[1].first == "d1/.*");
  CHECK(dict[1].second.object().number("momentum") == 0.9);
  const std::string script = keras_script(built.config, *built.model, {}, "c.yaml", "");
  CHECK(script.find("keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap("
                    "keras.optimizers.AdamW(), {\"chain/d1/.*\": ") != std::string::npos);
  CHECK(script.find("optimizer.optimizers[2].exclude_from_weight_decay(var_names=[\"bias\"])") !=
        std::string::npos);
}

TEST_CASE("spatial dropout has the arguments of Keras' constructor") {
  const Built built(
      "model:\n  layers:\n    - Input: {shape: [4, 2]}\n"
      "    - SpatialDropout1D: {name: d, rate: 0.5, seed: 3}\n");
  const Json config = parse_json(keras_json(built.config, *built.model)).at("config");
  const Json& dropout = config.at("layers")[1].at("config");
  std::set<std::string> names;
  for (const auto& [name, value] : dropout.items()) {
    names.insert(name);
  }
  CHECK(names == std::set<std::string>{"dtype", "name", "rate", "seed"});
}

TEST_CASE("bins have the arguments of Keras' constructor; those of the data are refused") {
  const auto config_with = [](const char* argument) {
    const Built built(
        std::string(
            "model:\n  layers:\n    - Input: {shape: [1]}\n    - Discretization: {name: d, ") +
        argument + "}\n");
    return parse_json(keras_json(built.config, *built.model)).at("config").at("layers")[1];
  };
  const Json layer = config_with("bin_boundaries: [1.5, 2]");
  std::set<std::string> names;
  for (const auto& [name, value] : layer.at("config").items()) {
    names.insert(name);
  }
  CHECK(names ==
        std::set<std::string>{"bin_boundaries", "dtype", "epsilon", "name", "output_mode"});
  CHECK_THROWS_AS(config_with("num_bins: 3"), ConfigError);
}

TEST_CASE("a script names the arguments that Keras' constructors require") {
  const Built built(
      "model:\n  layers:\n    - Input: {shape: [8, 8, 3]}\n    - AveragePooling2D\n    - "
      "MaxPooling2D\n");
  const std::string script = keras_script(built.config, *built.model, {}, "pools.yaml", "");
  CHECK(script.find("AveragePooling2D(pool_size=2, name=") != std::string::npos);
  CHECK(script.find("MaxPooling2D(name=") != std::string::npos);
}

TEST_CASE("only blocks of Keras Hub have a name for the gelu of tanh") {
  const auto built = [](const std::string& layer) {
    return Built("model:\n  layers:\n    - Input: {shape: [4, 8]}\n    - " + layer + "\n");
  };
  const std::string gelu = "activation: {gelu: {approximate: true}}}";
  const Built block = built("TransformerEncoder: {intermediate_dim: 8, num_heads: 2, " + gelu);
  const Json layers = parse_json(keras_json(block.config, *block.model)).at("config").at("layers");
  CHECK(layers[1].at("config").at("activation").at("config") == "keras_hub>gelu_approximate");
  const Built dense = built("Dense: {units: 2, " + gelu);
  CHECK(caught([&] { keras_json(dense.config, *dense.model); }).code == "E417");
}

TEST_CASE("a script calls attention, and layers of Keras Hub, as they are called") {
  const Built built(
      "model:\n  layers:\n    - Input: {name: x, shape: [4, 8]}\n"
      "    - MultiHeadAttention: {name: mha, num_heads: 2, key_dim: 3}\n"
      "    - Attention: {name: scores, inputs: {query: mha, value: x, key: mha}, "
      "call: {use_causal_mask: true}}\n"
      "    - TransformerDecoder: {name: block, intermediate_dim: 8, num_heads: 2}\n"
      "    - LayerScale: {name: last, init_values: 0.1, projection_dim: 8}\n"
      "compile: {metrics: [{IoU: {num_classes: 3, target_class_ids: 1}}]}\n");
  const std::string script = keras_script(built.config, *built.model, {}, "calls.yaml", "");
  CAPTURE(script);
  CHECK(script.find("name=\"mha\")(x, x)\n") != std::string::npos);
  CHECK(script.find("name=\"scores\")([mha, x, mha], use_causal_mask=True)\n") !=
        std::string::npos);
  CHECK(script.find("keras_hub.layers.TransformerDecoder(") != std::string::npos);
  CHECK(script.find("import keras\nimport keras.src.applications.convnext\nimport keras_hub\n") !=
        std::string::npos);
  CHECK(script.find("target_class_ids=[1]") != std::string::npos);
}

TEST_CASE("a chain with attention is no Sequential: Keras' takes two tensors") {
  const auto class_of = [](const std::string& layer) {
    const Built built("model:\n  layers:\n    - Input: {shape: [4, 8]}\n    - " + layer + "\n");
    return parse_json(keras_json(built.config, *built.model)).at("class_name");
  };
  CHECK(class_of("MultiHeadAttention: {num_heads: 2, key_dim: 3}") == "Functional");
  CHECK(class_of("TransformerDecoder: {intermediate_dim: 8, num_heads: 2}") == "Sequential");
  CHECK(class_of("Dense: 3") == "Sequential");
}

TEST_CASE("an output without a loss has None for one") {
  const Built built(
      "model:\n  layers:\n    - Input: {shape: [4]}\n    - Dense: {name: h, units: 3}\n"
      "    - Dense: {name: o, units: 2}\n  outputs: [o, h]\n"
      "compile:\n  loss: {o: mse}\n  metrics: {o: [mae]}\n");
  const Json compile = parse_json(keras_json(built.config, *built.model)).at("compile_config");
  CHECK(compile.at("loss").dump() == R"({"h":null,"o":"mse"})");
  CHECK(compile.at("metrics").dump() == R"({"o":["mae"]})");
  const std::string script = keras_script(built.config, *built.model, {}, "two.yaml", "");
  CHECK(script.find("loss={\"o\": \"mse\", \"h\": None}") != std::string::npos);
}

TEST_CASE("policies are Keras' of those names") {
  const Built built(
      "dtype_policy: mixed_bfloat16\nmodel:\n  layers:\n    - Input: {shape: [4]}\n"
      "    - Dense: {name: d, units: 3}\n    - Dense: {name: e, units: 2, dtype: float32}\n");
  const Json config = parse_json(keras_json(built.config, *built.model)).at("config");
  CHECK(config.at("dtype").at("config").at("name") == "mixed_bfloat16");
  const Json& layers = config.at("layers");
  CHECK(layers[0].at("config").at("dtype") == "float32");
  CHECK(layers[1].at("config").at("dtype").at("config").at("name") == "mixed_bfloat16");
  CHECK(layers[2].at("config").at("dtype").at("config").at("name") == "float32");
  const std::string script =
      keras_script(built.config, *built.model, KerasDistribution(), "m.yaml", "m.weights.h5");
  CHECK(script.find("keras.config.set_dtype_policy(\"mixed_bfloat16\")") != std::string::npos);
  CHECK(script.find("dtype=\"float32\", name=\"e\"") != std::string::npos);
}

TEST_CASE("the metadata name a version and a time") {
  CHECK(keras_metadata(86400) ==
        R"({"keras_version":"3.15.1","date_saved":"1970-01-02@00:00:00"})");
}

TEST_CASE("the script builds the model with Keras' distribution API") {
  const Built built(two_outputs());
  KerasDistribution distribution;
  distribution.mesh_shape = {2, 4};
  distribution.axis_names = {"data", "model"};
  distribution.batch_axis = "data";
  distribution.layouts = {{"d1/kernel", {"", "model"}, "d.*/kernel"}};
  Config config = built.config;
  config.distribution.type.value = DistributionType::kModelParallel;
  const std::string script =
      keras_script(config, *built.model, distribution, "pair.yaml", "pair.weights.h5");
  for (const char* line :
       {"mesh = keras.distribution.DeviceMesh((2, 4,), [\"data\", \"model\"])\n",
        "layout_map[\"d1/kernel\"] = (None, \"model\",)  # d.*/kernel\n",
        "    a = keras.Input(shape=(4,), dtype=\"float32\", name=\"a\")\n",
        "    d0_layer = keras.layers.Dense(units=4, name=\"d0\")\n",
        "    d1 = keras.layers.Dense(units=4, activation=lambda x: keras.activations.relu(x, "
        "max_value=6.0), kernel_regularizer=keras.regularizers.L2(), name=\"d1\")(d0)\n",
        "    again = d0_layer(d1)\n", "keras.layers.Add(name=\"sum\")([d1, again])\n",
        "    return keras.Model(a, {\"near\": sum, \"far_out\": far}, name=\"pair\")\n",
        "optimizer = keras.optimizers.SGD(learning_rate=0.5, momentum=0.9)\n",
        "    loss={\"near\": \"mse\", \"far_out\": keras.losses.Huber(delta=2.0)},\n",
        "\"pair.weights.h5\"))\n"}) {
    CAPTURE(line);
    CHECK(script.find(line) != std::string::npos);
  }
}

TEST_CASE(
    "the words accuracy and crossentropy are words of Keras too, where they have no arguments") {
  const auto built = [](const std::string& compile) {
    return Built(
        "model:\n  layers:\n    - Input: {shape: [4]}\n    - Dense: {units: 2}\ncompile: " +
        compile + "\n");
  };
  const Built words = built("{loss: ce, metrics: [acc: {name: null}, Accuracy, Accuracy: {}]}");
  const Json compile = parse_json(keras_json(words.config, *words.model)).at("compile_config");
  CHECK(compile.at("loss") == "ce");
  CHECK(compile.at("metrics")[0] == "acc");
  CHECK(compile.at("metrics")[1] == "Accuracy");
  CHECK(compile.at("metrics")[2].at("class_name") == "Accuracy");
  for (const char* refused : {"{loss: mse, metrics: [ce]}", "{metrics: [acc: {name: right}]}"}) {
    const Built metric = built(refused);
    CHECK(caught([&] { keras_json(metric.config, *metric.model); }).code == "E417");
  }
}

TEST_CASE("a recurrent layer uses its mask as Keras' does, or is refused") {
  const auto code = [](const std::string& layer) {
    const Built built(
        "model:\n  layers:\n    - Input: {name: s, shape: [2]}\n"
        "    - Input: {name: ids, shape: [4], dtype: int32}\n"
        "    - Embedding: {name: e, input_dim: 5, output_dim: 3, mask_zero: true}\n    - " +
        layer + "\n  outputs: [r, s]\n");
    return caught([&] { keras_json(built.config, *built.model); }).code;
  };
  CHECK(code("GRU: {name: r, units: 2}") == "");
  CHECK(code("GRU: {name: r, units: 2, inputs: [e, s], call: {use_mask: false}}") == "");
  CHECK(code("GRU: {name: r, units: 2, inputs: [e, s]}") == "E417");
  CHECK(code("GRU: {name: r, units: 2, call: {use_mask: false}}") == "E417");
}

TEST_CASE("a model that joins masks leaves Keras the names of the operations that do so") {
  const auto name = [](const std::string& layers) {
    const Built built("model:\n  layers:\n    - Input: {name: ids, shape: [4], dtype: int32}\n" +
                      layers);
    const Json config = parse_json(keras_json(built.config, *built.model)).at("config");
    return config.at("layers")[2].at("config").at("name");
  };
  const std::string joined = "    - Concatenate: {inputs: [e, e]}\n";
  CHECK(name("    - Embedding: {name: e, input_dim: 5, output_dim: 3, mask_zero: true}\n" +
             joined) == "concatenation");
  CHECK(name("    - Embedding: {name: e, input_dim: 5, output_dim: 3}\n" + joined) ==
        "concatenate");
}

TEST_CASE("what Keras cannot say is refused") {
  const Built built(R"(
model:
  layers:
    - Input: {shape: [4]}
    - Dense: {name: d, units: 2, activation: {gelu: {approximate: true}}}
)");
  const test::Caught error = caught([&] { keras_json(built.config, *built.model); });
  CHECK(error.code == "E417");
  CHECK(error.exit_code == 6);
  CHECK(error.says("layer `d`: the activation `gelu` with arguments"));
  CHECK(error.says("a layer of its own can: `Lambda: =gelu(x, approximate=True)`"));
}

}  // namespace
}  // namespace meshtrain
