// Blocks and Repeat: the layers that they stand for.
#include <fmt/format.h>

#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

constexpr const char* kRest =
    "compile: {loss: mse}\n"
    "data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}\n";

Config load_model(const std::string& top, const std::string& layers,
                  std::vector<std::string> overrides = {}) {
  return load_text(top + "model:\n  layers:\n    - Input: {name: x, shape: [4]}\n" + layers + kRest,
                   std::move(overrides));
}

// "stage/dense<x relu<stage/dense": each layer with its inputs.
std::string graph_of(const Config& config) {
  std::string out;
  for (const LayerConfig& layer : config.model.layers) {
    if (layer.object.class_name == "Input") {
      continue;
    }
    out += (out.empty() ? "" : " ") + layer.name.value;
    for (const auto& input : layer.inputs) {
      out += "<" + input.value;
    }
  }
  return out;
}

std::string graph_of(const std::string& top, const std::string& layers) {
  return graph_of(load_model(top, layers));
}

constexpr const char* kResidual =
    "blocks:\n"
    "  Residual:\n"
    "    params: {units: 4, activation: relu}\n"
    "    inputs: [input]\n"
    "    layers:\n"
    "      - Dense: {name: fc, units: =units, activation: =activation}\n"
    "      - Dense: {units: =2 * units}\n"
    "      - Dense: {name: last, units: =units}\n"
    "      - Add: {name: sum, inputs: [input, last]}\n";

}  // namespace

TEST_CASE("Blocks: a use is its layers with its name in front") {
  const Config config = load_model(kResidual, "    - Residual: {name: a, units: 8}\n    - ReLU\n");
  CHECK(graph_of(config) == "a/fc<x a/dense<a/fc a/last<a/dense a/sum<x<a/last re_lu<a/sum");
  CHECK(config.model.layers[1].object.integer("units") == 8);
  CHECK(config.model.layers[2].object.integer("units") == 16);
  CHECK(config.model.layers[1].object.string("activation") == "relu");
  CHECK(config.model.layers[1].object.loc.to_string().find("t.yaml:6:9") != std::string::npos);
  CHECK_FALSE(config.model.is_sequential);
  CHECK(config.model.block_outputs ==
        std::vector<std::pair<std::string, std::string>>{{"a", "a/sum"}});
}

TEST_CASE("Blocks: names are automatic as those of layers are and count within the block") {
  CHECK(graph_of("blocks: {TwoLayers: {layers: [{Dense: 4}, {Dense: 4}]}}\n",
                 "    - TwoLayers\n    - Dense: 4\n    - TwoLayers\n") ==
        "two_layers/dense<x two_layers/dense_1<two_layers/dense dense<two_layers/dense_1 "
        "two_layers_1/dense<dense two_layers_1/dense_1<two_layers_1/dense");
  const Config chain = load_model("blocks: {Pair: {layers: [{Dense: 4}, ReLU]}}\n", "    - Pair\n");
  CHECK(chain.model.is_sequential);
}

TEST_CASE("Blocks: the first parameter may stand alone and lists, objects and null pass through") {
  const Config config = load_model(
      "blocks:\n"
      "  Head:\n"
      "    params: {units, init: zeros, act: relu}\n"
      "    layers: [{Dense: {units: =units, kernel_initializer: =init, activation: =act}}]\n",
      "    - Head: 3\n"
      "    - Head: {units: =1 + 1, init: {RandomNormal: {stddev: 0.5}}, act: null}\n"
      "    - Reshape: {target_shape: [2, 1]}\n");
  CHECK(config.model.layers[1].object.integer("units") == 3);
  const ConfigObject& second = config.model.layers[2].object;
  CHECK(second.integer("units") == 2);
  CHECK(second.arg("kernel_initializer").object().number("stddev") == 0.5);
  CHECK_FALSE(second.has("activation"));
}

