// Directories of Hugging Face's transformers: tiny models that tests/reference/huggingface.py made
// predict what they predict there, and come back bit for bit. What cannot be read is refused.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "config/resolve.h"
#include "data/tokenizer/unicode_text.h"
#include "engine/engine.h"
#include "interop/huggingface/export.h"
#include "interop/huggingface/import.h"
#include "keras_files.h"
#include "support/temp_folder.h"
#include "tensor/safetensors.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Caught;
using test::caught;
using test::TempFolder;

constexpr int64_t kSteps = 7, kBatch = 2;

const std::vector<std::string>& models() {
  static const std::vector<std::string> kNames = {
      "gpt2",    "gpt2_base", "llama2",          "llama_linear", "llama31",
      "mistral", "bert",      "bert_classifier", "bert_masked",  "vit"};
  return kNames;
}

std::string folder_of(const std::string& name) {
  return std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/huggingface/" + name;
}

HuggingFaceImport import_golden(const std::string& name) {
  return import_huggingface(folder_of(name), "config.yaml", "weights.safetensors");
}

Config config_of(const HuggingFaceImport& imported, const std::vector<std::string>& overrides) {
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"config.yaml", imported.yaml});
  options.overrides = overrides;
  options.require_data = false;
  return load_config(options);
}

HuggingFaceExtras extras_of(const HuggingFaceImport& imported) {
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"config.yaml", imported.yaml});
  options.require_data = false;
  const ModelConfig model = load_config(options).model;
  return {model.token_ids, model.class_names};
}

// The tensors of all safetensors files of a model in `folder`.
std::map<std::string, HostTensor> tensors_in(const std::string& folder) {
  std::map<std::string, HostTensor> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("model") &&
        entry.path().extension() == ".safetensors") {
      for (NamedTensor& tensor : read_safetensors(entry.path().string()).tensors) {
        out.emplace(tensor.name, std::move(tensor.tensor));
      }
    }
  }
  return out;
}

std::vector<HostTensor> predicted(const HuggingFaceImport& imported, const std::string& name) {
  const Config config = config_of(
      imported, name == "vit" ? std::vector<std::string>{}
                              : std::vector<std::string>{fmt::format("vars.context={}", kSteps)});
  const SafetensorsReader given(folder_of(name) + "/expected.safetensors");
  Dataset data;
  data.num_samples = kBatch;
  for (const char* input :
       {"token_ids", "segment_ids", "padding_mask", "mask_positions", "images"}) {
    if (const auto* entry = given.find(std::string("input_") + input)) {
      data.inputs.push_back({input, make_rows(given.read(*entry))});
    }
  }
  Engine engine(config, data_spec(data), {.num_workers = 1});
  for (const NamedTensor& weight : imported.weights) {
    engine.write_variable(weight.name, weight.tensor);
  }
  const std::vector<int64_t> rows = {0, 1};
  return engine.predict_step({&data, rows});
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
}

// A copy of a model's files whose config.json can be changed.
struct Copy {
  explicit Copy(const std::string& name) {
    fs::copy(folder_of(name), folder.path(), fs::copy_options::recursive);
    fs::remove(folder.file("expected.safetensors"));
  }
  Json config() const { return parse_json(folder.read("config.json")); }
  void set(const std::string& key, const Json& value) const {
    Json json = config();
    json[key] = value;
    folder.write("config.json", json.dump());
  }
  void write_tensors(std::map<std::string, HostTensor> tensors) const {
    std::vector<NamedTensor> list;
    for (auto& [name, tensor] : tensors) {
      list.push_back({name, std::move(tensor)});
    }
    write_safetensors(folder.file("model.safetensors"), list);
  }
  Caught error() const {
    return caught([&] { import_huggingface(folder.path(), "config.yaml", "w"); });
  }

  TempFolder folder;
};

TEST_CASE("Hugging Face models predict here what they predict in transformers") {
  for (const std::string& name : models()) {
    CAPTURE(name);
    const HuggingFaceImport imported = import_golden(name);
    CHECK(imported.dropped.empty());
    const std::vector<HostTensor> outputs = predicted(imported, name);
    const SafetensorsReader expected(folder_of(name) + "/expected.safetensors");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto* entry = expected.find(fmt::format("output_{}", i));
      REQUIRE(entry != nullptr);
      const HostTensor wanted = expected.read(*entry);
      REQUIRE(outputs[i].shape() == wanted.shape());
      double worst = 0;
      for (int64_t j = 0; j < wanted.size(); ++j) {
        worst = std::max(worst, std::abs(outputs[i].at(j) - wanted.at(j)));
      }
      CHECK(worst <= 1e-5);
    }
    CHECK(expected.find(fmt::format("output_{}", outputs.size())) == nullptr);
  }
}

