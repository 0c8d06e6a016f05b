// meshtrain generate: texts that a language model continues.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/durable_file.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/source_classes.h"
#include "data/text_codec.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/generation.h"
#include "engine/signals.h"
#include "record/predictions.h"
#include "run_flags.h"
#include "tensor/read_error.h"
#include "train/learned_file.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr int64_t kNewIds = 200;  // unless flags say otherwise

struct GenerateOptions {
  ConfigWords config;
  std::string weights, input, output_file, format = "text", sampler = "top_k", tokenizer;
  std::vector<std::string> prompts, stops;
  int64_t new_ids = 0, length = 0, samples = 1, rows = 8;
  double temperature = 1;
  bool quiet = false;
  EngineFlags engine;
};

// --- prompts ------------------------------------------------------------------------------------

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) {
    if (line.ends_with('\r'))
      line.pop_back();
  }
  lines.erase(std::remove(lines.begin(), lines.end(), ""), lines.end());
  return lines;
}

// The start of a prompt, for messages.
std::string name_of(std::string_view prompt) {
  return fmt::format("the prompt `{}{}`", printable(prompt), prompt.size() > 40 ? "..." : "");
}

std::vector<std::string> prompts_of(const GenerateOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.input.empty()) {
    const std::string text =
        options.input == "-"
            ? read_file("/dev/stdin", kMaxPromptBytes)
            : read_file(open_input(options.input, "E300", "E300").path(), kMaxPromptBytes);
    for (std::string& line : lines_of(text))
      prompts.push_back(std::move(line));
  }
  if (prompts.empty()) {
    refuse("E140",
           options.input.empty() ? "`generate` needs a prompt"
                                 : fmt::format("`{}` has no prompt", options.input),
           "meshtrain generate RUN --prompt 'Once upon a time', or --input FILE with one a line");
  }
  return prompts;
}

std::unique_ptr<TextCodec> codec_of(const GenerateOptions& options, const Config& config,
                                    const ModelSource& model) {
  if (!options.tokenizer.empty())
    return tokenizer_codec(read_tokenizer_text(options.tokenizer), options.tokenizer);
  if (!config.data.train) {
    refuse("E140", "the config has no data.train, which says what has an id",
           "--tokenizer DIR, the folder of the tokenizer that the model was trained with");
  }
  LearnedPtr learned = learned_for(model, config);
  std::unique_ptr<TextCodec> codec;
  if (!learned && options_if<TextOptions>(*config.data.train))
    learned = load_dataset(*config.data.train, config.data).learned;
  codec = text_codec(*config.data.train, learned);
  if (codec == nullptr) {
    throw ConfigError(
        "E324", config.data.train->loc,
        fmt::format("the source `{}` says no text of its ids", config.data.train->class_name))
        .help("--tokenizer DIR, the folder of the tokenizer that the model was trained with");
  }
  return codec;
}

struct Prompts {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;
  size_t longest = 0;
};

Prompts encoded(const GenerateOptions& options, TextCodec& codec, int64_t num_ids) {
  Prompts out;
  out.texts = prompts_of(options);
  for (const std::string& text : out.texts) {
    const std::string name = fmt::format("prompt {}", &text - out.texts.data() + 1);
    if (text.empty())
      refuse("E140", "a prompt is empty", "the model continues at least one character or token");
    out.ids.push_back(codec.encode(text, name));
    for (const int32_t id : out.ids.back()) {
      if (id >= num_ids) {
        refuse("E314", fmt::format("{} has the id {}, the model {} ids", name, id, num_ids),
               "the tokenizer that the model was trained with");
      }
    }
    out.longest = std::max(out.longest, out.ids.back().size());
  }
  return out;
}

// --- texts as they come -------------------------------------------------------------------------

