// Where Keras puts weights, compared with the files that Keras wrote.
#include "interop/keras/weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "keras_files.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::Built;
using test::keras_file;

bool has_nested_models(const std::string& name) {
  return name == "nested";
}

TEST_CASE("layers are ordered and grouped as Keras does") {
  for (const std::string& name : test::keras_models()) {
    CAPTURE(name);
    const KerasArchive archive = read_keras_archive(keras_file(name + ".keras"));
    const ImportedModel imported = test::import_text(archive.config);
    const Built built(imported.yaml);
    if (has_nested_models(name)) {
      continue;  // their groups are inside of other groups
    }
    std::vector<std::pair<std::string, std::string>> ours, keras;
    for (const KerasGroup& group : keras_groups(*built.model)) {
      ours.emplace_back(group.layer, group.group);
    }
    for (const KerasGroup& group : imported.groups) {
      keras.emplace_back(group.layer, group.group);
    }
    // Operations (`x + y`) are no layers for Keras, but they are here.
    std::erase_if(ours, [&](const auto& entry) {
      return std::none_of(keras.begin(), keras.end(),
                          [&](const auto& other) { return other.first == entry.first; });
    });
    std::sort(ours.begin(), ours.end());
    std::sort(keras.begin(), keras.end());
    CHECK(ours == keras);
  }
}

TEST_CASE("each weight of a Keras file is found by its path") {
  for (const std::string& name : test::keras_models()) {
    CAPTURE(name);
    const std::string file = keras_file(name + ".keras");
    const Built built(test::import_text(read_keras_archive(file).config).yaml);
    const std::vector<NamedTensor> tensors = read_model_weights(file, *built.model);
    CHECK(tensors.size() == built.model->weights().size());
    for (const Weight* weight : built.model->weights()) {
      CAPTURE(weight->path);
      const auto found = std::find_if(tensors.begin(), tensors.end(),
                                      [&](const NamedTensor& t) { return t.name == weight->path; });
      REQUIRE(found != tensors.end());
      CHECK(found->tensor.shape() == weight->shape);
      CHECK(found->tensor.dtype() == weight->dtype);
    }
  }
}

// The groups of weights, and those of layers without, as they are in a file.
std::vector<std::pair<std::string, std::string>> layout_of(const H5File& file) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const NamedTensor& dataset : file.datasets) {
    if (dataset.name.rfind("optimizer", 0) != 0) {
      out.emplace_back(dataset.name, shape_string(dataset.tensor.shape()));
    }
  }
  for (const auto& [group, name] : file.names) {
    if (group.rfind("optimizer", 0) != 0 && group.find("/activation/") == std::string::npos) {
      out.emplace_back(group, name);
    }
  }
  return out;
}

TEST_CASE("exported HDF5 files have the groups and attributes of Keras' own") {
  const test::TempFolder folder;
  for (const std::string name : {"mlp", "convnet", "several", "shared", "separable", "adapted"}) {
    CAPTURE(name);
    const std::string file = keras_file(name + ".keras");
    KerasArchive archive = read_keras_archive(file);
    const Built built(test::import_text(archive.config).yaml);
    const std::vector<NamedTensor> values = read_model_weights(file, *built.model);
    const bool sequential = built.config.model.is_sequential;
    write_h5(folder.file("w.h5"), keras_vars(*built.model, values, sequential));
    const H5File written = read_h5(folder.file("w.h5"));
    const auto ours = layout_of(written);
    const auto keras_own = layout_of(archive.weights);
    REQUIRE(ours.size() == keras_own.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      CHECK(ours[i].first == keras_own[i].first);
      CHECK(ours[i].second == keras_own[i].second);
    }
    std::map<std::string, const HostTensor*> keras;
    for (const NamedTensor& dataset : archive.weights.datasets) {
      keras[dataset.name] = &dataset.tensor;
    }
    for (const NamedTensor& dataset : written.datasets) {
      REQUIRE(keras.contains(dataset.name));
      CHECK(std::memcmp(dataset.tensor.bytes(), keras[dataset.name]->bytes(),
                        dataset.tensor.num_bytes()) == 0);
    }
  }
}

TEST_CASE("weights by group fit a config with other names") {
  const Built built(R"(
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: first, units: 5, activation: relu}
    - Dense: {name: second, units: 4, use_bias: false}
    - Dense: {name: third, units: 3}
)");
  for (const char* file : {"mlp.weights.h5", "mlp.keras"}) {
    const std::vector<NamedTensor> tensors = read_model_weights(keras_file(file), *built.model);
    REQUIRE(tensors.size() == 5);
    CHECK(tensors[0].name == "first/kernel");
    CHECK(tensors[2].name == "second/kernel");
    CHECK(tensors[4].name == "third/bias");
  }
}

TEST_CASE("weights by group fit layers of the names that the file has, in any order") {
  const auto first_bias = [](const std::string& names) {
    const Built built("model: {layers: [{Input: {shape: [2]}}, " + names + "]}");
    const test::TempFolder folder;
    const HostTensor kernel(DType::kFloat32, {2, 2});
    HostTensor one(DType::kFloat32, {2}), two(DType::kFloat32, {2});
    one.set(0, 1);
    two.set(0, 2);
    write_h5(folder.file("w.weights.h5"),
             std::vector<H5Vars>{{"layers/dense/vars", "one", {&kernel, &one}},
                                 {"layers/dense_1/vars", "two", {&kernel, &two}}});
    for (const NamedTensor& each : read_model_weights(folder.file("w.weights.h5"), *built.model)) {
      if (each.name == built.model->weights()[1]->path) {
        return each.tensor.at(0);
      }
    }
    return 0.0;
  };
  CHECK(first_bias("{Dense: {name: two, units: 2}}, {Dense: {name: one, units: 2}}") == 2);
  CHECK(first_bias("{Dense: {name: two, units: 2}}, {Dense: {name: other, units: 2}}") == 1);
}

