#include "train/callbacks/text_samples.h"

#include <filesystem>

#include "base/durable_file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/rnn_states.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 8;  // texts that are computed at once, at most

Sampler sampler_of(const TextSamplesOptions& options) {
  Sampler sampler = parse_sampler(options.sampler.value, "sampler", options.sampler.loc);
  sampler.temperature = options.temperature;
  if (sampler.gives_one_text() && options.samples > 1) {
    throw ConfigError("E113", options.sampler.loc,
                      fmt::format("`{}` gives one text, and `samples` is {}", options.sampler.value,
                                  options.samples))
        .help("sampler: random, top_k=40 or top_p=0.9");
  }
  return sampler;
}

std::unique_ptr<TextCodec> codec_of(const TextSamplesOptions& options,
                                    const CallbackContext& context) {
  if (!options.tokenizer.empty())
    return tokenizer_codec(read_tokenizer_text(options.tokenizer), options.tokenizer);
  auto codec = text_codec(*context.config.data.train, context.learned);
  if (codec == nullptr) {
    throw ConfigError("E324", options.prompts.loc,
                      fmt::format("the source `{}` says no text of its ids",
                                  context.config.data.train->class_name))
        .help("`tokenizer: DIR` of TextSamples, the folder of the tokenizer of these ids");
  }
  return codec;
}

int64_t rows_of(const TextSamplesOptions& options) {
  const auto texts = static_cast<int64_t>(options.prompts.value.size()) * options.samples;
  return sampler_of(options).rows_at_once(std::min(texts, kRows));
}

}  // namespace

void check_text_samples(const TextSamplesOptions& options, const Setup& setup) {
  sampler_of(options);
  generation_model(setup, 2);
}

DecodeOptions text_samples_decoding(const Config& config, const DataSpec& data) {
  const ConfigObject* const callback = find_callback<TextSamplesOptions>(config);
  if (callback == nullptr)
    return {};
  const auto options = read_options<TextSamplesOptions>(*callback);
  const GenerationModel model = generation_model(Setup(config, &data), 2);
  return decode_options(model, sampler_of(options), rows_of(options));
}

TextSamples::TextSamples(const TextSamplesOptions& options, CallbackContext& context,
                         std::string state_name)
    : Callback(context, std::move(state_name)),
      path_(context.output(options.filename)),
      every_(options.every),
      prints_(options.verbose > 0),
      codec_(codec_of(options, context)) {
  const GenerationModel model = generation_model(context.engine->setup(), 2);
  prompts_ =
      encoded_prompts(options.prompts.value, *codec_, prompt_rules(context.config, *codec_, model));
  options_ = {.samples = options.samples, .rows = kRows, .new_ids = options.max_new_tokens};
  request_.sampler = sampler_of(options);
  request_.seed = context.config.seed.value;
  request_.num_ids = std::min(model.num_ids, codec_->size());
  request_.stop_ids = text_ends(context.config, *codec_);
  const Generation generation(*context.engine, model, rows_of(options));
  check_lengths(prompts_, generation.least_prompt(), generation.window_reason(1));
}

// What was written after the checkpoint is written again.
void TextSamples::on_train_begin(const TrainPosition& at) {
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  if (at.step > 0 && context().writes && fs::exists(path_, error) &&
      fs::file_size(path_, error) > static_cast<uintmax_t>(num_bytes_))
    fs::resize_file(path_, static_cast<uintmax_t>(num_bytes_));
  file_ = std::make_unique<LineLog>(
      path_, [this](const std::string& text) { context().warn(text); }, at.step > 0);
}

int64_t TextSamples::steps_until_sync(const TrainPosition& at) const {
  const auto every = static_cast<int64_t>(every_.count);
  return every_.unit == Interval::Unit::kSteps ? every - at.step % every
                                               : Callback::steps_until_sync(at);
}

bool TextSamples::is_due(const TrainPosition& at) const {
  return every_.unit == Interval::Unit::kSteps && at.step % static_cast<int64_t>(every_.count) == 0;
}

bool TextSamples::needs_sync(const TrainPosition& at, bool /*last*/) {
  return is_due(at);
}

void TextSamples::on_sync(const TrainPosition& at, bool /*last*/) {
  if (is_due(at))
    write(fmt::format("step {}", at.step));
}

void TextSamples::on_epoch_end(EpochReport& report) {
  if (every_.unit == Interval::Unit::kEpochs &&
      report.epoch % static_cast<int64_t>(every_.count) == 0)
    write(fmt::format("epoch {}", report.epoch));
}

void TextSamples::write(const std::string& title) {
  Engine& engine = *context().engine;
  ContinuedTexts texts(options_, prompts_, *codec_, request_);
  const GenerationModel model =
      generation_model(engine.setup(), std::max<int64_t>(texts.longest(), 2));
  Generation generation(engine, model, texts.rows_at_once());
  const VariableValues states = read_rnn_states(engine);  // of the batch before
  const std::string text = fmt::format(
      "=== {}\n{}", title, continuations_text(texts.run(generation, nullptr), prompts_, false));
  write_variables(engine, states);
  file_->write(text);
  num_bytes_ += static_cast<int64_t>(text.size());
  if (prints_)
    context().print(text);
}

void TextSamples::on_train_end() {
  file_->close();
}

void TextSamples::sync() {
  if (file_ != nullptr)
    file_->sync();
}

std::string TextSamples::save_state() const {
  return json_text(nlohmann::json({{"bytes", num_bytes_}}));
}

void TextSamples::load_state(const std::string& json) {
  if (context().same_run)
    num_bytes_ = parse_json(json).at("bytes");
}

}  // namespace meshtrain