TEST_CASE("Hugging Face models come back bit for bit, in their dtypes") {
  for (const std::string& name : models()) {
    CAPTURE(name);
    const HuggingFaceImport imported = import_golden(name);
    const Config config = config_of(imported, {});
    const Setup setup(config, nullptr);
    const TempFolder folder;
    const int64_t most = name == "llama31" ? 20'000 : kHuggingFaceShardBytes;
    const auto files =
        export_huggingface(setup, imported.weights, folder.path(), most, extras_of(imported));
    CHECK(files.size() == (name == "llama31" ? 4 : 2));
    const auto given = tensors_in(folder_of(name)), back = tensors_in(folder.path());
    CHECK(given.size() == back.size());
    for (const auto& [tensor, value] : given) {
      CAPTURE(tensor);
      const auto found = back.find(tensor);
      REQUIRE(found != back.end());
      CHECK(same_bits(found->second, value));
    }
    // The written config.json says the same as the one that was read.
    std::string again =
        import_huggingface(folder.path(), "config.yaml", "weights.safetensors").yaml;
    const auto model_text = [](const std::string& yaml) { return yaml.substr(yaml.find("\n\n")); };
    CHECK(model_text(again) == model_text(imported.yaml));
  }
}

TEST_CASE("Hugging Face: an export replaces the weights of an earlier one and nothing else") {
  const HuggingFaceImport imported = import_golden("llama31");
  const Config config = config_of(imported, {});
  const Setup setup(config, nullptr);
  const TempFolder folder;
  for (const char* other : {"model_card.md", "model-old.safetensors", "pytorch_model.bin"}) {
    folder.write(other, "kept");
  }
  const auto names = [&] {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      out.insert(entry.path().filename().string());
    }
    return out;
  };
  const auto exported = [&](int64_t most) {
    export_huggingface(setup, imported.weights, folder.path(), most);
  };
  const std::set<std::string> kept = {"config.json", "model_card.md", "model-old.safetensors",
                                      "pytorch_model.bin"};
  std::set<std::string> whole = kept, shards = kept;
  whole.insert("model.safetensors");
  shards.insert({"model.safetensors.index.json", "model-00001-of-00002.safetensors",
                 "model-00002-of-00002.safetensors"});
  exported(kHuggingFaceShardBytes);
  CHECK(names() == whole);
  exported(20'000);
  CHECK(names() == shards);
  exported(kHuggingFaceShardBytes);
  CHECK(names() == whole);
}

// config.json of an export of what an import of `copy` gives.
Json exported_config(const Copy& copy) {
  const HuggingFaceImport imported = import_huggingface(copy.folder.path(), "config.yaml", "w");
  const Config config = config_of(imported, {});
  const Setup setup(config, nullptr);
  const TempFolder folder;
  export_huggingface(setup, imported.weights, folder.path(), kHuggingFaceShardBytes,
                     extras_of(imported));
  return parse_json(folder.read("config.json"));
}

TEST_CASE("Hugging Face: ids of special tokens come back") {
  for (const char* name : {"gpt2", "llama2"}) {
    const Copy copy(name);
    copy.set("bos_token_id", 7);
    copy.set("eos_token_id", Json::array({9, 5}));
    copy.set("pad_token_id", 8);
    const Json config = exported_config(copy);
    CHECK(config.at("bos_token_id") == 7);
    CHECK(config.at("eos_token_id") == Json::array({9, 5}));
    CHECK(config.at("pad_token_id") == 8);
  }
  // transformers' default where the field is absent; null where the model has no such id.
  const Copy llama("llama2");
  Json json = llama.config();
  json.erase("bos_token_id");
  json.erase("eos_token_id");
  llama.folder.write("config.json", json.dump());
  CHECK(exported_config(llama).at("bos_token_id") == 1);
  CHECK(exported_config(llama).at("eos_token_id") == 2);
  const Copy gpt2("gpt2");
  json = gpt2.config();
  json.erase("bos_token_id");
  json["eos_token_id"] = 50256;
  gpt2.folder.write("config.json", json.dump());
  CHECK(exported_config(gpt2).at("bos_token_id").is_null());
  CHECK(exported_config(gpt2).at("eos_token_id").is_null());
  const auto dropped = import_huggingface(gpt2.folder.path(), "config.yaml", "w").dropped;
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0] == "`eos_token_id` 50256: the model has the ids 0 to 39");
}