TEST_CASE("Blocks: parameters come before vars and see those before them") {
  const Config config = load_model(
      "vars: {width: 3}\n"
      "blocks:\n"
      "  Wide:\n"
      "    params: {width: 5, twice: =2 * width}\n"
      "    layers: [{Dense: =twice}]\n"
      "  Plain: {layers: [{Dense: =width}]}\n",
      "    - Wide\n    - Wide: {width: =width + 1}\n    - Plain\n", {"vars.width=7"});
  CHECK(config.model.layers[1].object.integer("units") == 10);
  CHECK(config.model.layers[2].object.integer("units") == 16);
  CHECK(config.model.layers[3].object.integer("units") == 7);
}

TEST_CASE("Blocks: several inputs by order or by name and several outputs") {
  const std::string top =
      "blocks:\n"
      "  Cross:\n"
      "    inputs: [a, b]\n"
      "    layers:\n"
      "      - Dense: {name: p, inputs: a, units: 4}\n"
      "      - Dense: {name: q, inputs: b, units: 4}\n"
      "    outputs: {left: p, right: q}\n";
  CHECK(graph_of(top,
                 "    - Dense: {name: y, units: 4}\n"
                 "    - Cross: {name: one, inputs: [x, y]}\n"
                 "    - Cross: {name: two, inputs: {b: one/left, a: one/right}}\n"
                 "    - Add\n") == "y<x one/p<x one/q<y two/p<one/q two/q<one/p add<two/p<two/q");
  CHECK(graph_of(top,
                 "    - Dense: {name: y, units: 4}\n"
                 "    - Cross: {name: one, inputs: [x, y]}\n"
                 "    - Cross: {name: two}\n"
                 "    - Concatenate: {inputs: [two, x]}\n") ==
        "y<x one/p<x one/q<y two/p<one/p two/q<one/q concatenate<two/p<two/q<x");
}

TEST_CASE("Blocks: what a layer gives beside its output") {
  const std::string top =
      "blocks:\n"
      "  Encoder:\n"
      "    layers:\n"
      "      - LSTM: {name: l, units: 4, return_state: true}\n"
      "      - Dense: {name: d, inputs: l.state_h, units: 4}\n"
      "    outputs: {out: d, c: l.state_c}\n";
  CHECK(graph_of(top,
                 "    - Encoder: {name: e}\n"
                 "    - Dense: {name: a, inputs: e/c, units: 4}\n"
                 "    - Add: {name: sum, inputs: [a, e/out, e/l.state_h]}\n") ==
        "e/l<x e/d<e/l.state_h a<e/l.state_c sum<a<e/d<e/l.state_h");
  CHECK(graph_of("",
                 "    - Repeat: {times: 2, name: \"u_{i}\", layers: [{LSTM: {name: l, units: 4, "
                 "return_state: true}}, {Add: {name: d, inputs: [l, l.state_h]}}]}\n") ==
        "u_0/l<x u_0/d<u_0/l<u_0/l.state_h u_1/l<u_0/d u_1/d<u_1/l<u_1/l.state_h");
  CHECK(graph_of("",
                 "    - Repeat: {times: 2, name: \"u_{i}\", outputs: l.state_h, layers: [{LSTM: "
                 "{name: l, units: 4, return_state: true}}]}\n"
                 "    - ReLU\n") == "u_0/l<x u_1/l<u_0/l.state_h re_lu<u_1/l.state_h");
}

TEST_CASE("Blocks: within each other and as outputs of the model") {
  const Config config = load_model(
      "blocks:\n"
      "  Inner: {params: {n: 2}, layers: [{Dense: {name: d, units: =n}}]}\n"
      "  Outer:\n"
      "    params: {n}\n"
      "    layers: [{Inner: {name: first, n: =n}}, {Inner: {name: second}}]\n"
      "    outputs: first\n",
      "    - Outer: {name: o, n: 6}\n    - Dense: {name: e, inputs: o/second, units: 1}\n"
      "  outputs: {main: o, side: e}\n");
  CHECK(graph_of(config) == "o/first/d<x o/second/d<o/first/d e<o/second/d");
  CHECK(config.model.layers[1].object.integer("units") == 6);
  REQUIRE(config.model.outputs.size() == 2);
  CHECK(config.model.outputs[0].first == "main");
  CHECK(config.model.outputs[0].second.value == "o/first/d");
  CHECK(config.model.outputs[1].second.value == "e");
}

