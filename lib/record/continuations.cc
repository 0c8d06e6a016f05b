#include "record/continuations.h"

#include <algorithm>
#include <numeric>

#include "base/diagnostic.h"
#include "base/json.h"
#include "base/utf8.h"
#include "config/source_classes.h"
#include "data/csv_columns.h"

namespace meshtrain {
namespace {

// The end of the whole characters of `text`: bytes behind it may still become another one.
size_t end_of_characters(std::string_view text) {
  size_t at = text.size() > 3 ? text.size() - 3 : 0;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
    ++at;
  while (at < text.size()) {
    const size_t length = utf8_length(text, at);
    if (length == 0)
      break;
    at += length;
  }
  const bool is_start = at < text.size() && static_cast<unsigned char>(text[at]) >= 0xC0;
  return is_start ? at : text.size();
}

// The text of ids up to the first of `stops`.
std::string text_before_stop(TextCodec& codec, std::span<const int32_t> ids,
                             const std::vector<std::string>& stops) {
  std::string text = codec.decode(ids);
  for (const std::string& stop : stops)
    text.resize(std::min(text.size(), text.find(stop)));
  return text;
}

// Ids behind a prompt.
int64_t most_ids(const ContinueOptions& options, size_t prompt) {
  if (options.length > 0)
    return std::max<int64_t>(options.length - static_cast<int64_t>(prompt), 0);
  return options.new_ids > 0 ? options.new_ids : kNewIds;
}

std::optional<int32_t> separator_of(const DataConfig& data) {
  std::optional<int64_t> id;
  if (data.train) {
    if (const auto text = options_if<TextOptions>(*data.train))
      id = text->document_separator.value;
    if (const auto tokens = options_if<TokensOptions>(*data.train))
      id = tokens->document_separator.value;
  }
  return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

std::optional<int32_t> text_start(const Config& config, const TextCodec& codec) {
  if (const auto ids = config.model.token_ids.find("bos_token_id");
      ids != config.model.token_ids.end() && !ids->second.empty())
    return static_cast<int32_t>(ids->second[0]);
  return codec.start();
}

// The ids of a text without any. `what`: "prompt 1 is empty".
std::vector<int32_t> start_alone(const std::string& what, const PromptRules& rules) {
  if (rules.start && *rules.start >= 0 && *rules.start < rules.num_ids)
    return {*rules.start};
  if (rules.start)
    throw ConfigError("E314", {},
                      fmt::format("{}: the start token has the id {}, the model {} ids", what,
                                  *rules.start, rules.num_ids))
        .help("`model.token_ids.bos_token_id` is its id");
  Diagnostics diagnostics;
  Diagnostic& error = diagnostics.error("E140", {}, what + ", and the model has no start token");
  if (rules.separator)
    error.note(
        "what follows `document_separator` has weight 0 in training: the model does not know how a "
        "document begins");
  error.help(
      "a prompt of at least one character; `model.token_ids.bos_token_id`, or `start_token` of the "
      "source `lines`, begins an empty one");
  throw ConfigError(diagnostics);
}

void keep_last_document(const std::string& name, const PromptRules& rules,
                        std::vector<int32_t>& ids) {
  const auto last =
      rules.separator ? std::find(ids.rbegin(), ids.rend(), *rules.separator) : ids.rend();
  if (last == ids.rend())
    return;
  if (rules.has_segments) {
    ids.erase(ids.begin(), last.base());
    if (ids.empty())
      ids = start_alone(name + " ends with the end of a document", rules);
  } else if (rules.has_positions) {
    throw ConfigError("E324", {},
                      name +
                          " holds several documents; this model restarts positions in each, "
                          "but attends to all of them")
        .help("a prompt of one document");
  }
}

}  // namespace

std::string prompt_name(std::string_view prompt) {
  return fmt::format("the prompt `{}`", shown_text(prompt));
}

PromptRules prompt_rules(const Config& config, const TextCodec& codec,
                         const GenerationModel& model) {
  return {model.num_ids, text_start(config, codec), separator_of(config.data), model.has_segments,
          model.has_positions};
}

TextPrompts encoded_prompts(std::vector<std::string> texts, TextCodec& codec,
                            const PromptRules& rules) {
  TextPrompts out;
  out.texts = std::move(texts);
  for (size_t i = 0; i < out.texts.size(); ++i) {
    const std::string name = fmt::format("prompt {}", i + 1);
    if (out.texts[i].empty()) {
      out.ids.push_back(start_alone(name + " is empty", rules));
      continue;
    }
    std::vector<int32_t> ids = codec.encode(out.texts[i], name);
    if (ids.empty())
      throw ConfigError("E140", {}, fmt::format("{} has no token", prompt_name(out.texts[i])))
          .help("the tokenizer leaves all of it out");
    const int32_t largest = *std::max_element(ids.begin(), ids.end());
    if (largest >= rules.num_ids)
      throw ConfigError("E314", {},
                        fmt::format("{} has the id {}, the model {} ids", prompt_name(out.texts[i]),
                                    largest, rules.num_ids))
          .help("use the tokenizer that the model was trained with");
    keep_last_document(prompt_name(out.texts[i]), rules, ids);
    out.ids.push_back(std::move(ids));
  }
  return out;
}

void check_lengths(const TextPrompts& prompts, int64_t least, const std::string& reason) {
  for (size_t i = 0; i < prompts.ids.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts.ids[i].size());
    if (length < least) {
      throw ConfigError(
          "E324", {},
          fmt::format("{} has {} id{}, and the model reads {} at once: {}",
                      prompt_name(prompts.texts[i]), length, length == 1 ? "" : "s", least, reason))
          .help(fmt::format("a prompt of at least {} ids", least));
    }
  }
}

std::vector<int32_t> document_end(const DataConfig& data, const TextCodec* codec) {
  std::optional<int32_t> end = codec == nullptr ? std::nullopt : codec->end();
  end = end ? end : separator_of(data);
  return end ? std::vector<int32_t>{*end} : std::vector<int32_t>();
}

std::vector<int32_t> text_ends(const Config& config, const TextCodec& codec) {
  std::vector<int32_t> ids = document_end(config.data, &codec);
  if (const auto ends = config.model.token_ids.find("eos_token_id");
      ends != config.model.token_ids.end())
    ids.insert(ids.end(), ends->second.begin(), ends->second.end());
  return ids;
}

std::string continuations_text(std::span<const Continuation> some, const TextPrompts& prompts,
                               bool is_json, bool first) {
  std::string out;
  for (const Continuation& one : some) {
    const std::string& prompt = prompts.texts[one.prompt];
    if (!is_json) {
      out += (first ? "" : "---\n") + prompt + one.text + "\n";
      first = false;
      continue;
    }
    const nlohmann::ordered_json line = {{"prompt", prompt},
                                         {"sample", one.sample},
                                         {"text", one.text},
                                         {"ids", one.num_ids},
                                         {"ended", one.has_stopped ? "stop" : "length"}};
    out += json_text(line, -1, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return out;
}

LiveText::LiveText(TextCodec& codec, const std::vector<std::string>& stops,
                   std::function<void(std::string_view)> write)
    : codec_(codec), stops_(stops), write_(std::move(write)) {
  for (const std::string& stop : stops)
    held_ = std::max(held_, stop.size() - 1);
}

void LiveText::add(int32_t id) {
  ids_.push_back(id);
  const std::string text = codec_.decode(ids_);
  size_t end = std::min(end_of_characters(text), text.size() - std::min(held_, text.size()));
  for (const std::string& stop : stops_)
    end = std::min(end, text.find(stop));
  show(text, end);
}

void LiveText::show(const std::string& text, size_t end) {
  if (end > shown_) {
    write_(std::string_view(text).substr(shown_, end - shown_));
    shown_ = end;
  }
}

ContinuedTexts::ContinuedTexts(const ContinueOptions& options, const TextPrompts& prompts,
                               TextCodec& codec, GenerationRequest request)
    : options_(options),
      codec_(codec),
      request_(std::move(request)),
      is_search_(request_.sampler.is_search()) {
  for (size_t prompt = 0; prompt < prompts.ids.size(); ++prompt) {
    for (int64_t sample = 0; sample < options.samples; ++sample) {
      const std::vector<int32_t>& ids = prompts.ids[prompt];
      rows_.push_back({ids, sample, most_ids(options, ids.size())});
      all_.push_back({prompt, sample, "", 0, false});
    }
  }
  if (!options.stops.empty()) {
    request_.is_complete = [this](std::span<const int32_t> ids) {
      const std::string text = codec_.decode(ids);
      return std::any_of(
          options_.stops.begin(), options_.stops.end(),
          [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
    };
  }
}

int64_t ContinuedTexts::rows_at_once() const {
  return request_.sampler.rows_at_once(
      std::min<int64_t>(options_.rows, static_cast<int64_t>(rows_.size())));
}

int64_t ContinuedTexts::longest() const {
  int64_t most = 0;
  for (const GenerationRow& row : rows_)
    most = std::max(most, static_cast<int64_t>(row.prompt.size()) + row.most_ids);
  return most;
}

// Rows take as many steps as the longest of those at once: equal lengths stand together, behind
// `first` that are as they were. Runs of a few groups are sorted each by itself, so that no text
// waits for one that is far behind it.
std::vector<size_t> ContinuedTexts::order_of_rows(size_t first) const {
  constexpr size_t kSortedGroups = 8;
  const size_t run = kSortedGroups * static_cast<size_t>(options_.rows);
  std::vector<size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t begin = 0; begin < order.size(); begin += run) {
    std::stable_sort(
        order.begin() + static_cast<std::ptrdiff_t>(std::max(begin, first)),
        order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + run, order.size())),
        [&](size_t a, size_t b) { return rows_[a].prompt.size() < rows_[b].prompt.size(); });
  }
  return order;
}

std::vector<Continuation> ContinuedTexts::run(
    Generation& generation, LiveText* live,
    const std::function<void(std::span<const Continuation>)>& on_texts) {
  const auto at_once = static_cast<size_t>(rows_at_once());
  const std::vector<size_t> order = order_of_rows(live != nullptr ? 1 : 0);
  std::vector<bool> is_done(rows_.size());
  size_t num_shown = 0;
  for (size_t first = 0; first < rows_.size(); first += is_search_ ? 1 : at_once) {
    request_.on_id = nullptr;
    if (live != nullptr && first == 0)
      request_.on_id = [live](int32_t id) { live->add(id); };
    std::vector<GenerationRow> group;
    for (size_t i = 0; i < at_once; ++i)  // the last group repeats its last row
      group.push_back(rows_[order[is_search_ ? first : std::min(first + i, rows_.size() - 1)]]);
    const std::vector<Generated> made = generation.run(group, request_);
    const size_t count = is_search_ ? 1 : std::min(at_once, rows_.size() - first);
    for (size_t i = 0; i < count; ++i) {
      Continuation& one = all_[order[first + i]];
      one.text = text_before_stop(codec_, made[i].ids, options_.stops);
      one.num_ids = made[i].ids.size();
      one.has_stopped = made[i].has_stopped;
      is_done[order[first + i]] = true;
    }
    size_t end = num_shown;
    while (end < is_done.size() && is_done[end])
      ++end;
    if (on_texts && end > num_shown)
      on_texts(std::span(all_).subspan(num_shown, end - num_shown));
    num_shown = end;
  }
  return all_;
}

}  // namespace meshtrain