// The end of `text` from which on bytes may still become another character.
size_t whole_characters(std::string_view text) {
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

// Shows what the newest ids add to a text, but for what may become a --stop.
class LiveText {
 public:
  LiveText(TextCodec& codec, const std::vector<std::string>& stops) : codec_(codec) {
    for (const std::string& stop : stops)
      held_ = std::max(held_, stop.size() - 1);
  }
  void add(int32_t id) {
    ids_.push_back(id);
    const std::string text = codec_.decode(ids_);
    show(text, std::min(whole_characters(text), text.size() - std::min(held_, text.size())));
  }
  void finish(const std::string& text) { show(text, text.size()); }

 private:
  void show(const std::string& text, size_t end) {
    if (end > shown_) {
      out_stream().write(std::string_view(text).substr(shown_, end - shown_));
      shown_ = end;
    }
  }

  TextCodec& codec_;
  std::vector<int32_t> ids_;
  size_t held_ = 0, shown_ = 0;
};

struct Continuation {
  size_t prompt = 0;
  int64_t sample = 0;
  std::string text;
  size_t num_ids = 0;
  bool has_stopped = false;
};

// The text of ids up to the first of `stops`.
std::string text_before_stop(TextCodec& codec, std::span<const int32_t> ids,
                             const std::vector<std::string>& stops) {
  std::string text = codec.decode(ids);
  for (const std::string& stop : stops)
    text.resize(std::min(text.size(), text.find(stop)));
  return text;
}

std::string printed(const std::vector<Continuation>& all, const Prompts& prompts, bool is_json) {
  std::string out;
  for (const Continuation& one : all) {
    const std::string& prompt = prompts.texts[one.prompt];
    if (is_json) {
      const nlohmann::ordered_json line = {{"prompt", prompt},
                                           {"sample", one.sample},
                                           {"text", one.text},
                                           {"ids", one.num_ids},
                                           {"ended", one.has_stopped ? "stop" : "length"}};
      out += json_text(line, -1, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    } else {
      out += (&one == all.data() ? "" : "---\n") + prompt + one.text + "\n";
    }
  }
  return out;
}

// --- the work -----------------------------------------------------------------------------------

// Ids behind a prompt of so many.
int64_t new_ids(const GenerateOptions& options, size_t prompt) {
  if (options.length > 0)
    return std::max<int64_t>(options.length - static_cast<int64_t>(prompt), 0);
  return options.new_ids > 0 ? options.new_ids : kNewIds;
}

Sampler sampler_of(const GenerateOptions& options) {
  Sampler sampler = parse_sampler(options.sampler);
  sampler.temperature = options.temperature;
  const bool is_beam = sampler.kind == Sampler::Kind::kBeam;
  const bool is_fixed = is_beam || sampler.kind == Sampler::Kind::kGreedy;
  if (is_fixed && options.samples > 1) {
    refuse("E140",
           fmt::format("--samples {}, but `{}` gives one text", options.samples, options.sampler),
           "--sampler random, top_k=40 or top_p=0.9");
  }
  return sampler;
}

std::vector<int32_t> stop_ids(const Config& config) {
  std::vector<int32_t> ids;
  if (config.data.train) {
    std::optional<int64_t> separator;
    if (const auto text = options_if<TextOptions>(*config.data.train))
      separator = text->document_separator.value;
    if (const auto tokens = options_if<TokensOptions>(*config.data.train))
      separator = tokens->document_separator.value;
    if (separator)
      ids.push_back(static_cast<int32_t>(*separator));
  }
  return ids;
}

void check_options(const GenerateOptions& options) {
  if (options.new_ids > 0 && options.length > 0)
    refuse("E140", "--max-new-tokens and --max-length are both given", "one of them");
  for (const std::string& stop : options.stops) {
    if (stop.empty())
      refuse("E140", "a --stop is empty", "the text that ends what is generated");
  }
}

DataSpec spec_of(const Setup& setup, const GenerationModel& model) {
  DataSpec spec;
  spec.inputs.resize(model.inputs.size(), {{model.window}, DType::kInt32});
  spec.targets = setup.data().targets;
  return spec;
}

void check_lengths(const Prompts& prompts, int64_t least, const std::string& reason) {
  for (size_t i = 0; i < prompts.ids.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts.ids[i].size());
    if (length < least) {
      refuse("E324",
             fmt::format("{} has {} id{}, and the model reads {} at once: {}",
                         name_of(prompts.texts[i]), length, length == 1 ? "" : "s", least, reason),
             fmt::format("a prompt of at least {} ids", least));
    }
  }
}

// All prompts and samples, as many rows at a time as the engine has.
class Work {
 public:
  Work(const GenerateOptions& options, const Prompts& prompts, TextCodec& codec,
       GenerationRequest request)
      : options_(options), prompts_(prompts), codec_(codec), request_(std::move(request)) {
    for (size_t prompt = 0; prompt < prompts.ids.size(); ++prompt) {
      for (int64_t sample = 0; sample < options.samples; ++sample) {
        rows_.push_back(
            {prompts.ids[prompt], sample, new_ids(options, prompts.ids[prompt].size())});
        all_.push_back({prompt, sample, "", 0, false});
      }
    }
    is_beam_ = request_.sampler.kind == Sampler::Kind::kBeam;
  }

  int64_t rows_at_once() const {
    return is_beam_ ? request_.sampler.count
                    : std::min<int64_t>(options_.rows, static_cast<int64_t>(rows_.size()));
  }

  std::vector<Continuation> run(Generation& generation, LiveText* live) {
    if (live != nullptr)
      request_.on_id = [live](int32_t id) { live->add(id); };
    const auto at_once = static_cast<size_t>(rows_at_once());
    for (size_t first = 0; first < rows_.size(); first += is_beam_ ? 1 : at_once) {
      std::vector<GenerationRow> group;
      for (size_t i = 0; i < at_once; ++i)  // the last group repeats its last row
        group.push_back(rows_[is_beam_ ? first : std::min(first + i, rows_.size() - 1)]);
      const std::vector<Generated> made = generation.run(group, request_);
      const size_t count = is_beam_ ? 1 : std::min(at_once, rows_.size() - first);
      for (size_t i = 0; i < count; ++i)
        finish(all_[first + i], made[i]);
    }
    return all_;
  }

  int64_t longest() const {
    int64_t most = 0;
    for (const GenerationRow& row : rows_)
      most = std::max(most, static_cast<int64_t>(row.prompt.size()) + row.most_ids);
    return most;
  }

 private:
  void finish(Continuation& one, const Generated& made) {
    one.text = text_before_stop(codec_, made.ids, options_.stops);
    one.num_ids = made.ids.size();
    one.has_stopped = made.has_stopped;
  }

  const GenerateOptions& options_;
  const Prompts& prompts_;
  TextCodec& codec_;
  GenerationRequest request_;
  std::vector<GenerationRow> rows_;
  std::vector<Continuation> all_;
  bool is_beam_ = false;
};

std::string speed_line(const std::vector<Continuation>& all, double seconds) {
  size_t ids = 0;
  for (const Continuation& one : all)
    ids += one.num_ids;
  return fmt::format("{} ids in {:.2f} s: {:.1f} ids/s\n",
                     format_thousands(static_cast<int64_t>(ids)), seconds,
                     static_cast<double>(ids) / std::max(seconds, 1e-9));
}

GenerationRequest request_of(const GenerateOptions& options, const Config& config, TextCodec& codec,
                             int64_t num_ids) {
  GenerationRequest request;
  request.sampler = sampler_of(options);
  request.seed = config.seed.value;
  request.num_ids = num_ids;
  request.stop_ids = stop_ids(config);
  request.before_step = [] { throw_if_stopped("the ids so far"); };
  if (!options.stops.empty()) {
    request.is_complete = [&codec, &options](std::span<const int32_t> ids) {
      const std::string text = codec.decode(ids);
      return std::any_of(options.stops.begin(), options.stops.end(), [&](const std::string& stop) {
        return text.find(stop) != std::string::npos;
      });
    };
  }
  return request;
}

int run_generate(const GenerateOptions& options, Invocation& invocation) {
  check_options(options);
  sampler_of(options);
  const ModelSource model = options.config.source(options.weights, false);
  Config config = load_config(model.load);
  config.fit.batch_size.value = 0;  // that of training may not fit the mesh; rows take its place
  if (const std::optional<int> code =
          run_own_processes({invocation.given_words}, config, invocation.processes)) {
    return *code;
  }
  Coordinator coordinator(invocation.processes, seconds_now);
  if (!options.output_file.empty() && options.output_file != "-") {
    coordinator.on_rank_zero("looking at --output",
                             [&] { check_predictions_folder(options.output_file, options.input); });
  }
  const Setup setup(config, nullptr);
  std::unique_ptr<TextCodec> codec;
  Prompts prompts;
  GenerationModel facts = generation_model(setup, 1);
  coordinator.on_all_ranks("reading the prompts", [&] {
    const auto announced = coordinator.announce("reading the prompts");
    codec = codec_of(options, config, model);
    prompts = encoded(options, *codec, facts.num_ids);
  });
  Work work(options, prompts, *codec,
            request_of(options, config, *codec, std::min(facts.num_ids, codec->size())));
  facts = generation_model(setup, std::max<int64_t>(work.longest(), 2));
  EngineOptions engine_options = options.engine.options(invocation);
  const bool is_beam = sampler_of(options).kind == Sampler::Kind::kBeam;
  engine_options.decode = {work.rows_at_once(), facts.inputs, is_beam};
  Engine engine(config, spec_of(setup, facts), engine_options);
  const auto show = show_unless(options.quiet);
  show_warnings(engine.warnings(), options.quiet);
  load_source_weights(engine, model, config, coordinator, show);
  Generation generation(engine, facts, work.rows_at_once());
  check_lengths(prompts, generation.least_prompt(), generation.window_reason(1));
  if (const std::string reason = generation.window_reason(work.longest()); !reason.empty())
    show(fmt::format("note: {} ids are read anew for each id: {}\n", facts.window, reason));
  const bool is_json = options.format == "jsonl";
  const bool is_stdout = options.output_file.empty() || options.output_file == "-";
  const bool is_live = is_stdout && !is_json && !is_beam;
  invocation.started = true;
  catch_stop_signals();
  LiveText live(*codec, options.stops);
  if (is_live)
    out_stream().write(prompts.texts[0]);
  const double begin = seconds_now();
  std::vector<Continuation> all;
  try {
    all = work.run(generation, is_live ? &live : nullptr);
  } catch (...) {
    out_stream().write(is_live ? "\n" : "");
    throw;
  }
  const double seconds = seconds_now() - begin;
  coordinator.on_rank_zero("writing the texts", [&] {
    const auto announced = coordinator.announce("writing the texts");
    if (!is_stdout) {
      write_file_atomic(options.output_file, printed(all, prompts, is_json));
    } else if (!is_live) {
      out_stream().write(printed(all, prompts, is_json));
    } else {
      live.finish(all[0].text);
      const std::string whole = printed(all, prompts, false);
      const size_t shown = prompts.texts[0].size() + all[0].text.size();
      out_stream().write(std::string_view(whole).substr(shown));
    }
  });
  show(speed_line(all, seconds));
  return 0;
}

}  // namespace

