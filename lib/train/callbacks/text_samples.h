// Texts that a language model continues while it trains, in a file of the run. Not in Keras.
#pragma once

#include <memory>

#include "record/continuations.h"
#include "record/line_log.h"
#include "train/callbacks/callback.h"

namespace meshtrain {

class TextSamples : public Callback {
 public:
  // Throws ConfigError for a sampler or a prompt that the model cannot take.
  TextSamples(const TextSamplesOptions& options, CallbackContext& context, std::string state_name);

  // Throws FileError (exit 74).
  void on_train_begin(const TrainPosition& at) override;
  int64_t steps_until_sync(const TrainPosition& at) const override;
  bool needs_sync(const TrainPosition& at, bool last) override;
  void on_sync(const TrainPosition& at, bool last) override;
  void on_epoch_end(EpochReport& report) override;
  void on_train_end() override;
  void sync() override;
  std::string save_state() const override;
  void load_state(const std::string& json) override;

 private:
  bool is_due(const TrainPosition& at) const;
  void write(const std::string& title);

  std::string path_;
  Interval every_;
  bool prints_;
  std::unique_ptr<TextCodec> codec_;
  TextPrompts prompts_;
  ContinueOptions options_;
  GenerationRequest request_;
  std::unique_ptr<LineLog> file_;
  int64_t num_bytes_ = 0;  // of the file
};

// Throws ConfigError as text_samples_decoding does, E113 too where there would be several equal
// texts.
void check_text_samples(const TextSamplesOptions& options, const Setup& setup);

// What an engine needs for the texts of a config; no rows where it has no such callback. Throws
// ConfigError E324 for a model that does not continue texts, E112 for a sampler.
DecodeOptions text_samples_decoding(const Config& config, const DataSpec& data);

}  // namespace meshtrain