TEST_CASE("Blocks: an output that is a use is called after it") {
  const std::string top = "blocks: {Tower: {layers: [{Dense: {units: 4}}, {Dense: {units: 2}}]}}\n";
  const Config config = load_model(top,
                                   "    - Tower: {name: left, inputs: x}\n"
                                   "    - Tower: {name: right, inputs: x}\n"
                                   "    - Dense: {name: head, inputs: x, units: 1}\n"
                                   "  outputs: [left, right, head]\n",
                                   {"compile.loss={left: mse, right: mae, head: mse}"});
  REQUIRE(config.model.outputs.size() == 3);
  CHECK(config.model.outputs[0].first == "left");
  CHECK(config.model.outputs[0].second.value == "left/dense_1");
  CHECK(config.model.outputs[1].first == "right");
  CHECK(config.model.outputs[2].first == "head");
  CHECK(config.compile.loss.size() == 3);
  // A single output has the name of its layer: it has the only loss.
  CHECK(load_model(top, "    - Tower: {name: left}\n  outputs: left\n").model.outputs[0].first ==
        "left/dense_1");
}

TEST_CASE("Blocks: the outputs of the last entry are the model's") {
  const Config config = load_model(
      "blocks:\n"
      "  Two:\n"
      "    layers: [{Dense: {name: a, units: 1}}, {Dense: {name: b, units: 1}}]\n"
      "    outputs: [a, b]\n",
      "    - Two: {name: t}\n");
  REQUIRE(config.model.outputs.size() == 2);
  CHECK(config.model.outputs[0].second.value == "t/a");
  CHECK(config.model.outputs[1].second.value == "t/b");
}

TEST_CASE("Repeat: a block several times with the count in names and values") {
  const Config config = load_model(kResidual,
                                   "    - Repeat:\n"
                                   "        times: 2\n"
                                   "        name: block_{i}\n"
                                   "        block: Residual\n"
                                   "        with: {units: =4 * 2 ** i}\n");
  CHECK(graph_of(config) ==
        "block_0/fc<x block_0/dense<block_0/fc block_0/last<block_0/dense "
        "block_0/sum<x<block_0/last block_1/fc<block_0/sum block_1/dense<block_1/fc "
        "block_1/last<block_1/dense block_1/sum<block_0/sum<block_1/last");
  CHECK(config.model.layers[1].object.integer("units") == 4);
  CHECK(config.model.layers[5].object.integer("units") == 8);
  CHECK(graph_of(kResidual, "    - Repeat: {times: 2, block: Residual}\n")
            .find("residual_1/fc<residual/sum") != std::string::npos);
}

TEST_CASE("Repeat: a class of layers in the place of a block") {
  const Config config = load_model("",
                                   "    - Repeat: {times: 2, name: \"fc_{i}\", block: Dense, "
                                   "with: {units: =4 * (i + 1)}, remat: dots}\n"
                                   "    - Repeat: {times: 2, block: ReLU}\n");
  CHECK(graph_of(config) == "fc_0<x fc_1<fc_0 re_lu<fc_1 re_lu_1<re_lu");
  CHECK(config.model.layers[1].object.integer("units") == 4);
  CHECK(config.model.layers[2].object.integer("units") == 8);
  REQUIRE(config.model.remat.size() == 2);
  CHECK(config.model.remat[1].prefix == "fc_1");
  CHECK(config.model.remat[1].keeps_products);
  // A block of that name comes first.
  const std::string own = "blocks: {Dense: {inputs: [x], layers: [{ReLU: {inputs: x}}]}}\n";
  CHECK_THROWS_AS(load_model(own, "    - Repeat: {times: 2, block: Dense}\n"), ConfigError);
  CHECK_THROWS_AS(load_model("", "    - Repeat: {times: 2, name: fc, block: Dense}\n"),
                  ConfigError);
}

