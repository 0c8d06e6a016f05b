// Models of Keras Hub: tiny ones that tests/reference/hub.py made predict what they predict there.
#include "interop/keras/hub.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "data/tokenizer/spec.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode_text.h"
#include "engine/engine.h"
#include "interop/keras/import_source.h"
#include "keras_files.h"
#include "support/temp_folder.h"
#include "tensor/npz.h"
#include "tensor/zip.h"

namespace meshtrain {
namespace {

using test::caught;
using test::TempFolder;

constexpr int64_t kBatch = 4;

std::string hub_file(const std::string& name) {
  return std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/keras/hub/" + name;
}

// The weights of `source` by the paths of `model`.
std::vector<NamedTensor> weights_for(const Model& model, KerasSource source,
                                     const ImportedModel& imported) {
  const std::vector<KerasGroup> groups =
      imported.hub_class.empty() ? imported.groups : keras_groups(model, *source.weights);
  return named_by_path(std::move(*source.weights), groups, model);
}

struct HubCase {
  std::string name, tokenizer;
  ImportedModel imported;
  std::vector<NamedTensor> weights;

  explicit HubCase(const std::string& name, const std::string& preset = "") : name(name) {
    KerasSource source = read_keras_source(preset.empty() ? hub_file(name + ".keras") : preset, "");
    ImportOptions options;
    options.file = name + ".keras";
    options.weights = &*source.weights;
    options.tokenizer = tokenizer = source.tokenizer;
    for (const NamedTensor& array : read_npz(hub_file(name + ".npz"))) {
      if (array.name[0] != 'y' && array.name != "images") {
        options.shapes.push_back({array.name, {array.tensor.shape()[1]}});
      }
    }
    imported = import_keras(source.json, options);
    weights = weights_for(*test::Built(imported.yaml).model, std::move(source), imported);
  }

  std::vector<HostTensor> predict(const std::vector<std::string>& mesh) const {
    LoadOptions options;
    options.source = std::make_shared<SourceFile>(SourceFile{"imported.yaml", imported.yaml});
    options.overrides = mesh;
    options.require_data = false;
    const Config config = load_config(options);
    Dataset data;
    data.num_samples = kBatch;
    const test::Built built(imported.yaml);
    for (const int input : built.model->inputs()) {
      const std::string& own = built.model->calls()[static_cast<size_t>(input)].name;
      for (NamedTensor& array : read_npz(hub_file(name + ".npz"))) {
        if (array.name == own) {
          data.inputs.push_back({own, make_rows(std::move(array.tensor))});
        }
      }
    }
    Engine engine(config, data_spec(data), {.num_workers = 1});
    for (const NamedTensor& weight : weights) {
      engine.write_variable(weight.name, weight.tensor);
    }
    const std::vector<int64_t> rows = {0, 1, 2, 3};
    return engine.predict_step({&data, rows});
  }