TEST_CASE("weights of a Sequential inside of a model fit a Repeat of its name") {
  const Built built(R"(
model:
  layers:
    - Input: {name: a, shape: [4]}
    - Input: {name: b, shape: [4]}
    - Dense: {name: head, units: 4, inputs: a}
    - Call: {layer: head, name: again, inputs: b}
    - Multiply: {inputs: [head, again]}
    - Repeat:
        times: 1
        name: pair
        layers:
          - Dense: {name: dense, units: 5, activation: relu}
          - Dense: {name: head_1, units: 4}
)");
  const std::string file = keras_file("nested.keras");
  const std::vector<NamedTensor> tensors = read_model_weights(file, *built.model);
  const Built imported(test::import_text(read_keras_archive(file).config).yaml);
  const std::vector<NamedTensor> keras = read_model_weights(file, *imported.model);
  for (const std::string name : {"dense/kernel", "head_1/kernel", "head_1/bias"}) {
    CAPTURE(name);
    const auto named = [](const std::vector<NamedTensor>& in, const std::string& path) {
      return std::find_if(in.begin(), in.end(),
                          [&](const NamedTensor& tensor) { return tensor.name == path; });
    };
    const auto found = named(tensors, "pair/" + name);
    const auto expected = named(keras, name);
    REQUIRE(found != tensors.end());
    REQUIRE(expected != keras.end());
    CHECK(std::memcmp(found->tensor.bytes(), expected->tensor.bytes(),
                      expected->tensor.num_bytes()) == 0);
  }
}

TEST_CASE("layers of nested models are found in blocks, in files of both formats") {
  const Built built(R"(
model:
  layers:
    - Input: {shape: [6]}
    - Repeat: {times: 1, name: stem, layers: [{Dense: {name: first, units: 6}}]}
    - LayerScale: {name: scale, init_values: 0.1, projection_dim: 6}
)");
  const auto paths = [&](H5File file, const std::vector<KerasGroup>& groups) {
    std::vector<std::string> out;
    for (const NamedTensor& tensor : named_by_path(std::move(file), groups, *built.model)) {
      out.push_back(tensor.name);
    }
    return out;
  };
  H5File old;
  for (const char* name :
       {"stem/first/kernel:0", "stem/first/bias:0", "scale/Variable:0", "other/kernel:0"}) {
    old.datasets.push_back({name, HostTensor(DType::kFloat32, {6})});
  }
  const std::vector<std::string> found = paths(std::move(old), {});
  REQUIRE(found.size() == 4);
  CHECK(found[0] == "stem/first/kernel");
  CHECK(found[1] == "stem/first/bias");
  CHECK(found[2] == "scale/variable");
  CHECK(found[3] == "other/kernel:0");
}

// Files of Keras 2 and whole models as .h5 name weights by their layers' paths.
TEST_CASE("weights by path are found in layers of layers, and no weight is given twice") {
  const Built built(R"(
model:
  layers:
    - Input: {shape: [3, 2]}
    - Bidirectional: {name: both, layer: {LSTM: {units: 2}}}
    - Dense: {name: head, units: 2}
)");
  const auto paths = [&](const std::vector<std::string>& names) {
    H5File file;
    for (const std::string& name : names) {
      file.datasets.push_back({name, HostTensor(DType::kFloat32, {2})});
    }
    std::vector<std::string> out;
    for (const NamedTensor& tensor : named_by_path(std::move(file), {}, *built.model)) {
      out.push_back(tensor.name);
    }
    return out;
  };
  using Names = std::vector<std::string>;
  CHECK(paths({"both/both/backward_lstm/lstm_cell_4/kernel:0",
               "both/both/forward_lstm/lstm_cell_3/kernel:0", "head/head/bias:0"}) ==
        Names{"both/backward_lstm/lstm_cell/kernel", "both/forward_lstm/lstm_cell/kernel",
              "head/bias"});
  CHECK(paths({"model_weights/both/m/both/backward_lstm/lstm_cell/bias",
               "model_weights/head/m/head/kernel", "optimizer_weights/adam/iteration",
               "model_weights/inner/m/inner/head/kernel"}) ==
        Names{"both/backward_lstm/lstm_cell/bias", "head/kernel", "inner/m/inner/head/kernel"});
}

// As ConvNeXt's weight files of Keras 3 are.
TEST_CASE("a weight file has the layers of a Sequential in a model in groups of their own") {
  const Built built(R"(
model:
  layers:
    - Input: {shape: [6]}
    - Repeat: {times: 1, name: stem, layers: [{Dense: {name: first, units: 6}}, {Dense: {name: second, units: 6}}]}
    - Dense: {name: between, units: 6}
    - Repeat: {times: 1, name: head, layers: [{Dense: {name: last, units: 6}}]}
)");
  H5File file;
  for (const char* name :
       {"layers/dense/vars/0", "layers/sequential/layers/dense/vars/0",
        "layers/sequential/layers/dense_1/vars/1", "layers/sequential_1/layers/dense/vars/0"}) {
    file.datasets.push_back({name, HostTensor(DType::kFloat32, {6, 6})});
  }
  const std::vector<KerasGroup> groups = keras_groups(*built.model, file);
  const std::vector<NamedTensor> found = named_by_path(std::move(file), groups, *built.model);
  REQUIRE(found.size() == 4);
  CHECK(found[0].name == "between/kernel");
  CHECK(found[1].name == "stem/first/kernel");
  CHECK(found[2].name == "stem/second/bias");
  CHECK(found[3].name == "head/last/kernel");
}

}  // namespace
}  // namespace meshtrain