TEST_CASE("Hugging Face: the head of a masked language model is its table, or is left out") {
  const Copy copy("bert_masked");
  const auto read = [&](const std::string& architecture) {
    return import_huggingface(copy.folder.path(), "config.yaml", "w", architecture);
  };
  // Files of a BertForPreTraining have more, and the head's tensors once more.
  auto tensors = tensors_in(folder_of("bert_masked"));
  tensors.emplace("cls.predictions.decoder.bias", tensors.at("cls.predictions.bias").clone());
  tensors.emplace("cls.seq_relationship.bias", HostTensor(DType::kFloat32, {2}));
  tensors.emplace("bert.pooler.dense.weight", HostTensor(DType::kFloat32, {32, 32}));
  tensors.emplace("bert.pooler.dense.bias", HostTensor(DType::kFloat32, {32}));
  copy.write_tensors(std::move(tensors));
  const HuggingFaceImport masked = read("");
  CHECK(masked.architecture == "BertForMaskedLM");
  REQUIRE(masked.dropped.size() == 1);
  CHECK(masked.dropped[0].find("the pooler") != std::string::npos);
  CHECK(masked.yaml.find("token_embedding: token_embedding") != std::string::npos);
  const HuggingFaceImport base = read("BertModel");
  CHECK(base.architecture == "BertModel");
  CHECK(base.yaml.find("pooled_dense") != std::string::npos);
  CHECK(base.yaml.find("MaskedLMHead") == std::string::npos);
  CHECK(caught([&] { read("BertForQuestions"); }).says("BertForQuestions, which is not read"));
  copy.set("tie_word_embeddings", false);
  CHECK(
      copy.error().says(fmt::format("{}/config.json: `tie_word_embeddings` is false: an untied "
                                    "head is not read; `--architecture BertModel` leaves the "
                                    "head out",
                                    copy.folder.path())));
  CHECK(read("BertModel").architecture == "BertModel");
  copy.set("tie_word_embeddings", true);
  tensors = tensors_in(copy.folder.path());
  tensors.at("cls.predictions.decoder.bias").set(0, 9);
  copy.write_tensors(std::move(tensors));
  CHECK(copy.error().says(
      "cls.predictions.decoder.bias differs from cls.predictions.bias, but config.json ties them: "
      "an untied head is not read; `--architecture BertModel` leaves the head out"));
}

TEST_CASE("Hugging Face: a model of another type is not read as an architecture") {
  const Copy copy("mistral");
  const auto read = [&](const std::string& architecture) {
    return import_huggingface(copy.folder.path(), "config.yaml", "w", architecture);
  };
  CHECK(read("").yaml.find("sliding_window: 3\n") != std::string::npos);
  const Caught window = caught([&] { read("LlamaForCausalLM"); });
  CHECK(window.code == "E416");
  CHECK(window.says("`model_type` is \"mistral\", not `llama`, that of a LlamaForCausalLM"));
  // null: attention sees all steps; absent: transformers' default.
  copy.set("sliding_window", nullptr);
  CHECK(read("").yaml.find("sliding_window") == std::string::npos);
  CHECK(exported_config(copy).at("architectures") == Json::array({"LlamaForCausalLM"}));
  Json json = copy.config();
  json.erase("sliding_window");
  copy.folder.write("config.json", json.dump());
  CHECK(read("").yaml.find("sliding_window: 4096\n") != std::string::npos);
  copy.set("model_type", "gemma");
  CHECK(caught([&] { read("LlamaForCausalLM"); }).says("`model_type` is \"gemma\", not `llama`"));
}