TEST_CASE("Repeat: layers without a name are written side by side") {
  CHECK(graph_of("",
                 "    - Dense: 4\n    - Repeat: {times: 2, layers: [{Dense: 4}, ReLU]}\n"
                 "    - Dense: 4\n") ==
        "dense<x dense_1<dense re_lu<dense_1 dense_2<re_lu re_lu_1<dense_2 dense_3<re_lu_1");
  CHECK(load_model("", "    - Repeat: {times: 2, layers: [{Dense: 4}]}\n").model.is_sequential);
  CHECK(graph_of("",
                 "    - Repeat:\n"
                 "        times: 2\n"
                 "        layers:\n"
                 "          - Dense: {name: \"fc_{i}\", units: =i + 1}\n"
                 "          - Dense: {inputs: \"fc_{i}\", units: 4}\n") ==
        "fc_0<x dense<fc_0 fc_1<dense dense_1<fc_1");
}

TEST_CASE("Repeat: named layers with an input of their own") {
  CHECK(graph_of("",
                 "    - Repeat:\n"
                 "        times: 2\n"
                 "        name: stage_{i}\n"
                 "        inputs: {before: x}\n"
                 "        layers:\n"
                 "          - Dense: 4\n"
                 "          - Add: {inputs: [before, dense, x]}\n"
                 "    - ReLU: {inputs: stage_0}\n"
                 "    - Add: {inputs: [re_lu, stage_1]}\n") ==
        "stage_0/dense<x stage_0/add<x<stage_0/dense<x stage_1/dense<stage_0/add "
        "stage_1/add<stage_0/add<stage_1/dense<x re_lu<stage_0/add add<re_lu<stage_1/add");
}

TEST_CASE("Repeat: within each other each with its own count") {
  const Config config = load_model(
      "",
      "    - Repeat:\n"
      "        times: 2\n"
      "        name: stage_{i}\n"
      "        with: {width: =10 * (i + 1)}\n"
      "        layers:\n"
      "          - Repeat: {times: =i + 1, name: \"unit_{i}\", layers: [{Dense: =width + i}]}\n");
  CHECK(graph_of(config) ==
        "stage_0/unit_0/dense<x stage_1/unit_0/dense<stage_0/unit_0/dense "
        "stage_1/unit_1/dense<stage_1/unit_0/dense");
  CHECK(config.model.layers[1].object.integer("units") == 10);
  CHECK(config.model.layers[3].object.integer("units") == 21);
}

TEST_CASE("Repeat: within each other a counter of its own name leaves the outer one visible") {
  const Config config = load_model("",
                                   "    - Repeat:\n"
                                   "        times: 2\n"
                                   "        layers:\n"
                                   "          - Repeat: {times: 2, as: j, layers: [{Dense: {name: "
                                   "\"d{i}_{j}\", units: =3 * i + j "
                                   "+ 1}}]}\n");
  CHECK(graph_of(config) == "d0_0<x d0_1<d0_0 d1_0<d0_1 d1_1<d1_0");
  CHECK(config.model.layers.back().object.integer("units") == 5);
  // A block within sees neither; its name's counter is that of the Repeat.
  CHECK(graph_of(kResidual, "    - Repeat: {times: 2, as: n, name: \"r{n}\", block: Residual}\n")
            .find("r1/fc") != std::string::npos);
}

