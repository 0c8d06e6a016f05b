// meshtrain generate: texts that a language model continues.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/host.h"
#include "base/text.h"
#include "base/text_lines.h"
#include "config/resolve.h"
#include "config/source_classes.h"
#include "data/text_codec.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/generation.h"
#include "engine/signals.h"
#include "record/continuations.h"
#include "record/line_log.h"
#include "record/predictions.h"
#include "run_flags.h"
#include "tensor/read_error.h"
#include "train/learned_file.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;

struct GenerateOptions {
  ConfigWords config;
  std::string weights, input, output_file, format = "text", sampler = "top_k", tokenizer;
  std::vector<std::string> prompts;
  ContinueOptions texts;
  double temperature = 1;
  bool quiet = false;
  EngineFlags engine;
};

bool is_stdout(const GenerateOptions& options) {
  return options.output_file.empty() || options.output_file == "-";
}

std::vector<std::string> prompts_of(const GenerateOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.input.empty()) {
    const std::string text =
        options.input == "-"
            ? read_utf8("/dev/stdin", kMaxPromptBytes)
            : read_utf8(open_input(options.input, "E300", "E300").path(), kMaxPromptBytes);
    for (const TextLine& line : text_lines(text))
      prompts.emplace_back(line.text);
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
  const auto text = config.data.train ? options_if<TextOptions>(*config.data.train) : std::nullopt;
  if (!options.tokenizer.empty() && text && text->tokenizer().empty()) {
    refuse("E140", "--tokenizer, and the model has the ids of its own characters or bytes",
           "leave --tokenizer out");
  }
  if (!options.tokenizer.empty())
    return tokenizer_codec(read_tokenizer_text(options.tokenizer), options.tokenizer);
  if (!config.data.train) {
    refuse("E140", "the config has no data.train, which says what has an id",
           "--tokenizer DIR, the folder of the tokenizer that the model was trained with");
  }
  LearnedPtr learned = learned_for(model, config);
  std::unique_ptr<TextCodec> codec;
  if (!learned &&
      (options_if<TextOptions>(*config.data.train) || options_if<LinesOptions>(*config.data.train)))
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

Sampler sampler_of(const GenerateOptions& options) {
  Sampler sampler = parse_sampler(options.sampler);
  sampler.temperature = options.temperature;
  if (sampler.gives_one_text() && options.texts.samples > 1) {
    refuse("E140",
           fmt::format("--samples {}, but `{}` gives one text", options.texts.samples,
                       options.sampler),
           "--sampler random, top_k=40 or top_p=0.9");
  }
  return sampler;
}

void check_options(const GenerateOptions& options) {
  sampler_of(options);
  if (options.texts.new_ids > 0 && options.texts.length > 0)
    refuse("E140", "--max-new-tokens and --max-length are both given", "one of them");
  for (const std::string& stop : options.texts.stops) {
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

GenerationRequest request_of(const GenerateOptions& options, const Config& config,
                             const TextCodec& codec, int64_t num_ids) {
  GenerationRequest request;
  request.sampler = sampler_of(options);
  request.seed = config.seed.value;
  request.num_ids = num_ids;
  request.stop_ids = text_ends(config, codec);
  request.before_step = [] { throw_if_stopped("the ids so far"); };
  return request;
}

std::string speed_line(const std::vector<Continuation>& all, double seconds) {
  size_t ids = 0;
  for (const Continuation& one : all)
    ids += one.num_ids;
  return fmt::format("{} ids in {:.2f} s: {:.1f} ids/s\n",
                     format_thousands(static_cast<int64_t>(ids)), seconds,
                     static_cast<double>(ids) / std::max(seconds, 1e-9));
}

// Generates and writes all texts, each as soon as it and all before it are there. The first one is
// shown as it comes where nothing else is asked.
void write_texts(const GenerateOptions& options, const TextPrompts& prompts, TextCodec& codec,
                 ContinuedTexts& texts, Generation& generation, Coordinator& coordinator) {
  const bool is_json = options.format == "jsonl";
  const bool is_live =
      is_stdout(options) && !is_json && sampler_of(options).kind != Sampler::Kind::kBeam;
  LiveText live(codec, options.texts.stops,
                [](std::string_view text) { out_stream().write(text); });
  if (is_live)
    out_stream().write(prompts.texts[0]);
  std::optional<LineLog> file;  // a text in it is not lost when the next one fails
  bool is_first = true;
  const auto write = [&](std::span<const Continuation> some) {
    coordinator.on_rank_zero("writing the texts", [&] {
      const std::string text = continuations_text(some, prompts, is_json, is_first);
      if (is_first && !is_stdout(options))
        file.emplace(options.output_file, [](const std::string& trouble) {
          throw RuntimeFailure(ExitCode::kWriteFailed, trouble);
        });
      size_t shown = 0;
      if (is_first && is_live) {
        live.finish(some[0].text);
        shown = prompts.texts[0].size() + some[0].text.size();
      }
      if (file)
        file->write(text);
      else
        out_stream().write(std::string_view(text).substr(shown));
    });
    is_first = false;
  };
  const double begin = steady_seconds();
  std::vector<Continuation> all;
  try {
    all = texts.run(generation, is_live ? &live : nullptr, write);
  } catch (...) {
    out_stream().write(is_live && is_first ? "\n" : "");
    throw;
  }
  const double seconds = steady_seconds() - begin;
  coordinator.on_rank_zero("writing the texts", [&] {
    const auto announced = coordinator.announce("writing the texts");
    if (file)
      file->close();
  });
  show_unless(options.quiet)(speed_line(all, seconds));
}

int run_generate(const GenerateOptions& options, Invocation& invocation) {
  check_options(options);
  const ModelSource model = options.config.source(options.weights, false);
  Config config = load_config(model.load);
  config.data.head_tail.value = 1;  // a text is read in order
  drop_expressions(config.compile);
  drop_training(config.compile);
  config.fit.batch_size.value = 0;  // that of training may not fit the mesh; rows take its place
  if (const std::optional<int> code =
          run_own_processes({invocation.given_words}, config, invocation.processes)) {
    return *code;
  }
  Coordinator coordinator(invocation.processes, steady_seconds);
  if (!is_stdout(options)) {
    coordinator.on_rank_zero("looking at --output",
                             [&] { check_predictions_folder(options.output_file, options.input); });
  }
  const Setup setup(config, nullptr);
  std::unique_ptr<TextCodec> codec;
  TextPrompts prompts;
  GenerationModel facts = generation_model(setup, 1);
  coordinator.on_all_ranks("reading the prompts", [&] {
    const auto announced = coordinator.announce("reading the prompts");
    codec = codec_of(options, config, model);
    prompts = encoded_prompts(prompts_of(options), *codec, prompt_rules(config, *codec, facts));
  });
  ContinuedTexts texts(options.texts, prompts, *codec,
                       request_of(options, config, *codec, std::min(facts.num_ids, codec->size())));
  facts = generation_model(setup, std::max<int64_t>(texts.longest(), 2));
  EngineOptions engine_options = options.engine.options(invocation);
  engine_options.decode = decode_options(facts, sampler_of(options), texts.rows_at_once());
  Engine engine(config, spec_of(setup, facts), engine_options);
  const auto show = show_unless(options.quiet);
  show_warnings(engine.warnings(), options.quiet);
  load_source_weights(engine, model, config, coordinator, show);
  Generation generation(engine, facts, texts.rows_at_once());
  check_lengths(prompts, generation.least_prompt(), generation.window_reason(1));
  if (const std::string reason = generation.window_reason(texts.longest()); !reason.empty())
    show(fmt::format("note: {} ids are read anew for each id: {}\n", facts.window, reason));
  invocation.started = true;
  invocation.result_is_on_stdout = is_stdout(options);
  catch_stop_signals();
  write_texts(options, prompts, *codec, texts, generation, coordinator);
  return 0;
}

}  // namespace

void add_generate(Subcommands& to) {
  auto [app, options, subcommand] = to.add<GenerateOptions>(
      "generate", "Continue texts with a language model of a run", run_generate);
  options.config.add_source_to(app, Steps::kNone);
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
  app.add_option("--max-new-tokens", options.texts.new_ids,
                 fmt::format("Characters or tokens behind the prompt; default {}", kNewIds))
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--max-length", options.texts.length, "Those of prompt and text together")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option(
         "--sampler", options.sampler,
         "greedy, random, top_k=K, top_p=P[,K], beam=N or contrastive=K,ALPHA; default top_k=5")
      ->type_name("NAME");
  app.add_option("--temperature", options.temperature,
                 "Divides the logits: below 1 likely ids become likelier; default 1")
      ->check(number_between(1e-3, 1e3));
  app.add_option("--samples", options.texts.samples, "Texts of each prompt; default 1")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--stop", options.texts.stops, "Text that ends what is generated; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--rows", options.texts.rows, "Texts that are computed at once; default 8")
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