TEST_CASE("Hugging Face: the first of several ends is the document separator") {
  const Copy copy("gpt2");
  fs::copy(std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/gpt2/tokenizer.json",
           copy.folder.path());
  copy.set("eos_token_id", Json::array({9, 5, 6}));
  const HuggingFaceImport imported = import_huggingface(copy.folder.path(), "config.yaml", "w");
  CHECK(imported.yaml.find("document_separator: 9\n") != std::string::npos);
  REQUIRE(imported.dropped.size() == 1);
  CHECK(imported.dropped[0] ==
        "5, 6 of `eos_token_id` as `document_separator`, which is 9, the first; `generate` ends at "
        "each");
}

TEST_CASE("Hugging Face: names of classes come back") {
  for (const char* name : {"bert_classifier", "vit"}) {
    Json labels = {{"0", "cat, \"big\""}, {"1", "yes"}, {"2", "2"}};
    if (name == std::string("vit")) {
      labels.update({{"3", "d"}, {"4", "null"}});
    }
    const Copy copy(name);
    copy.set("id2label", labels);
    const Json config = exported_config(copy);
    CHECK(config.at("id2label") == labels);
    CHECK(config.at("label2id").at("yes") == 1);
  }
  const HuggingFaceImport imported = import_golden("vit");
  const Config config = config_of(imported, {});
  const Setup setup(config, nullptr);
  const TempFolder folder;
  const Caught error = caught([&] {
    export_huggingface(setup, imported.weights, folder.path(), kHuggingFaceShardBytes,
                       {.token_ids = {}, .class_names = {"a", "b"}});
  });
  CHECK(error.code == "E417");
  CHECK(error.says("`model.class_names` has 2 names, the model 5 classes"));
}

TEST_CASE("Hugging Face: the kind of problem chooses the loss") {
  const Copy copy("bert_classifier");
  const auto yaml = [&] { return import_huggingface(copy.folder.path(), "config.yaml", "w").yaml; };
  CHECK(yaml().find("SparseCategoricalCrossentropy") != std::string::npos);
  copy.set("problem_type", "regression");
  CHECK(yaml().find("loss: MeanSquaredError") != std::string::npos);
  CHECK(yaml().find("# not taken over: `problem_type: regression`") != std::string::npos);
  copy.set("problem_type", "multi_label_classification");
  CHECK(yaml().find("loss: {BinaryCrossentropy: {from_logits: true}}") != std::string::npos);
}

TEST_CASE("Hugging Face: prefixes may lack, old names and buffers are known") {
  const Copy bert("bert_classifier");
  std::map<std::string, HostTensor> old;
  for (auto& [name, tensor] : tensors_in(bert.folder.path())) {
    std::string other = name;
    if (const size_t norm = name.find("LayerNorm."); norm != std::string::npos) {
      other =
          name.substr(0, norm) + (name.ends_with("weight") ? "LayerNorm.gamma" : "LayerNorm.beta");
    }
    old.emplace(other.starts_with("bert.") ? other.substr(5) : other, std::move(tensor));
  }
  old.emplace("embeddings.position_ids", HostTensor(DType::kInt64, {1, 12}));
  bert.write_tensors(std::move(old));
  CHECK(bert.error().text == "");

  const Copy gpt2("gpt2");
  auto tensors = tensors_in(gpt2.folder.path());
  tensors.emplace("transformer.h.0.attn.bias", HostTensor(DType::kUInt8, {1, 1, 12, 12}));
  tensors.emplace("transformer.h.1.attn.masked_bias", HostTensor(DType::kFloat32, {}));
  tensors.emplace("lm_head.weight", tensors.at("transformer.wte.weight").clone());
  gpt2.write_tensors(std::move(tensors));
  CHECK(gpt2.error().text == "");

  tensors = tensors_in(gpt2.folder.path());
  tensors.at("lm_head.weight").set(5, 1000);
  gpt2.write_tensors(std::move(tensors));
  CHECK(gpt2.error().says("lm_head.weight differs from transformer.wte.weight"));
}

TEST_CASE("Hugging Face: heads of other tasks are left out, with a word") {
  const Copy bert("bert");
  auto tensors = tensors_in(bert.folder.path());
  tensors.emplace("cls.predictions.bias", HostTensor(DType::kFloat32, {40}));
  bert.write_tensors(std::move(tensors));
  CHECK(bert.error().says("unexpected: cls.predictions.bias"));
  bert.set("architectures", Json::array({"BertForPreTraining"}));
  const HuggingFaceImport imported = import_huggingface(bert.folder.path(), "config.yaml", "w");
  REQUIRE(imported.dropped.size() == 1);
  CHECK(imported.dropped[0] == "the head (`cls`) of BertForPreTraining");
  CHECK(imported.architecture == "BertModel");
}