TEST_CASE("Repeat: the counter begins with start, and may be letters in names") {
  const Config config = load_model(
      "",
      "    - Repeat: {times: 2, start: 3, layers: [{Dense: {name: \"d{i}{i:a}\", units: =i}}]}\n"
      "    - Repeat: {times: 28, as: n, block: ReLU, name: \"r_{n:a}\"}\n");
  CHECK(config.model.layers[1].name.value == "d3d");
  CHECK(config.model.layers[2].name.value == "d4e");
  CHECK(config.model.layers[2].object.integer("units") == 4);
  CHECK(config.model.layers[3].name.value == "r_a");
  CHECK(config.model.layers[28].name.value == "r_z");
  CHECK(config.model.layers.back().name.value == "r_ab");
  CHECK_THROWS_AS(
      load_model("", "    - Repeat: {times: 2, layers: [{ReLU: {name: \"r{j:a}\"}}]}\n"),
      ConfigError);
}

TEST_CASE("frozen: layers whose whole name matches do not train") {
  const auto trains = [](const char* frozen) {
    const Config config =
        load_model("",
                   "    - Dense: {name: conv1, units: 4}\n    - Dense: {name: conv10, units: 4}\n"
                   "    - Dense: {name: head, units: 4}\n",
                   {std::string("model.frozen=") + frozen});
    std::string out;
    for (const LayerConfig& layer : config.model.layers) {
      const auto trainable = layer.object.args.find("trainable");
      if (trainable != layer.object.args.end()) {
        out += trainable->second.boolean() ? '1' : '0';
      }
    }
    return out;
  };
  CHECK(trains("null") == "111");
  CHECK(trains("conv1") == "011");
  CHECK(trains("[conv.*]") == "001");
  CHECK(trains("[conv1, head]") == "010");
  CHECK_THROWS_AS(trains("[conv]"), ConfigError);
  CHECK_THROWS_AS(trains("[\"conv(\"]"), ConfigError);
}

TEST_CASE("Repeat: what a repetition does not replace all of them take") {
  CHECK(graph_of("blocks:\n"
                 "  Decoder:\n"
                 "    inputs: [h, memory]\n"
                 "    layers: [{Add: {name: s, inputs: [h, memory]}}]\n",
                 "    - Dense: {name: m, units: 4}\n"
                 "    - Repeat: {times: 3, name: \"d_{i}\", block: Decoder, inputs: [x, m]}\n") ==
        "m<x d_0/s<x<m d_1/s<d_0/s<m d_2/s<d_1/s<m");
}

TEST_CASE("Repeat: zero times is nothing and once needs no count in the name") {
  CHECK(graph_of("", "    - Repeat: {times: 0, layers: [{Dense: 4}]}\n    - ReLU\n") == "re_lu<x");
  CHECK(graph_of("", "    - Repeat: {times: 1, name: only, layers: [{Dense: 4}]}\n") ==
        "only/dense<x");
}

TEST_CASE("Call: a block again with the same weights") {
  const std::string top =
      "blocks:\n"
      "  Tower:\n"
      "    layers:\n"
      "      - Dense: {name: a, units: 4}\n"
      "      - Repeat: {times: 2, name: \"r_{i}\", layers: [ReLU, {Call: {layer: a}}]}\n";
  const Config config = load_model(top,
                                   "    - Tower: {name: left}\n"
                                   "    - Call: {layer: left, name: right, inputs: x}\n"
                                   "    - Add: {inputs: [left, right]}\n");
  CHECK(graph_of(config) ==
        "left/a<x left/r_0/re_lu<left/a left/r_0/call<left/r_0/re_lu "
        "left/r_1/re_lu<left/r_0/call left/r_1/call<left/r_1/re_lu "
        "right/a<x right/r_0/re_lu<right/a right/r_0/call<right/r_0/re_lu "
        "right/r_1/re_lu<right/r_0/call right/r_1/call<right/r_1/re_lu "
        "add<left/r_1/call<right/r_1/call");
  CHECK(config.model.layers[6].shared_layer.value == "left/a");
  CHECK(config.model.layers[7].shared_layer.value == "left/r_0/re_lu");
  CHECK(config.model.layers[8].shared_layer.value == "left/a");
}

