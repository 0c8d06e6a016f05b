// Texts that a model continues: prompts as rows of a Generation, a text as it comes, and all texts
// as output.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "data/text_codec.h"
#include "engine/generation.h"

namespace meshtrain {

struct TextPrompts {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;  // of each, not empty
};
// What a model says about prompts.
struct PromptRules {
  int64_t num_ids = 0;
  // That of a text: `model.token_ids.bos_token_id`, else a start token of the training data. A
  // separator is none: what follows it has weight 0 in training.
  std::optional<int32_t> start;
  std::optional<int32_t> separator;  // of the documents that the model was trained on
  bool has_segments = false, has_positions = false;  // GenerationModel
};
PromptRules prompt_rules(const Config& config, const TextCodec& codec,
                         const GenerationModel& model);
// An empty text is the start alone. Of a text with separators, a model with `segments` gets the
// last document: no step behind it sees another one. Throws ConfigError: E140 for an empty text, or
// last document, without a start; E314 for what has no id, or one from `num_ids` on; E324 for
// separators where positions begin anew and steps see all documents.
TextPrompts encoded_prompts(std::vector<std::string> texts, TextCodec& codec,
                            const PromptRules& rules);
// The start of a prompt for messages: "the prompt `Once upon a`".
std::string prompt_name(std::string_view prompt);

// Throws ConfigError E324 for a prompt of fewer than `least` ids, with the reason.
void check_lengths(const TextPrompts& prompts, int64_t least, const std::string& reason);
// The id that ends a document or sample of the training data, as a list of none or one. `codec` is
// null for files of tokens.
std::vector<int32_t> document_end(const DataConfig& data, const TextCodec* codec);

// The ids that end a text: that of the training data, and each `model.token_ids.eos_token_id`.
std::vector<int32_t> text_ends(const Config& config, const TextCodec& codec);

struct Continuation {
  size_t prompt = 0;
  int64_t sample = 0;
  std::string text;  // behind the prompt, up to a stop
  size_t num_ids = 0;
  bool has_stopped = false;
};
// Texts, each but the `first` of all with a line of --- before it, or a JSON object a line.
std::string continuations_text(std::span<const Continuation> some, const TextPrompts& prompts,
                               bool is_json, bool first = true);

// Shows what the newest ids add to a text, but for bytes of a character that is not whole, and for
// what may become one of `stops`.
class LiveText {
 public:
  LiveText(TextCodec& codec, const std::vector<std::string>& stops,
           std::function<void(std::string_view)> write);
  void add(int32_t id);
  void finish(const std::string& text) { show(text, text.size()); }

 private:
  void show(const std::string& text, size_t end);

  TextCodec& codec_;
  std::vector<std::string> stops_;
  std::function<void(std::string_view)> write_;
  std::vector<int32_t> ids_;
  size_t held_ = 0, shown_ = 0;  // bytes
};

inline constexpr int64_t kNewIds = 200;  // behind a prompt, unless options say otherwise

struct ContinueOptions {
  int64_t samples = 1;  // of each prompt
  int64_t rows = 8;     // at once
  int64_t new_ids = 0;  // behind a prompt; 0: kNewIds
  int64_t length = 0;   // of prompt and text; 0: new_ids counts
  std::vector<std::string> stops;
};

// All prompts and samples, as many rows at a time as the engine has.
class ContinuedTexts {
 public:
  // `request` is without what stops a text by its characters. All must outlive this.
  ContinuedTexts(const ContinueOptions& options, const TextPrompts& prompts, TextCodec& codec,
                 GenerationRequest request);

  int64_t rows_at_once() const;
  int64_t longest() const;  // ids of a prompt and its text
  // `live`, where given, shows the first text. `on_texts`, where given, gets the texts in the order
  // of all of them: each as soon as it and all before it are there.
  std::vector<Continuation> run(
      Generation& generation, LiveText* live,
      const std::function<void(std::span<const Continuation>)>& on_texts = {});

 private:
  std::vector<size_t> order_of_rows(size_t first) const;

  const ContinueOptions& options_;
  TextCodec& codec_;
  GenerationRequest request_;
  std::vector<GenerationRow> rows_;
  std::vector<Continuation> all_;
  bool is_search_;
};

}  // namespace meshtrain
