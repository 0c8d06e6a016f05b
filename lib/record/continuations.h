// Texts that a model continues: prompts as rows of a Generation, a text as it comes, and all texts
// as output.
#pragma once

#include <functional>
#include <optional>
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
// An empty text is `start` alone. Throws ConfigError: E140 for an empty text without it, E314 for
// what has no id, or one from `num_ids` on.
TextPrompts encoded_prompts(std::vector<std::string> texts, TextCodec& codec, int64_t num_ids,
                            std::optional<int32_t> start);
// The start of a prompt for messages: "the prompt `Once upon a`".
std::string prompt_name(std::string_view prompt);

// Throws ConfigError E324 for a prompt of fewer than `least` ids, with the reason.
void check_lengths(const TextPrompts& prompts, int64_t least, const std::string& reason);
// The id that ends a document or sample of the training data, as a list of none or one. `codec` is
// null for files of tokens.
std::vector<int32_t> document_end(const DataConfig& data, const TextCodec* codec);

// The ids that end a text: that of the training data, and each `model.token_ids.eos_token_id`.
std::vector<int32_t> text_ends(const Config& config, const TextCodec& codec);

// The id with which a text begins: `model.token_ids.bos_token_id`, else a start token of the
// training data, or the separator that ends the document before it.
std::optional<int32_t> text_start(const Config& config, const TextCodec& codec);

struct Continuation {
  size_t prompt = 0;
  int64_t sample = 0;
  std::string text;  // behind the prompt, up to a stop
  size_t num_ids = 0;
  bool has_stopped = false;
};
// Texts with a line of --- between them, or a JSON object a line.
std::string continuations_text(const std::vector<Continuation>& all, const TextPrompts& prompts,
                               bool is_json);

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
  // `live`, where given, shows the first text.
  std::vector<Continuation> run(Generation& generation, LiveText* live);

 private:
  const ContinueOptions& options_;
  TextCodec& codec_;
  GenerationRequest request_;
  std::vector<GenerationRow> rows_;
  std::vector<Continuation> all_;
  bool is_search_;
};

}  // namespace meshtrain