void add_generate(Subcommands& to) {
  auto [app, options, subcommand] = to.add<GenerateOptions>(
      "generate", "Continue texts with a language model of a run", run_generate);
  options.config.add_to(app, Steps::kNone);
  add_weights_flag(app, options.weights);
  app.add_option("-p,--prompt", options.prompts, "A text to continue; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("-i,--input", options.input, "File with a prompt on each line; - is stdin")
      ->type_name("FILE");
  app.add_option("-o,--output", options.output_file, "Where texts go; default stdout")
      ->type_name("FILE");
  app.add_option("--format", options.format, "text, or one JSON object a line")
      ->check(one_of({"text", "jsonl"}));
  app.add_option("--max-new-tokens", options.new_ids,
                 fmt::format("Characters or tokens behind the prompt; default {}", kNewIds))
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--max-length", options.length, "Those of prompt and text together")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--sampler", options.sampler,
                 "greedy, random, top_k=K, top_p=P or beam=N; default top_k=5")
      ->type_name("NAME");
  app.add_option("--temperature", options.temperature,
                 "Divides the logits: below 1 likely ids become likelier; default 1")
      ->check(number_between(1e-3, 1e3));
  app.add_option("--samples", options.samples, "Texts of each prompt; default 1")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--stop", options.stops, "Text that ends what is generated; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--rows", options.rows, "Texts that are computed at once; default 8")
      ->check(whole_number(1, 4096));
  app.add_option("--tokenizer", options.tokenizer,
                 "Folder of the tokenizer, for a model of token files")
      ->type_name("DIR");
  app.add_flag("-q,--quiet", options.quiet, "Only the texts and errors");
  options.engine.add_to(app);
  add_color_flag(app);
  subcommand.shared = [&app = app, &options = options] {
    return SharedCommand{
        .flags = flags_text(app, {"--weights", "--prompt", "--input", "--output", "--format",
                                  "--max-new-tokens", "--max-length", "--sampler", "--temperature",
                                  "--samples", "--stop", "--rows", "--tokenizer"}),
        .load = [&options] { return options.config.source(options.weights, false).load; }};
  };
}

}  // namespace meshtrain