TEST_CASE("Hugging Face: a tokenizer comes along") {
  const Copy copy("gpt2");
  const std::string tokenizers = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/tokenizers/";
  fs::copy(tokenizers + "gpt2/tokenizer.json", copy.folder.path());
  const HuggingFaceImport with = import_huggingface(copy.folder.path(), "config.yaml", "w");
  CHECK(with.tokenizer == copy.folder.read("tokenizer.json"));
  CHECK(with.yaml.find("vocabulary: {tokenizer: .}") != std::string::npos);
  CHECK(with.yaml.find("document_separator: 0") != std::string::npos);
  copy.folder.write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": {"a": 0}}})");
  const HuggingFaceImport without = import_huggingface(copy.folder.path(), "config.yaml", "w");
  CHECK(without.tokenizer.empty());
  REQUIRE(without.dropped.size() == 1);
  CHECK(without.dropped[0].find("Unigram") != std::string::npos);
  CHECK(without.yaml.find("# not taken over: ") != std::string::npos);
  CHECK(without.yaml.find("vocabulary") == std::string::npos);

  // A BERT's data are its user's: they name the tokenizer that is beside the config.
  if (!has_unicode_tables()) {
    return;
  }
  const Copy bert("bert_classifier");
  fs::copy(tokenizers + "bert_files/vocab.txt", bert.folder.path());
  const HuggingFaceImport encoder = import_huggingface(bert.folder.path(), "config.yaml", "w");
  CHECK(encoder.dropped.empty());
  CHECK(encoder.tokenizer.find("BertNormalizer") != std::string::npos);
  CHECK(!encoder.takes_tokenizer);
  CHECK(encoder.yaml.find("vocabulary") == std::string::npos);
  bert.folder.write("vocab.txt", "[PAD]\n");
  CHECK(import_huggingface(bert.folder.path(), "config.yaml", "w").dropped.at(0) ==
        fmt::format("the tokenizer: `{}/vocab.txt`: no line is `[UNK]`, the token of unknown "
                    "words; another one is `unk_token` of `tokenizer_config.json`",
                    bert.folder.path()));
}

TEST_CASE("Hugging Face: a config.json that is not supported is refused with the field") {
  struct Case {
    std::string model, key;
    Json value;
    std::string says;
  };
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}};
  const Json crossed = {{"rope_type", "llama3"}, {"low_freq_factor", 4}, {"high_freq_factor", 1}};
  for (const Case& c : std::vector<Case>{
           {"gpt2",
            "architectures",
            {"T5ForConditionalGeneration"},
            "is a T5ForConditionalGeneration"},
           {"gpt2", "architectures", {"GPT2ForSequenceClassification"}, "which is not read"},
           {"gpt2", "n_head", 5, "5 heads do not divide the width of 32"},
           {"gpt2", "n_head", 0, "`n_head` is 0, not a whole number from 1 to 2147483647"},
           {"gpt2", "n_layer", 2000000000, "is 2000000000, not a whole number from 1 to 10000"},
           {"gpt2", "n_layer", "two", "`n_layer` is \"two\", not a whole number"},
           {"gpt2", "activation_function", "quick_gelu", "`activation_function` is \"quick_gelu\""},
           {"gpt2", "layer_norm_epsilon", -1, "`layer_norm_epsilon` is -1, not a number"},
           {"gpt2", "attn_pdrop", 1.0, "`attn_pdrop` is 1.0, not a rate below 1"},
           {"gpt2", "scale_attn_weights", false, "`scale_attn_weights` is false, not true"},
           {"gpt2", "scale_attn_by_inverse_layer_idx", true, "`scale_attn_by_inverse_layer_idx`"},
           {"gpt2", "add_cross_attention", true, "`add_cross_attention` is true, not false"},
           {"gpt2", "tie_word_embeddings", "yes", "`tie_word_embeddings` is \"yes\", not true or"},
           {"llama2", "num_key_value_heads", 3, "4 is no multiple of `num_key_value_heads` 3"},
           {"llama2", "rope_parameters", yarn,
            "`rope_parameters.rope_type` is \"yarn\", not one of"},
           {"llama2", "rope_parameters", crossed, "`rope_parameters.low_freq_factor` is not below"},
           {"llama2", "rope_parameters", 3, "`rope_parameters` is 3, not an object"},
           {"bert", "position_embedding_type", "relative_key", "`position_embedding_type`"},
           {"bert", "hidden_dropout_prob", 1.5, "`hidden_dropout_prob` is 1.5, not a rate below 1"},
           {"bert", "is_decoder", true, "`is_decoder` is true, not false"},
           {"vit", "qkv_bias", false, "`qkv_bias` is false, not true"},
           {"vit", "patch_size", 5, "`patch_size` 5 does not divide `image_size` 12 x 12"}}) {
    CAPTURE(c.key);
    const Copy copy(c.model);
    copy.set(c.key, c.value);
    const Caught error = copy.error();
    CAPTURE(error.text);
    CHECK(error.code == "E416");
    CHECK(error.exit_code == 6);
    CHECK(error.says("config.json"));
    CHECK(error.says(c.says));
  }
}

