#include "interop/keras/hub.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/printable.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"
#include "interop/huggingface/config_text.h"
#include "interop/keras/hub_config.h"
#include "interop/keras/import_compile.h"

namespace meshtrain {
namespace {

// `sequence_length` of Hub's preprocessors of texts.
constexpr int64_t kHubSteps = 1024;

class HubImporter {
 public:
  HubImporter(const Json& json, const ImportOptions& options)
      : options_(options), json_(json), hub_(read_hub_config(json, options)), model_(hub_.model) {}

  ImportedModel run() {
    find_tokens();
    ImportedModel out;
    out.hub_class = model_.architecture;
    out.yaml = huggingface_yaml(model_, text_options());
    out.dropped = std::move(hub_.dropped);
    out.takes_tokenizer = takes_tokenizer();
    return out;
  }

 private:
  // Texts of decoders, as of Hugging Face's: others take a tokenizer where their data need it.
  bool takes_tokenizer() const { return model_.has_padding_mask && !options_.tokenizer.empty(); }

  // Hub has the tokens around texts in the code of its tokenizers. `generate` ends at those behind.
  void find_tokens() {
    if (!takes_tokenizer()) {
      return;
    }
    const Tokenizer tokenizer(options_.tokenizer, options_.file);
    const auto id_of = [&](const char* token) {
      const std::optional<int32_t> id = tokenizer.find(token);
      return id && *id < model_.tokens ? id : std::nullopt;
    };
    for (const char* token : {"<|endoftext|>", "<|begin_of_text|>", "<s>"}) {
      start_ = start_.empty() && id_of(token) ? token : start_;
    }
    for (const char* token : {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>"}) {
      if (const std::optional<int32_t> id = id_of(token)) {
        end_ = end_.empty() ? token : end_;
        model_.extras.token_ids["eos_token_id"].push_back(*id);
      }
    }
  }

  ConfigTextOptions text_options() {
    ConfigTextOptions out;
    const std::filesystem::path file = options_.file;
    out.name = (file.extension() == ".keras" ? file.stem() : file.filename()).string();
    out.initial_weights = options_.initial_weights;
    out.dtype_policy = hub_.dtype_policy;
    const GivenSizes given = given_sizes();
    const int64_t own = steps_of_preprocessor();
    out.context = given.steps == 0 ? own : given.steps;
    out.masks = given.masks;
    out.has_tokenizer = takes_tokenizer();
    out.start_token = start_;
    out.end_token = end_;
    KerasModel compiled;
    compiled.compile = json_.value("compile_config", Json());
    compiled.outputs = {{"output", 0}};
    out.compile = imported_compile(compiled, {"output"}, hub_.dropped);
    out.dropped = hub_.dropped;
    return out;
  }

  int64_t most_steps() const {
    return model_.positions == 0 ? std::numeric_limits<int32_t>::max() : model_.positions;
  }

  // Those of the preprocessor, or as many as there are positions.
  int64_t steps_of_preprocessor() {
    const Json* preprocessor = find_member(json_.at("config"), "preprocessor");
    const Json* settings = preprocessor != nullptr && preprocessor->is_object()
                               ? find_member(*preprocessor, "config")
                               : nullptr;
    const bool has_settings = settings != nullptr && settings->is_object();
    const Json steps = has_settings ? settings->value("sequence_length", Json()) : Json();
    if (settings != nullptr && !takes_tokenizer()) {
      hub_.dropped.push_back("the preprocessor: data come as the model's inputs");
    }
    const bool is_given = steps.is_number_integer() && steps.get<int64_t>() > 0;
    const int64_t otherwise = model_.positions > 0 ? model_.positions : kHubSteps;
    return std::min(is_given ? steps.get<int64_t>() : otherwise, most_steps());
  }

  // Of --shape; 0 where they are not given.
  struct GivenSizes {
    int64_t steps = 0, masks = 0;
  };

  GivenSizes given_sizes() const {
    GivenSizes out;
    for (const InputShape& shape : options_.shapes) {
      const int64_t size = given_size(shape);
      int64_t& own = shape.input == "mask_positions" ? out.masks : out.steps;
      if (&own == &out.steps && own != 0 && own != size) {
        throw ConfigError("E140", {}, "the inputs of --shape have different sizes")
            .help("they have equal numbers of steps: one --shape token_ids=STEPS is enough");
      }
      own = size;
    }
    return out;
  }

  int64_t given_size(const InputShape& shape) const {
    const int64_t most = most_steps();
    std::vector<std::string> inputs = {"token_ids", "padding_mask"};
    if (model_.family == HuggingFaceFamily::kBert) {
      inputs.push_back("segment_ids");
    }
    if (model_.is_masked) {
      inputs.push_back("mask_positions");
    }
    const bool is_input = std::find(inputs.begin(), inputs.end(), shape.input) != inputs.end();
    if (model_.family == HuggingFaceFamily::kVit || !is_input || shape.sizes.size() != 1 ||
        shape.sizes[0] > most) {
      throw ConfigError(
          "E140", {},
          model_.family == HuggingFaceFamily::kVit
              ? "--shape, but the model's `image_shape` has all sizes"
              : fmt::format("--shape {}={} does not fit this {}", printable(shape.input),
                            fmt::join(shape.sizes, ","), model_.architecture))
          .help(model_.family == HuggingFaceFamily::kVit ? "leave --shape out"
                : model_.positions == 0
                    ? "write --shape token_ids=STEPS"
                    : fmt::format("write --shape token_ids=STEPS, at most {}", most));
    }
    return shape.sizes[0];
  }

  const ImportOptions& options_;
  const Json& json_;
  HubConfig hub_;
  HuggingFaceModel& model_;  // of `hub_`
  std::string start_, end_;  // tokens around texts
};

bool is_of_hub(const Json& json, const char* key, const char* end) {
  const Json* value = json.is_object() ? find_member(json, key) : nullptr;
  return value != nullptr && value->is_string() &&
         (starts_with(value->get<std::string>(), std::string("keras_hub") + end) ||
          starts_with(value->get<std::string>(), std::string("keras_nlp") + end));
}

}  // namespace

bool is_hub_model(const Json& json) {
  return is_of_hub(json, "registered_name", ">") || is_of_hub(json, "module", ".");
}

ImportedModel import_hub(const Json& json, const ImportOptions& options) {
  return HubImporter(json, options).run();
}

}  // namespace meshtrain