TEST_CASE("Blocks: trainable false freezes every layer of a use") {
  const Config config = load_model(
      "blocks: {Pair: {layers: [{Dense: 4}, {Dense: 4}]}}\n",
      "    - Pair: {trainable: false}\n    - Repeat: {times: 1, trainable: false, layers: "
      "[{Dense: 4}]}\n    - Dense: 4\n");
  CHECK_FALSE(config.model.layers[1].object.boolean("trainable"));
  CHECK_FALSE(config.model.layers[2].object.boolean("trainable"));
  CHECK_FALSE(config.model.layers[3].object.boolean("trainable"));
  CHECK(config.model.layers[4].object.boolean("trainable"));
}

TEST_CASE("Blocks: a Call has nothing to freeze") {
  const Config config =
      load_model("blocks: {Pair: {layers: [{Dense: {name: a, units: 4}}, {Call: {layer: a}}]}}\n",
                 "    - Pair: {trainable: false}\n");
  CHECK_FALSE(config.model.layers[1].object.boolean("trainable"));
  CHECK(config.model.layers[2].object.class_name == "Call");
}

TEST_CASE("Blocks: overrides reach definitions, uses and Repeats") {
  const auto units = [](std::vector<std::string> overrides) {
    const Config config = load_model(
        kResidual,
        "    - Residual: {name: a}\n    - Repeat: {times: 2, name: \"b_{i}\", block: Residual}\n",
        std::move(overrides));
    return fmt::format("{} {} {}", config.model.layers.size(),
                       config.model.layers[1].object.integer("units"),
                       config.model.layers[5].object.integer("units"));
  };
  CHECK(units({}) == "13 4 4");
  CHECK(units({"model.layers.2.times=1"}) == "9 4 4");
  CHECK(units({"model.layers.a.units=9"}) == "13 9 4");
  CHECK(units({"blocks.Residual.params.units=5"}) == "13 5 5");
  CHECK(units({"model.layers.2.with.units=6"}) == "13 4 6");
  CHECK(units({"model.layers.a.Residual.units=9"}) == "13 9 4");
  CHECK(units({"blocks.Residual.layers.fc.units=3"}) == "13 3 3");
}

TEST_CASE("Blocks: many uses stay quick and too many are refused") {
  const std::string block = "blocks: {B: {layers: [{Dense: 4}, ReLU, {Dropout: 0.1}]}}\n";
  const Config config = load_model(block, "    - Repeat: {times: 1000, block: B}\n");
  CHECK(config.model.layers.size() == 3001);
  CHECK(codes_of(block + kSmall, {"model.layers+={Repeat: {times: 5000, block: B}}"}) == "E106");
  // Nothing comes out of these, however long they run.
  const std::string empty =
      "{Repeat: {times: 10000, layers: [{Repeat: {times: 10000, layers: "
      "[{Repeat: {times: 0, layers: [ReLU]}}]}}]}}";
  CHECK(codes_of(kSmall, {"model.layers+=" + empty}) == "E106");
}

TEST_CASE("show_config: prints the layers that blocks stand for") {
  const test::TempFolder files;
  LoadOptions options;
  options.files = {files.write("t.yaml", std::string(kResidual) +
                                             "model:\n  layers:\n"
                                             "    - Input: {name: x, shape: [4]}\n"
                                             "    - Residual: {name: a}\n" +
                                             kRest)};
  const std::string shown = show_config(options, true);
  CHECK(shown.find("blocks") == std::string::npos);
  CHECK(shown.find("name: \"a/fc\"") == std::string::npos);
  CHECK(shown.find("name: a/fc") != std::string::npos);
  CHECK(shown.find("t.yaml:6 (=units)") != std::string::npos);
  options.files = {files.write("again.yaml", show_config(options, false))};
  CHECK(show_config(options, false).find("name: a/fc") != std::string::npos);
}

}  // namespace meshtrain