TEST_CASE("Hugging Face: every tensor that does not fit is named") {
  const Copy copy("gpt2");
  auto tensors = tensors_in(copy.folder.path());
  tensors.erase("transformer.h.1.mlp.c_fc.bias");
  tensors.at("transformer.ln_f.bias") = HostTensor(DType::kFloat32, {31});
  tensors.at("transformer.ln_f.weight") = HostTensor(DType::kInt32, {32});
  tensors.emplace("transformer.h.2.ln_1.weight", HostTensor(DType::kFloat32, {32}));
  copy.write_tensors(std::move(tensors));
  const Caught error = copy.error();
  CAPTURE(error.text);
  CHECK(error.code == "E410");
  CHECK(error.exit_code == 6);
  CHECK(error.says("are not those of a GPT2LMHeadModel"));
  CHECK(error.says("missing: transformer.h.1.mlp.c_fc.bias (48,)"));
  CHECK(
      error.says("other shape: transformer.ln_f.bias is (31,) in the file, (32,) by config.json"));
  CHECK(error.says("no floats: transformer.ln_f.weight is int32"));
  CHECK(error.says("unexpected: transformer.h.2.ln_1.weight (32,)"));
  // An untied head that is not there.
  const Copy untied("gpt2");
  untied.set("tie_word_embeddings", false);
  CHECK(untied.error().says("missing: lm_head.weight (40, 32)"));
}

TEST_CASE("Hugging Face: files that are missing, damaged or pickled are refused") {
  const auto error_of = [](const Copy& copy, const std::string& code, const std::string& says) {
    const Caught error = copy.error();
    CAPTURE(error.text);
    CHECK(error.code == code);
    CHECK(error.exit_code == 6);
    CHECK(error.says(says));
  };
  {
    const Copy copy("llama31");
    fs::remove(copy.folder.file("model-00002-of-00002.safetensors"));
    error_of(copy, "E404", "names 1 of 2 shards that are not there: model-00002-of-00002");
  }
  {
    const Copy copy("llama31");
    const std::string whole = copy.folder.read("model-00001-of-00002.safetensors");
    copy.folder.write("model-00001-of-00002.safetensors", whole.substr(0, whole.size() - 5));
    error_of(copy, "E405", "model-00001-of-00002.safetensors");
    copy.folder.write("model-00001-of-00002.safetensors", "");
    error_of(copy, "E405", "truncated?");
  }
  for (const auto& [index, says] : std::vector<std::pair<std::string, std::string>>{
           {"{", "no object `weight_map`"},
           {R"({"weight_map": {}})", "no object `weight_map`"},
           {R"({"weight_map": {"a": "../model.safetensors"}})", "no .safetensors file of the same"},
           {R"({"weight_map": {"a": 3}})", "no .safetensors file of the same folder"},
           {R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})",
            "`a` is not in `model-"}}) {
    const Copy copy("llama31");
    copy.folder.write("model.safetensors.index.json", index);
    error_of(copy, "E405", says);
  }
  for (const auto& [config, says] : std::vector<std::pair<std::string, std::string>>{
           {R"({"n_embd": NaN})", "config.json` has `NaN`, which is no number of JSON"},
           {R"({"n_embd": )", "config.json` is no JSON: truncated?"},
           {R"(["n_embd"])", "config.json` is a JSON array, not an object of fields"}}) {
    const Copy copy("gpt2");
    copy.folder.write("config.json", config);
    error_of(copy, "E405", says);
  }
  const Copy copy("gpt2");
  fs::remove(copy.folder.file("model.safetensors"));
  error_of(copy, "E404", "has no model.safetensors");
  copy.folder.write("pytorch_model.bin", "PK");
  error_of(copy, "E415", "pytorch_model.bin`: pickled files can run code and are never read");
  CHECK(copy.error().says("safe_serialization=True"));
  copy.folder.write("config.json", "{\"architectures\"");
  copy.folder.write("model.safetensors", "");
  error_of(copy, "E405", "truncated?");
  fs::remove(copy.folder.file("config.json"));
  error_of(copy, "E404", "has no config.json");
}

