#include "interop/huggingface/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "base/printable.h"
#include "base/text.h"
#include "config/load.h"
#include "data/tokenizer/spec.h"
#include "engine/weights.h"
#include "interop/huggingface/config_text.h"
#include "interop/huggingface/directory.h"
#include "interop/huggingface/tensor_rules.h"
#include "nn/model.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// Buffers that older versions wrote: masks and tables that follow from the config.
bool is_buffer(const std::string& name) {
  for (const char* end :
       {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", "embeddings.position_ids"}) {
    if (ends_with(name, end)) {
      return true;
    }
  }
  return false;
}

// The tensor of a rule: with or without the prefix of the base model; norms of old BERT files end
// with gamma and beta. Empty when there is none.
std::string name_in(const HuggingFaceDirectory& directory, const TensorRule& rule,
                    HuggingFaceFamily family) {
  std::vector<std::string> names = {rule.theirs};
  if (rule.theirs.find("LayerNorm.") != std::string::npos) {
    const size_t stem = rule.theirs.rfind('.');
    names.push_back(rule.theirs.substr(0, stem) +
                    (ends_with(rule.theirs, ".weight") ? ".gamma" : ".beta"));
  }
  for (const std::string& name : names) {
    for (const std::string& prefix : {rule.in_base ? base_prefix(family) : "", std::string()}) {
      if (directory.find(prefix + name) != nullptr) {
        return prefix + name;
      }
    }
  }
  return "";
}

// A tied head may be in the file as well; then it must be the table.
void check_tied(const HuggingFaceDirectory& directory, const HuggingFaceModel& model,
                const std::string& table, std::vector<std::string>& problems) {
  const char* const head = "lm_head.weight";
  if (!model.has_head || !model.is_tied || table.empty() || directory.find(head) == nullptr) {
    return;
  }
  const HostTensor a = directory.read(table), b = directory.read(head);
  if (a.dtype() != b.dtype() || a.shape() != b.shape() ||
      std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) != 0) {
    problems.push_back(fmt::format(
        "{} differs from {}, but config.json ties them: `tie_word_embeddings` should be false",
        head, table));
  }
}

class Importer {
 public:
  Importer(const std::string& folder) : directory_(folder) {}

  HuggingFaceImport run(const std::string& config_path, const std::string& initial_weights) {
    HuggingFaceImport out;
    model_ = read_huggingface_config(directory_.config(), directory_.path_of("config.json"),
                                     out.dropped);
    const std::string pooler = "pooler.dense.weight";
    model_.has_pooler = directory_.find(pooler) != nullptr ||
                        directory_.find(base_prefix(model_.family) + pooler) != nullptr;
    if (model_.family == HuggingFaceFamily::kVit && model_.has_head) {
      model_.has_pooler = false;
    }
    out.architecture = model_.architecture;
    rules_ = tensor_rules(model_);
    match();
    if (model_.family == HuggingFaceFamily::kGpt2 || model_.family == HuggingFaceFamily::kLlama) {
      read_tokenizer(out);
    }
    warn_of_other_tokenizers(out);
    warn_of_more_ends(out);
    out.yaml = yaml(out, initial_weights);
    convert(out, config_path);
    return out;
  }

 private:
  // Finds each rule's tensor; throws with all that do not fit.
  void match() {
    std::vector<std::string> problems;
    std::set<std::string> used;
    for (const TensorRule& rule : rules_) {
      const std::string name = name_in(directory_, rule, model_.family);
      names_.push_back(name);
      used.insert(name);
      const SafetensorsReader::Entry* entry = directory_.find(name);
      if (entry == nullptr) {
        problems.push_back(
            fmt::format("missing: {} {}", file_name_of(rule, model_), shape_string(rule.shape)));
      } else if (entry->shape != rule.shape) {
        problems.push_back(fmt::format("other shape: {} is {} in the file, {} by config.json", name,
                                       shape_string(entry->shape), shape_string(rule.shape)));
      } else if (!is_floating(entry->dtype)) {
        problems.push_back(fmt::format("no floats: {} is {}", name, dtype_name(entry->dtype)));
      }
    }
    for (const auto& [name, file] : directory_.tensors()) {
      if (!used.contains(name) && !is_buffer(name) && !is_dropped(name)) {
        problems.push_back(fmt::format("unexpected: {} {}", printable(name),
                                       shape_string(directory_.find(name)->shape)));
      }
    }
    check_tied(directory_, model_, names_.empty() ? "" : names_[0], problems);
    if (!problems.empty()) {
      Diagnostics diagnostics;
      note_each(diagnostics.error(
                    "E410", {},
                    fmt::format("the tensors in `{}` are not those of a {} as its config.json "
                                "describes it",
                                directory_.folder(), model_.architecture)),
                problems);
      throw ConfigError(diagnostics);
    }
  }

