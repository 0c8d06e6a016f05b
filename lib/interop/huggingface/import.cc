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
#include "engine/weights.h"
#include "interop/huggingface/config_text.h"
#include "interop/huggingface/directory.h"
#include "interop/huggingface/tensor_rules.h"
#include "interop/imported_tokenizer.h"
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

// A tied tensor may be in the file as well; then it must be `owner`.
void check_tied(const HuggingFaceDirectory& directory, const std::string& owner,
                const std::string& tied, bool is_masked, std::vector<std::string>& problems) {
  if (directory.find(owner) == nullptr || directory.find(tied) == nullptr) {
    return;
  }
  const HostTensor a = directory.read(owner), b = directory.read(tied);
  if (a.dtype() != b.dtype() || a.shape() != b.shape() ||
      std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) != 0) {
    problems.push_back(
        fmt::format("{} differs from {}, but config.json ties them: {}", tied, owner,
                    is_masked ? kUntiedMasked : "`tie_word_embeddings` should be false"));
  }
}

// The tensors that repeat those of other rules, by the names of both.
std::vector<std::pair<std::string, std::string>> tied_tensors(const HuggingFaceModel& model,
                                                              const std::string& table) {
  if (!model.has_head || !model.is_tied) {
    return {};
  }
  if (model.is_masked) {
    return {{table, "cls.predictions.decoder.weight"},
            {"cls.predictions.bias", "cls.predictions.decoder.bias"}};
  }
  return {{table, "lm_head.weight"}};
}

class Importer {
 public:
  Importer(const std::string& folder, const std::string& architecture)
      : directory_(folder), read_as_(architecture) {}

  HuggingFaceImport run(const std::string& config_path, const std::string& initial_weights) {
    HuggingFaceImport out;
    model_ = read_huggingface_config(directory_.config(), directory_.path_of("config.json"),
                                     out.dropped, read_as_);
    const std::string pooler = "pooler.dense.weight";
    model_.has_pooler = directory_.find(pooler) != nullptr ||
                        directory_.find(base_prefix(model_.family) + pooler) != nullptr;
    if ((model_.family == HuggingFaceFamily::kVit && model_.has_head) || model_.is_masked) {
      model_.has_pooler = false;
    }
    out.architecture = model_.architecture;
    rules_ = tensor_rules(model_);
    match();
    read_tokenizer(out);
    warn_of_unused(out);
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
    for (const auto& [owner, tied] : tied_tensors(model_, names_[0])) {
      check_tied(directory_, owner, tied, model_.is_masked, problems);
    }
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
    constexpr const char* kHeads[] = {"cls.", "classifier.", "lm_head."};
    const bool is_of_head = std::any_of(std::begin(kHeads), std::end(kHeads),
                                        [&](const char* head) { return starts_with(name, head); });
    return (is_of_head && model_.drops_head) || is_unused_by_masked(name) ||
           (model_.is_masked && starts_with(name, "cls.predictions.decoder.")) ||
           (name == "lm_head.weight" && (model_.is_tied || !model_.has_head));
  }

  // Parts of a BertForPreTraining that its BertForMaskedLM does not have.
  bool is_unused_by_masked(const std::string& name) const {
    return model_.is_masked && (name.find("pooler.") != std::string::npos ||
                                starts_with(name, "cls.seq_relationship."));
  }

  void warn_of_unused(HuggingFaceImport& out) const {
    for (const auto& [name, file] : directory_.tensors()) {
      if (is_unused_by_masked(name)) {
        out.dropped.push_back(
            "the pooler and the head of next sentences: a BertForMaskedLM has none");
        return;
      }
    }
  }

  bool is_decoder() const {
    return model_.family == HuggingFaceFamily::kGpt2 || model_.family == HuggingFaceFamily::kLlama;
  }

  bool has_tokenizer() const {
    constexpr const char* kFiles[] = {"tokenizer.json", "vocab.txt", "tokenizer.model",
                                      "spiece.model"};
    const auto has = [&](const char* file) { return directory_.has_file(file); };
    return std::any_of(std::begin(kFiles), std::end(kFiles), has) ||
           (has("vocab.json") && has("merges.txt"));
  }

  void read_tokenizer(HuggingFaceImport& out) const {
    if (!has_tokenizer()) {
      return;
    }
    ImportedTokenizer read = import_tokenizer(directory_.folder());
    if (!read.problem.empty()) {
      out.dropped.push_back("the tokenizer: " + read.problem);
      return;
    }
    out.tokenizer = std::move(read.text);
    out.takes_tokenizer = is_decoder();
  }

  std::vector<int64_t> ends_of_texts() const {
    const auto found = model_.extras.token_ids.find("eos_token_id");
    return found == model_.extras.token_ids.end() ? std::vector<int64_t>() : found->second;
  }

  // `document_separator` is one id.
  void warn_of_more_ends(HuggingFaceImport& out) const {
    const std::vector<int64_t> ends = ends_of_texts();
    if (out.takes_tokenizer && ends.size() > 1) {
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
    options.has_tokenizer = out.takes_tokenizer;
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
  std::string read_as_;
  HuggingFaceModel model_;
  std::vector<TensorRule> rules_;
  std::vector<std::string> names_;  // of the rules' tensors in the file
};

}  // namespace

HuggingFaceImport import_huggingface(const std::string& folder, const std::string& config_path,
                                     const std::string& initial_weights,
                                     const std::string& architecture) {
  return Importer(folder, architecture).run(config_path, initial_weights);
}

}  // namespace meshtrain