// transformers' classifiers of images have no pooler, and those of texts have one.
TEST_CASE("Hugging Face: a classifier whose pooler transformers would not have is not exported") {
  const std::string first = "    - Dense: {name: classifier",
                    pooler = "    - Dense: {name: pooled_dense, units: 32, activation: tanh}\n";
  for (const char* name : {"vit", "bert_classifier"}) {
    HuggingFaceImport imported = import_golden(name);
    const size_t own = imported.yaml.find(pooler);
    if (own != std::string::npos) {
      imported.yaml.erase(own, pooler.size());
    } else {
      imported.yaml.insert(imported.yaml.find(first), pooler);
    }
    const Config config = config_of(imported, {});
    const Setup setup(config, nullptr);
    const TempFolder folder;
    const Caught error = caught([&] {
      export_huggingface(setup, {}, folder.path(), kHuggingFaceShardBytes, extras_of(imported));
    });
    CHECK(error.code == "E417");
    CHECK(error.says(fmt::format("a classifier {} the Dense `pooled_dense` cannot be expressed",
                                 own == std::string::npos ? "with" : "without")));
  }
}

// A config that nobody imported, with the layers of one that was.
TEST_CASE("Hugging Face: the language models of configs/ are exported; other models are refused") {
  const std::string configs = std::string(MESHTRAIN_SOURCE_DIR) + "/configs/";
  const auto exported = [&](const std::string& file, const std::vector<std::string>& overrides,
                            const std::string& folder) {
    LoadOptions options;
    options.files = {configs + file};
    options.overrides = overrides;
    options.require_data = false;
    const Config config = load_config(options);
    const Setup setup(config, nullptr);
    std::vector<NamedTensor> weights;
    for (const Weight* weight : setup.model().weights()) {
      weights.push_back({weight->path, HostTensor(weight->dtype, weight->shape)});
    }
    export_huggingface(setup, weights, folder);
  };
  const std::vector<std::string> alone = {"~distribution"};
  {
    const TempFolder folder;
    exported("llama_tiny.yaml", alone, folder.path());
    const Json config = parse_json(folder.read("config.json"));
    CHECK(config["architectures"][0] == "LlamaForCausalLM");
    CHECK(config["num_key_value_heads"] == 2);
    CHECK(config["max_position_embeddings"] == 64);
    CHECK(tensors_in(folder.path()).at("lm_head.weight").shape() == Shape{41, 64});
  }
  {
    const TempFolder folder;
    exported("gpt2_124m.yaml", {"~distribution", "vars.depth=1", "vars.tokens=300", "vars.pad=1"},
             folder.path());
    const Json config = parse_json(folder.read("config.json"));
    CHECK(config["architectures"][0] == "GPT2LMHeadModel");
    CHECK(config["n_head"] == 12);
    CHECK(config["activation_function"] == "gelu_new");
    CHECK(config["tie_word_embeddings"] == true);
  }
  const TempFolder folder;
  const Caught other = caught([&] { exported("mnist_convnet.yaml", alone, folder.path()); });
  CHECK(other.code == "E417");
  CHECK(other.says("cannot be expressed as a Hugging Face model"));
  const Caught changed = caught([&] {
    exported("llama_tiny.yaml",
             {"~distribution",
              "blocks.DecoderLayer.layers.0={RMSNormalization: {name: "
              "self_attention_layernorm, inputs: x, epsilon: 1e-3}}"},
             folder.path());
  });
  CAPTURE(changed.text);
  CHECK(changed.code == "E417");
  CHECK(folder.num_files() == 0);
}

}  // namespace
}  // namespace meshtrain