  bool is_dropped(const std::string& name) const {
    return (starts_with(name, "cls.") && model_.drops_head) ||
           (name == "lm_head.weight" && (model_.is_tied || !model_.has_head));
  }

  void read_tokenizer(HuggingFaceImport& out) {
    if (!directory_.has_file("tokenizer.json") &&
        !(directory_.has_file("vocab.json") && directory_.has_file("merges.txt"))) {
      return;
    }
    try {
      std::string text = read_tokenizer_text(directory_.folder());
      parse_tokenizer(text, directory_.path_of("tokenizer.json"));
      out.tokenizer = std::move(text);
    } catch (const ConfigError& error) {
      const std::vector<Diagnostic>& list = error.diagnostics().list();
      out.dropped.push_back(list.empty() ? "the tokenizer" : list.front().message);
    }
  }

  // Tokenizers that no config of this model reads by itself.
  void warn_of_other_tokenizers(HuggingFaceImport& out) const {
    const bool is_decoder =
        model_.family == HuggingFaceFamily::kGpt2 || model_.family == HuggingFaceFamily::kLlama;
    if (is_decoder && (!out.tokenizer.empty() || directory_.has_file("tokenizer.json"))) {
      return;  // it came along, or the reason why not is there
    }
    for (const char* file : {"tokenizer.json", "vocab.txt", "tokenizer.model"}) {
      if (directory_.has_file(file)) {
        out.dropped.push_back(
            fmt::format("the tokenizer in `{}`: texts take it as `vocabulary: {{tokenizer: {}}}`",
                        printable(file), printable(directory_.folder())));
        return;
      }
    }
  }

  std::vector<int64_t> ends_of_texts() const {
    const auto found = model_.extras.token_ids.find("eos_token_id");
    return found == model_.extras.token_ids.end() ? std::vector<int64_t>() : found->second;
  }

  // `document_separator` is one id.
  void warn_of_more_ends(HuggingFaceImport& out) const {
    const std::vector<int64_t> ends = ends_of_texts();
    if (!out.tokenizer.empty() && ends.size() > 1) {
      out.dropped.push_back(fmt::format(
          "{} of `eos_token_id` as `document_separator`, which is {}, the first; `generate` ends "
          "at each",
          fmt::join(std::span(ends).subspan(1), ", "), ends[0]));
    }
  }

  std::string yaml(const HuggingFaceImport& out, const std::string& initial_weights) const {
    ConfigTextOptions options;
    fs::path folder = fs::path(directory_.folder());
    if (folder.filename().empty()) {  // "DIR/"
      folder = folder.parent_path();
    }
    options.name = folder.filename().string();
    options.name = options.name == "." || options.name == ".." ? "" : options.name;
    options.initial_weights = initial_weights;
    options.dropped = out.dropped;
    options.has_tokenizer = !out.tokenizer.empty();
    if (const std::vector<int64_t> ends = ends_of_texts(); !ends.empty()) {
      options.separator = ends[0];
    }
    return huggingface_yaml(model_, options);
  }

  // Reads the tensors one by one into the weights of the model that the config describes.
  void convert(HuggingFaceImport& out, const std::string& config_path) const {
    LoadOptions load;
    load.source = std::make_shared<SourceFile>(SourceFile{config_path, out.yaml});
    load.require_data = false;
    load.sections = {"version", "name", "vars", "blocks", "model", "dtype_policy"};
    const Config config = load_config(load);
    Diagnostics diagnostics;
    const Model model(config.model, dtype_policy(config.dtype_policy.value), diagnostics);
    diagnostics.throw_if_errors();
    std::map<std::string, Shape> shapes;
    for (const Weight* weight : model.weights()) {
      shapes.emplace(weight->path, weight->shape);
    }
    for (size_t i = 0; i < rules_.size(); ++i) {
      const TensorRule& rule = rules_[i];
      std::vector<Shape> ours;
      for (const std::string& path : rule.ours) {
        const auto found = shapes.find(path);
        MESHTRAIN_CHECK(found != shapes.end(), "no weight {}", path);
        ours.push_back(found->second);
        shapes.erase(found);
      }
      std::vector<HostTensor> parts = to_ours(rule, directory_.read(names_[i]), ours);
      for (size_t part = 0; part < parts.size(); ++part) {
        out.weights.push_back({rule.ours[part], std::move(parts[part])});
      }
    }
    MESHTRAIN_CHECK(shapes.empty(), "no tensor for {}", shapes.begin()->first);
  }

  HuggingFaceDirectory directory_;
  HuggingFaceModel model_;
  std::vector<TensorRule> rules_;
  std::vector<std::string> names_;  // of the rules' tensors in the file
};

}  // namespace

HuggingFaceImport import_huggingface(const std::string& folder, const std::string& config_path,
                                     const std::string& initial_weights) {
  return Importer(folder).run(config_path, initial_weights);
}

}  // namespace meshtrain
