// The list of layers as a graph: names, inputs, outputs.
#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

std::string model_of(const std::vector<std::string>& layers, const std::string& rest = "") {
  std::string text = "model:\n  layers:\n";
  for (const std::string& layer : layers) {
    text += "    - " + layer + "\n";
  }
  return text + rest + "compile: {loss: mse}\ndata: {train: digits}\n";
}

std::string names_of(const Config& config) {
  std::string out;
  for (const LayerConfig& layer : config.model.layers) {
    out += layer.name.value + " ";
  }
  return out;
}

}  // namespace

TEST_CASE("Layers: automatic names are Keras' and counted over the config") {
  const Config config = load_text(model_of({"Input: [4]", "Dense: 3", "Dense: {name: d, units: 3}",
                                            "ReLU", "LeakyReLU", "Dense: 2", "Rescaling: 2"}));
  CHECK(names_of(config) == "input_layer dense d re_lu leaky_re_lu dense_1 rescaling ");
  CHECK(config.model.layers[1].name_is_automatic);
  CHECK_FALSE(config.model.layers[2].name_is_automatic);
  CHECK(config.model.layers[2].name.loc.line == 5);
  CHECK(config.model.is_sequential);
  CHECK(config.model.name.value == "sequential");
  CHECK(config.model.outputs.size() == 1);
  CHECK(config.model.outputs[0].first == "rescaling");
  CHECK(config.model.layers[5].inputs[0].value == "leaky_re_lu");
  CHECK(config.model.layers[1].object.string("name") == "dense");
}

TEST_CASE("Layers: inputs make a graph") {
  const Config config = load_text(
      model_of({"Input: {name: image, shape: [8]}", "Dense: {name: stem, units: 4}",
                "Dense: {name: c1, units: 4}", "Add: {name: sum, inputs: [stem, c1]}", "ReLU",
                "Dense: {name: label, units: 10}", "Dense: {name: angle, inputs: sum, units: 1}"},
               "  outputs: {label: label, angle_out: angle}\n"));
  CHECK_FALSE(config.model.is_sequential);
  CHECK(config.model.name.value == "functional");
  const LayerConfig& sum = config.model.layers[3];
  REQUIRE(sum.inputs.size() == 2);
  CHECK(sum.inputs[0].value == "stem");
  CHECK(sum.inputs[1].loc.line == 6);
  REQUIRE(config.model.outputs.size() == 2);
  CHECK(config.model.outputs[1].first == "angle_out");
  CHECK(config.model.outputs[1].second.value == "angle");
}

TEST_CASE("Layers: Call uses a layer again") {
  const Config config =
      load_text(model_of({"Input: {name: x, shape: [4]}", "Dense: {name: tok, units: 4}", "ReLU",
                          "Call: {layer: tok, name: again}"}));
  CHECK(config.model.layers[3].shared_layer.value == "tok");
  CHECK(config.model.layers[3].inputs[0].value == "re_lu");
  CHECK_FALSE(config.model.is_sequential);
  CHECK(codes_of(model_of({"Input: {name: x, shape: [4]}", "Call: {layer: x}"})) == "E121");
}

TEST_CASE("Layers: several inputs and several losses") {
  const std::string text =
      "model:\n  layers:\n    - Input: {name: a, shape: [4]}\n    - Input: {name: b, shape: [4]}\n"
      "    - Concatenate: {name: both, inputs: [a, b]}\n    - Dense: {name: p, units: 2}\n"
      "    - Dense: {name: q, inputs: {x: both}, units: 1}\n  outputs: [p, q]\n"
      "data: {train: digits}\n";
  const Config by_name =
      load_text(text +
                "compile: {loss: {p: mse, q: {Huber: {delta: 2}}}, loss_weights: {p: 1, q: 0.5},\n"
                "  metrics: {p: [mae, mse], q: mae}}\n");
  REQUIRE(by_name.compile.loss.size() == 2);
  CHECK(by_name.compile.loss[1].output == "q");
  CHECK(by_name.compile.loss[1].object.number("delta") == 2);
  CHECK(by_name.compile.metrics.size() == 3);
  CHECK(by_name.compile.loss_weights[1].second.value == 0.5);
  const Config in_order =
      load_text(text + "compile: {loss: [mse, mae], loss_weights: [1, 2], metrics: mae}\n");
  CHECK(in_order.compile.loss[0].output == "p");
  CHECK(in_order.compile.loss[1].output == "q");
  CHECK(in_order.compile.metrics[0].output == "");
  CHECK(codes_of(text + "compile: {loss: [mse]}\n") == "E113");
  CHECK(codes_of(text + "compile: {loss: mse, loss_weights: 2}\n") == "E113");
  CHECK(codes_of(text + "compile: {loss: {p: mse, r: mse}}\n") == "E121");
}