  void check(const std::vector<std::string>& mesh) const {
    std::vector<HostTensor> outputs = predict(mesh);
    if (!imported.hub_class.empty() &&
        outputs.size() == 2) {  // BERT's; Keras Hub's map has `pooled_output` first
      std::swap(outputs[0], outputs[1]);
    }
    size_t i = 0;
    for (const NamedTensor& array : read_npz(hub_file(name + ".npz"))) {
      if (array.name[0] != 'y') {
        continue;
      }
      REQUIRE(i < outputs.size());
      const HostTensor& wanted = array.tensor;
      REQUIRE(outputs[i].shape() == wanted.shape());
      double worst = 0, largest = 0;
      for (int64_t j = 0; j < wanted.size(); ++j) {
        worst = std::max(worst, std::abs(outputs[i].at(j) - wanted.at(j)));
        largest = std::max(largest, std::abs(wanted.at(j)));
      }
      CHECK(worst <= 1e-5 * largest);
      ++i;
    }
    CHECK(i == outputs.size());
  }
};

const std::vector<std::string>& square_mesh() {
  static const std::vector<std::string> kMesh = {
      "distribution.type=ModelParallel", "distribution.layout_map=megatron",
      "distribution.device_mesh={shape: [2, 2], axis_names: [data, model]}"};
  return kMesh;
}

// A preset that was packed.
void unpack(const std::string& name, const TempFolder& folder) {
  const ZipReader zip(hub_file(name + ".zip"), {"E404", "E405"});
  std::filesystem::create_directories(folder.file("assets/tokenizer"));
  for (const std::string& file : zip.names()) {
    folder.write(file, zip.text(file, 1 << 20));
  }
}

TEST_CASE("models of Keras Hub predict here what they predict there") {
  for (const char* name : {"gpt2",           "gpt2_backbone", "gpt2_functional", "llama",
                           "llama_backbone", "llama_tied",    "llama3",          "mistral",
                           "roberta",        "distil_bert",   "albert",          "opt",
                           "bart",           "bert",          "bert_classifier", "bert_functional",
                           "bert_masked",    "vit",           "vit_classifier",  "vit_mean"}) {
    CAPTURE(name);
    const HubCase hub(name);
    CHECK(hub.imported.dropped.empty());
    hub.check({});
    hub.check(square_mesh());
  }
}

TEST_CASE("presets of Keras Hub bring weights of backbone and task, and their tokenizer") {
  const TempFolder gpt2, bert;
  unpack("preset_gpt2", gpt2);
  unpack("preset_bert", bert);
  CHECK(is_hub_preset(gpt2.path()));
  CHECK(!is_hub_preset(std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/huggingface/gpt2"));
  const HubCase language("preset_gpt2", gpt2.path()), classifier("preset_bert", bert.path());
  language.check({});
  classifier.check({});
  CHECK(language.imported.takes_tokenizer);
  CHECK(language.imported.yaml.find("token_ids: {eos_token_id: 0}") != std::string::npos);
  CHECK(!classifier.imported.takes_tokenizer);
  CHECK(classifier.imported.dropped ==
        std::vector<std::string>{"the preprocessor: data come as the model's inputs"});
  std::vector<int32_t> ids;
  Tokenizer(language.tokenizer, "").encode("a quick fox.<|endoftext|>", ids, "");
  CHECK(ids == std::vector<int32_t>{1, 15, 18, 19, 0});
  ids.clear();
  Tokenizer(classifier.tokenizer, "").encode("The quick fox.", ids, "");
  CHECK(ids == std::vector<int32_t>{5, 6, 7, 8, 9});
}

// The weights of a preset in two files, with Keras' index of shards. `second`: how the index names
// the second one.
void split_weights(const TempFolder& folder, const std::string& second) {
  const H5File whole = read_h5(folder.file("model.weights.h5"));
  std::vector<H5Vars> groups;
  nlohmann::json index = {{"metadata", {{"total_size", 0}}},
                          {"weight_map", nlohmann::json::object()}};
  for (const NamedTensor& dataset : whole.datasets) {
    const std::string group = dataset.name.substr(0, dataset.name.rfind('/'));
    if (groups.empty() || groups.back().group != group) {
      groups.push_back({group, "", {}});
    }
    groups.back().tensors.push_back(&dataset.tensor);
  }
  const std::span<const H5Vars> all = groups;
  write_h5(folder.file("model_00000.weights.h5"), all.first(5));
  write_h5(folder.file("model_00001.weights.h5"), all.subspan(5));
  for (size_t i = 0; i < groups.size(); ++i) {
    index["weight_map"][groups[i].group] = i < 5 ? "model_00000.weights.h5" : second;
  }
  folder.write("model.weights.json", index.dump());
  std::filesystem::remove(folder.file("model.weights.h5"));
}

TEST_CASE("a preset may have its weights in shards, which are in its folder") {
  const TempFolder whole, wrong;
  unpack("preset_gpt2", whole);
  split_weights(whole, "model_00001.weights.h5");
  HubCase("preset_gpt2", whole.path()).check({});
  unpack("preset_gpt2", wrong);
  split_weights(wrong, "../model_00001.weights.h5");
  const test::Caught error = caught([&] { read_keras_source(wrong.path(), ""); });
  CHECK(error.code == "E405");
  CHECK(
      error.says("model.weights.json`: `weight_map` has \"../model_00001.weights.h5\", which is "
                 "no file of this folder"));
}

TEST_CASE("a preset with a damaged file is one, and the file is named") {
  const TempFolder folder;
  unpack("preset_bert", folder);
  const auto error_with = [&](const char* file) {
    const std::string whole = folder.read(file);
    folder.write(file, whole.substr(0, whole.size() / 2));
    CHECK(is_hub_preset(folder.path()));
    const std::string text = caught([&] { read_keras_source(folder.path(), ""); }).text;
    folder.write(file, whole);
    return text;
  };
  CHECK(error_with("task.json").find("/task.json`") != std::string::npos);
  std::filesystem::remove(folder.file("task.json"));
  const std::string config = error_with("config.json");
  CHECK(config.find("E405") != std::string::npos);
  CHECK(config.find("/config.json`") != std::string::npos);
}

// A preset's tokenizer with these files and arguments.
struct PresetTokenizer {
  PresetTokenizer(const std::string& class_name,
                  const std::vector<std::pair<std::string, std::string>>& assets) {
    json = {{"class_name", class_name}, {"registered_name", "keras_hub>" + class_name}};
    std::filesystem::create_directories(folder.file("assets/tokenizer"));
    for (const auto& [name, text] : assets) {
      folder.write("assets/tokenizer/" + name, text);
    }
  }
  std::string text(const nlohmann::json& config) {
    json["config"] = config;
    folder.write("tokenizer.json", json.dump());
    return read_tokenizer_text(folder.path());
  }
  std::vector<int32_t> ids(const nlohmann::json& config, const std::string& of) {
    std::vector<int32_t> out;
    Tokenizer(text(config), "").encode(of, out, "");
    return out;
  }
  test::Caught error(const nlohmann::json& config) {
    return caught([&] { text(config); });
  }

  TempFolder folder;
  nlohmann::json json;
};

// The ids are Hub's.
TEST_CASE("the tokenizers of presets follow the arguments of their classes") {
  PresetTokenizer pairs("GPT2Tokenizer",
                        {{"vocabulary.json", R"({"a": 0, "\u0120": 1, "\u0120a": 2})"},
                         {"merges.txt", "#version: 0.2\n\u0120 a\n"}});
  CHECK(pairs.ids({}, "a a") == std::vector<int32_t>{0, 2});
  CHECK(pairs.ids({{"add_prefix_space", true}}, "a a") == std::vector<int32_t>{2, 2});
  CHECK(pairs.error({{"add_prefix_space", 1}})
            .says("tokenizer.json`: `config.add_prefix_space` must be true or false"));
  pairs.json["class_name"] = "Llama3Tokenizer";
  CHECK(pairs.ids({{"add_prefix_space", false}}, "a a") == std::vector<int32_t>{0, 2});
  CHECK(pairs.error({{"add_prefix_space", true}})
            .says("`config.add_prefix_space` is true, with another pattern than GPT-2's, which is "
                  "not read"));
  if (!has_unicode_tables()) {
    return;
  }
  PresetTokenizer words(
      "BertTokenizer",
      {{"vocabulary.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nqu\n@@ick\n[\n]\ncls\n[MASK]\n"}});
  nlohmann::json config = {{"lowercase", true},
                           {"strip_accents", false},
                           {"split", true},
                           {"suffix_indicator", "@@"},
                           {"oov_token", "[UNK]"},
                           {"special_tokens", nullptr},
                           {"special_tokens_in_strings", false}};
  CHECK(words.ids(config, "quick [CLS] quickx") == std::vector<int32_t>{4, 5, 6, 8, 7, 1});
  CHECK(Tokenizer(words.text(config), "").decode(std::vector<int32_t>{4, 5, 8}) == "quick cls");
  config["special_tokens_in_strings"] = true;
  CHECK(words.ids(config, "quick [CLS] quickx") == std::vector<int32_t>{4, 5, 2, 1});
  config["split"] = false;
  CHECK(words.error(config).code == "E327");
  CHECK(words.error(config).says("`config.split` is false, which is not read"));
  config["split"] = true;
  config["oov_token"] = "<unk>";
  CHECK(
      words.error(config).says("no line is `<unk>`, the token of unknown words; another one is "
                               "`oov_token` of the preset's `tokenizer.json`"));
}

TEST_CASE("layers of an ordinary model are not those of Hub, whatever their names") {
  for (const char* head : {"classifier", "logits"}) {
    CAPTURE(head);
    const test::Built built(fmt::format(R"(
model:
  layers:
    - Input: {{shape: [4, 8]}}
    - TransformerEncoder: {{name: transformer_layer_0, intermediate_dim: 8, num_heads: 2}}
    - Dense: {{name: {}, units: 3}}
)",
                                        head));
    std::vector<NamedTensor> weights;
    for (const Weight* weight : built.model->weights()) {
      weights.push_back({weight->path, HostTensor(weight->dtype, weight->shape)});
    }
    H5File file;
    for (const H5Vars& vars : keras_vars(*built.model, weights, false)) {
      for (size_t i = 0; i < vars.tensors.size(); ++i) {
        file.datasets.push_back({fmt::format("{}/{}", vars.group, i), vars.tensors[i]->clone()});
      }
    }
    CHECK(hub_groups(*built.model, file).empty());
    CHECK(named_by_path(std::move(file), keras_groups(*built.model), *built.model).size() ==
          weights.size());
  }
}

TEST_CASE("weight files of Keras Hub fit the models that were imported") {
  const HubCase task("bert_classifier");
  const test::Built model(task.imported.yaml);
  const auto missing = [&](const std::string& name) {
    std::vector<std::string> out;
    const auto given =
        weights_for(*model.model, read_keras_source(hub_file(name), ""), task.imported);
    for (const Weight* weight : model.model->weights()) {
      if (std::none_of(given.begin(), given.end(),
                       [&](const NamedTensor& each) { return each.name == weight->path; })) {
        out.push_back(weight->path);
      }
    }
    return out;
  };
  CHECK(missing("bert_classifier.keras").empty());
  CHECK(missing("bert.keras") == std::vector<std::string>{"classifier/kernel", "classifier/bias"});
}

nlohmann::json config_of_case(const char* name) {
  return parse_json(read_keras_source(hub_file(std::string(name) + ".keras"), "").json);
}

TEST_CASE("what is not read of Keras Hub is named") {
  const auto message = [](const nlohmann::json& json) {
    return caught([&] { import_keras(json.dump(), {"m.keras", "", ""}); }).text;
  };
  nlohmann::json json = config_of_case("gpt2_backbone");
  json["class_name"] = "GemmaBackbone";
  const std::string unknown = message(json);
  for (const char* part : {"E405", "Keras Hub's GemmaBackbone is not read, only GPT2Backbone,",
                           "keras.Model(model.inputs, model.outputs)"}) {
    CHECK(unknown.find(part) != std::string::npos);
  }
  json = config_of_case("mistral");
  json["config"]["backbone"]["config"].update(
      {{"new_argument", 3}, {"rope_scaling_factor", "far"}, {"vocabulary_size", nullptr}});
  const std::string wrong = message(json);
  for (const char* part : {"E416", "`new_argument` is not known here",
                           "`rope_scaling_factor` is \"far\"", "`vocabulary_size` is missing"}) {
    CHECK(wrong.find(part) != std::string::npos);
  }
  json = config_of_case("vit");
  json["config"].update({{"use_class_token", false}, {"patch_size", {4, 2}}});
  const std::string image = message(json);
  CHECK(image.find("`use_class_token` is false, not true") != std::string::npos);
  CHECK(image.find("`patch_size` is [4,2], not a square") != std::string::npos);
}

TEST_CASE("the dtype policy of Hub's models may be null, and is shown when it is not known") {
  nlohmann::json json = config_of_case("gpt2_backbone");
  json["config"]["dtype"] = nullptr;
  CHECK(import_keras(json.dump(), {"m.keras", "", ""}).yaml.find("dtype_policy") ==
        std::string::npos);
  json["config"]["dtype"] = {{"class_name", "QuantizedDTypePolicy"}};
  CHECK(caught([&] {
          import_keras(json.dump(), {"m.keras", "", ""});
        })
            .says("the dtype policy `{\"class_name\":\"QuantizedDTypePolicy\"}` is not in "
                  "meshtrain"));
}

TEST_CASE("tokens around texts are those that the table of a Hub model has") {
  const auto yaml = [](int id) {
    ImportOptions options;
    options.file = "m.keras";
    options.tokenizer = nlohmann::json{{"model",
                                        {{"type", "BPE"},
                                         {"vocab", {{"a", 0}, {"<s>", id}, {"</s>", id + 1}}},
                                         {"merges", nlohmann::json::array()}}}}
                            .dump();
    return import_keras(config_of_case("llama").dump(), options).yaml;
  };
  CHECK(yaml(1).find("start_token: \"<s>\"\n    end_token: \"</s>\"\n") != std::string::npos);
  CHECK(yaml(500).find("start_token") == std::string::npos);
  CHECK(yaml(500).find("end_token") == std::string::npos);
}

TEST_CASE("the steps of Hub's models are those of --shape, of the preprocessor or of the table") {
  const auto text = [](const char* name, const std::vector<InputShape>& shapes) {
    ImportOptions options;
    options.file = "m.keras";
    options.shapes = shapes;
    return import_keras(config_of_case(name).dump(), options).yaml;
  };
  CHECK(text("gpt2", {}).find("vars: {context: 12}") != std::string::npos);
  CHECK(text("llama", {}).find("vars: {context: 1024}") != std::string::npos);
  CHECK(text("llama", {{"token_ids", {64}}}).find("vars: {context: 64}") != std::string::npos);
  for (const std::vector<InputShape>& shapes : std::vector<std::vector<InputShape>>{
           {{"token_ids", {13}}}, {{"x", {4}}}, {{"token_ids", {4}}, {"padding_mask", {5}}}}) {
    CHECK(caught([&] { text("gpt2", shapes); }).code == "E140");
  }
}

}  // namespace
}  // namespace meshtrain