TEST_CASE("Layers: a list of metrics or losses for several outputs is one entry for each") {
  const std::string text =
      "model:\n  layers:\n    - Input: {name: x, shape: [4]}\n    - Dense: {name: p, units: 2}\n"
      "    - Dense: {name: q, inputs: x, units: 1}\n  outputs: [p, q]\ndata: {train: digits}\n";
  const auto metrics = [&](const std::string& list) {
    std::string out;
    const CompileConfig compile = load_text(text + "compile: {loss: mse, metrics: " + list +
                                            ", weighted_metrics: " + list + "}\n")
                                      .compile;
    for (const OutputObject& entry : compile.metrics) {
      out += entry.output + ":" + entry.object.spelled + " ";
    }
    CHECK(compile.weighted_metrics.size() == compile.metrics.size());
    return out;
  };
  CHECK(metrics("[mse, mae]") == "p:mse q:mae ");
  CHECK(metrics("[[mse], [mae, mape]]") == "p:mse q:mae q:mape ");
  CHECK(metrics("[[mse, mae], mape]") == "p:mse p:mae q:mape ");
  CHECK(metrics("[null, mae]") == "q:mae ");
  CHECK(metrics("[[], mae]") == "q:mae ");
  CHECK(metrics("{p: null, q: mae}") == "q:mae ");
  // Another length is for all of them.
  CHECK(metrics("[mse]") == ":mse ");
  CHECK(metrics("[mse, mae, mape]") == ":mse :mae :mape ");
  CHECK(codes_of(text + "compile: {loss: mse, metrics: [[mse]]}\n") == "E113");
  CHECK(codes_of(text + "compile: {loss: mse, metrics: [auk, mse]}\n") == "E122");
  const std::string one =
      "model:\n  layers:\n    - Input: [4]\n    - Dense: {name: p, units: 2}\ndata: {train: "
      "digits}\n";
  CHECK(load_text(one + "compile: {loss: mse, metrics: [mse, mae]}\n").compile.metrics.size() == 2);
  CHECK(load_text(one + "compile: {loss: mse, metrics: [[mse, mae]]}\n").compile.metrics.size() ==
        2);
  CHECK(codes_of(one + "compile: {loss: mse, metrics: [auk, mse]}\n") == "E122");

  const CompileConfig some = load_text(text + "compile: {loss: [null, mse]}\n").compile;
  REQUIRE(some.loss.size() == 1);
  CHECK(some.loss[0].output == "q");
  CHECK(codes_of(text + "compile: {loss: [mse, null, mae]}\n") == "E113");
}

TEST_CASE("Layers: a map of inputs has the names that the layer knows") {
  const std::string x = "Input: {name: x, shape: [4, 3]}", h = "Input: {name: h, shape: [2]}",
                    c = "Input: {name: c, shape: [2]}";
  const auto inputs_of = [&](const std::string& layer) {
    std::string out;
    const Config config = load_text(model_of({x, h, c, layer}));
    for (const auto& input : config.model.layers[3].inputs) {
      out += input.value;
    }
    return out;
  };
  CHECK(inputs_of("LSTM: {units: 2, inputs: {state_c: c, sequences: x, state_h: h}}") == "xhc");
  CHECK(inputs_of("LSTM: {units: 2, inputs: {c: c, h: h, sequence: x}}") == "xhc");
  const auto codes = [&](const std::string& layer) {
    return codes_of(model_of({x, h, layer}, "  outputs: [last, x, h]\n"));
  };
  CHECK(codes("GRU: {name: last, units: 2, inputs: {initial_state: h, sequences: x}}") == "");
  CHECK(codes("Bidirectional: {name: last, layer: {GRU: 2}, inputs: {backward_h: h, "
              "forward_h: h, sequences: x}}") == "");
  CHECK(codes("GRU: {name: last, units: 2, inputs: {sequences: x, mask: h}}") == "E121");
  CHECK(codes("GRU: {name: last, units: 2, inputs: {sequences: x, inputs: h}}") == "E121");
  CHECK(codes("GRU: {name: last, units: 2, inputs: {state: h}}") == "E121");
  CHECK(codes("Subtract: {name: last, inputs: {b: x, a: x}}") == "E121");
  CHECK(codes("Dense: {name: last, units: 2, inputs: {x: h}}") == "");  // it takes one alone
}

TEST_CASE("Layers: wrong graphs") {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"Dense: 2"}, "E121"},
      {{"Input: [4]", "Dense: {units: 2, inputs: nothing}"}, "E121"},
      {{"Input: {name: x, shape: [4]}", "Dense: {name: a, inputs: b, units: 2}",
        "Dense: {name: b, inputs: a, units: 2}"},
       "E121"},
      {{"Input: [4]", "Dense: {name: a, inputs: a, units: 2}"}, "E121"},
      {{"Input: [4]", "Input: [4]", "Dense: 2"}, "E121"},
      {{"Input: [4]", "Add"}, "E121"},
      {{"Input: {name: x, shape: [4]}", "Subtract: {inputs: [x, x, x]}"}, "E121"},
      {{"Input: {name: x, shape: [4]}", "Dense: {inputs: [x, x], units: 2}"}, "E121"},
      {{"Input: [4]", "Dense: {name: a//b, units: 2}"}, "E113"},
      {{"Input: [4]", "Dense: {name: a, units: 2}", "Dense: {name: a, units: 2}"}, "E121"},
  };
  for (const auto& [layers, code] : kCases) {
    CAPTURE(layers.back());
    CHECK(codes_of(model_of(layers)) == code);
  }
}

TEST_CASE("Layers: a thousand are read in a moment") {
  std::vector<std::string> layers = {"Input: [4]"};
  for (int i = 0; i < 4000; ++i) {
    layers.push_back("Dense: {units: 4, activation: relu}");
  }
  const Config config = load_text(model_of(layers));
  CHECK(config.model.layers.back().name.value == "dense_3999");
}

}  // namespace meshtrain
