// The callbacks: the arguments of each are a struct, which its class in train/callbacks/ takes, and
// one line each. Keras 3 callbacks; paths are relative to the run's folder.
//
// To add one: a struct and its declaration here, with a line in declared_callbacks(); its class in
// train/callbacks/; the class's line in make_callbacks.cc. A check of several arguments is a
// function of catalogue_callbacks.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/class_options.h"

namespace meshtrain {

struct CallbackOptions : ClassOptions {
  static constexpr Category kCategory = Category::kCallback;
};

template <class S>
Spec verbose_arg(int64_t S::*member) {
  return key("verbose", member, "1 prints what it does").least(0).most(2);
}

// Of callbacks that watch a log.
struct MonitorOptions : CallbackOptions {
  Located<std::string> monitor{"val_loss", {}};
  MonitorMode mode = MonitorMode::kAuto;
  int64_t verbose = 0;
};
inline Spec monitor_arg() {
  return key("monitor", &MonitorOptions::monitor, "log that is watched");
}
inline Spec mode_arg() {
  return key("mode", &MonitorOptions::mode, "which values of it are better");
}
template <class S>
Spec min_delta_arg(double S::*member) {
  return key("min_delta", member, "a smaller change is no improvement");
}

struct ModelCheckpointOptions : MonitorOptions {
  Located<std::string> filepath;
  bool save_best_only = false;
  bool save_weights_only = false;
  Interval save_freq{Interval::Unit::kEpochs, 1};
  std::optional<double> initial_value_threshold;
  std::optional<int64_t> keep;
  bool restore = false;
};
void check_model_checkpoint(const ModelCheckpointOptions& callback, const ClassScope& scope);
inline ClassSpec model_checkpoint_callback() {
  using S = ModelCheckpointOptions;
  return class_of<S>(
      "ModelCheckpoint", "saves the model, or the whole state of training",
      {key("filepath", &S::filepath,
           "where to, by its end: .keras, .weights.h5, .safetensors, or a folder of its own for "
           "everything; {epoch}, {batch}, {step} and logs are filled in")
           .required()
           .writes(CallbackOutput::kModel),
       monitor_arg(), verbose_arg(&S::verbose),
       key("save_best_only", &S::save_best_only, "only when it is the best so far"),
       key("save_weights_only", &S::save_weights_only, "weights alone; filepath must say so too"),
       mode_arg(),
       parsed_key("save_freq", &S::save_freq, "epoch", parse_save_freq,
                  "write epoch, 200 (batches), 2 epochs or 30 min",
                  "epoch, 200 (batches), 2 epochs or 30 min"),
       key("initial_value_threshold", &S::initial_value_threshold,
           "the best value before there is one"),
       key("keep", &S::keep, "how many of its files stay, the newest; all when null").least(1),
       key("restore", &S::restore,
           "begin from the file of that name with the largest epoch, if there is one")},
      check_model_checkpoint);
}

// parse_save_freq(), or "false": never.
std::optional<Interval> parse_backup_freq(std::string_view text);
struct BackupOptions : CallbackOptions {
  std::string backup_dir;  // empty: none
  Interval save_freq{Interval::Unit::kEpochs, 1};
  bool double_checkpoint = false;
  bool delete_checkpoint = true;
};
void check_backup(const BackupOptions& callback, const ClassScope& scope);
inline ClassSpec backup_callback() {
  using S = BackupOptions;
  ClassSpec spec = class_of<S>(
      "BackupAndRestore", "the same command again continues where this one was interrupted",
      {key("backup_dir", &S::backup_dir, "folder that leads to the interrupted run")
           .writes(CallbackOutput::kLink),
       parsed_key("save_freq", &S::save_freq, "epoch", parse_backup_freq,
                  "write epoch, 200 (batches), 2 epochs or 30 min",
                  "epoch, 200 (batches), 2 epochs, 30 min or false"),
       key("double_checkpoint", &S::double_checkpoint, "keep two; there are always two at least"),
       key("delete_checkpoint", &S::delete_checkpoint,
           "delete the checkpoints of a run that finished")},
      check_backup);
  spec.is_unique = true;
  return spec;
}

struct EarlyStoppingOptions : MonitorOptions {
  double min_delta = 0;
  int64_t patience = 0;
  std::optional<double> baseline;
  bool restore_best_weights = false;
  int64_t start_from_epoch = 0;
};
inline ClassSpec early_stopping_callback() {
  using S = EarlyStoppingOptions;
  return class_of<S>(
      "EarlyStopping", "stops when a log no longer improves",
      {monitor_arg(), min_delta_arg(&S::min_delta),
       key("patience", &S::patience, "epochs without improvement before it stops").least(0),
       verbose_arg(&S::verbose), mode_arg(),
       key("baseline", &S::baseline, "a value that counts as progress"),
       key("restore_best_weights", &S::restore_best_weights, "the best epoch's weights at the end"),
       key("start_from_epoch", &S::start_from_epoch, "epochs that are not judged").least(0)});
}

struct ReduceLROnPlateauOptions : MonitorOptions {
  double factor = 0.1;
  int64_t patience = 10;
  double min_delta = 0.0001;
  int64_t cooldown = 0;
  double min_lr = 0;
};
// No callback changes the rate of a schedule.
void check_rate(const CallbackOptions& callback, const ClassScope& scope);
inline ClassSpec reduce_lr_callback() {
  using S = ReduceLROnPlateauOptions;
  return class_of<S>(
      "ReduceLROnPlateau", "lowers the learning rate when a log no longer improves",
      {monitor_arg(), key("factor", &S::factor, "new rate / old rate").above(0).below(1),
       key("patience", &S::patience, "epochs without improvement before that").least(0),
       verbose_arg(&S::verbose), mode_arg(), min_delta_arg(&S::min_delta),
       key("cooldown", &S::cooldown, "epochs after it that are not judged").least(0),
       key("min_lr", &S::min_lr, "the rate stays at this or above").least(0)},
      check_rate);
}

struct LearningRateSchedulerOptions : CallbackOptions {
  Located<std::string> schedule;
  int64_t verbose = 0;
};
void check_scheduler(const LearningRateSchedulerOptions& callback, const ClassScope& scope);
inline ClassSpec scheduler_callback() {
  using S = LearningRateSchedulerOptions;
  return class_of<S>(
      "LearningRateScheduler", "sets the learning rate before each epoch",
      {key("schedule", &S::schedule,
           "expression of `epoch` (from 0) and `lr`: =lr if epoch < 10 else lr * 0.9")
           .required()
           .evaluated_later(),
       verbose_arg(&S::verbose)},
      check_scheduler);
}

struct CsvLoggerOptions : CallbackOptions {
  std::string filename;
  Located<std::string> separator{",", {}};
  bool append = false;
};
void check_csv_logger(const CsvLoggerOptions& callback, const ClassScope& scope);
inline ClassSpec csv_logger_callback() {
  using S = CsvLoggerOptions;
  return class_of<S>(
      "CSVLogger", "a table of the epochs",
      {key("filename", &S::filename, "the file").required().writes(CallbackOutput::kTable),
       key("separator", &S::separator, "one character between values"),
       key("append", &S::append, "continue at the end of the file")},
      check_csv_logger);
}

// Batches between scalars of "epoch" (0), "batch" or a number of batches; nothing for other texts.
std::optional<int64_t> parse_update_freq(std::string_view text);
struct TensorBoardOptions : CallbackOptions {
  std::string log_dir = "logs";
  int64_t histogram_freq = 0;
  bool write_graph = true;
  int64_t update_freq = 0;
  bool write_steps_per_second = false;
  int64_t profile_batch = 0;
};
inline ClassSpec tensorboard_callback() {
  using S = TensorBoardOptions;
  return class_of<S>(
      "TensorBoard", "event files for TensorBoard: scalars, histograms, the graph",
      {key("log_dir", &S::log_dir, "folder for them, with train and validation in it")
           .writes(CallbackOutput::kFolder),
       key("histogram_freq", &S::histogram_freq,
           "epochs between histograms of the weights; 0: none")
           .least(0),
       key("write_graph", &S::write_graph, "the layers as a graph, Keras' JSON and the config"),
       parsed_key("update_freq", &S::update_freq, "epoch", parse_update_freq,
                  "write epoch, batch or a number of batches",
                  "epoch, batch or a number of batches between scalars"),
       key("write_steps_per_second", &S::write_steps_per_second, "the speed too"),
       key("profile_batch", &S::profile_batch, "0: profiles are not written").least(0).most(0)});
}

struct TerminateOnNaNOptions : CallbackOptions {
  bool raise_error = false;
};
inline ClassSpec terminate_on_nan_callback() {
  return class_of<TerminateOnNaNOptions>(
      "TerminateOnNaN", "says that the loss is not finite; training stops in any case",
      {key("raise_error", &TerminateOnNaNOptions::raise_error,
           "as an error, without Keras' line")});
}

struct RunCommandOptions : CallbackOptions {
  std::vector<std::string> command;
  std::string name;
  double timeout = 60;
  SaveFailure on_error = SaveFailure::kContinue;
};
inline ClassSpec run_command_callback() {
  using S = RunCommandOptions;
  return class_of<S>(
      "RunCommand", "runs a command after each epoch, with the epoch's logs as JSON on its input",
      {key("command", &S::command, "the program, searched on PATH, and its arguments").required(),
       key("name", &S::name, "`name` in the JSON, to tell several apart"),
       key("timeout", &S::timeout, "seconds after which it is killed").above(0).most(86400),
       key("on_error", &S::on_error, "continue with a warning, or stop the run (exit 7)")});
}

struct SwapEmaOptions : CallbackOptions {
  bool swap_on_epoch = false;
};
void check_swap_ema(const SwapEmaOptions& callback, const ClassScope& scope);
inline ClassSpec swap_ema_callback() {
  ClassSpec spec =
      class_of<SwapEmaOptions>("SwapEMAWeights", "evaluates with the averages of the weights",
                               {key("swap_on_epoch", &SwapEmaOptions::swap_on_epoch,
                                    "and has them between epochs, for ModelCheckpoint")},
                               check_swap_ema);
  spec.is_unique = true;
  return spec;
}

struct StepValidationOptions : CallbackOptions {
  int64_t every = 0;
  std::optional<int64_t> steps;
};
inline ClassSpec step_validation_callback() {
  using S = StepValidationOptions;
  ClassSpec spec = class_of<S>(
      "StepValidation", "validates within epochs, after every so many training steps",
      {key("every", &S::every, "training steps, counted from the start of the run")
           .least(1)
           .required(),
       key("steps", &S::steps, "batches of a validation; fit.validation_steps when null")
           .least(1)});
  spec.is_unique = true;
  return spec;
}

// "epoch", "2 epochs", "500" or "500 steps".
std::optional<Interval> parse_sample_freq(std::string_view text);
struct TextSamplesOptions : CallbackOptions {
  Located<std::vector<std::string>> prompts;
  Interval every{Interval::Unit::kEpochs, 1};
  int64_t max_new_tokens = 100;
  Located<std::string> sampler{"top_k=5", {}};
  double temperature = 1;
  int64_t samples = 1;
  std::string tokenizer;
  std::string filename = "samples.txt";
  int64_t verbose = 0;
};
inline ClassSpec text_samples_callback() {
  using S = TextSamplesOptions;
  ClassSpec spec = class_of<S>(
      "TextSamples", "writes texts that the model continues, as `meshtrain generate` does",
      {key("prompts", &S::prompts, "texts to continue").required(),
       parsed_key("every", &S::every, "epoch", parse_sample_freq,
                  "write epoch, 2 epochs or 500 (steps)",
                  "epoch, 2 epochs or 500 (training steps)"),
       key("max_new_tokens", &S::max_new_tokens, "characters or tokens behind a prompt").least(1),
       key("sampler", &S::sampler,
           "greedy, random, top_k=K, top_p=P[,K], beam=N or contrastive=K,ALPHA"),
       key("temperature", &S::temperature, "divides the logits").least(0.001).most(1000),
       key("samples", &S::samples, "texts of each prompt").least(1).most(1000),
       key("tokenizer", &S::tokenizer, "folder of the tokenizer, for files of tokens")
           .of_kind(ValueKind::kPath),
       key("filename", &S::filename, "the file").writes(CallbackOutput::kTable),
       key("verbose", &S::verbose, "1 prints the texts, too").least(0).most(1)});
  spec.is_unique = true;
  return spec;
}

struct ResetStatesOptions : CallbackOptions {
  bool on_epoch_begin = true;
  bool on_test_begin = true;
};
void check_reset_states(const ResetStatesOptions& callback, const ClassScope& scope);
inline ClassSpec reset_states_callback() {
  using S = ResetStatesOptions;
  ClassSpec spec = class_of<S>(
      "ResetStates", "makes the states of stateful layers zeros",
      {key("on_epoch_begin", &S::on_epoch_begin, "before the first batch of each epoch"),
       key("on_test_begin", &S::on_test_begin, "before a validation or an evaluation")},
      check_reset_states);
  spec.is_unique = true;
  return spec;
}

// The first callback of the class with these arguments, or null.
template <class S>
const ConfigObject* find_callback(const Config& config) {
  const auto match =
      std::find_if(config.callbacks.begin(), config.callbacks.end(),
                   [](const ConfigObject& callback) { return has_options<S>(callback); });
  return match == config.callbacks.end() ? nullptr : &*match;
}

inline std::vector<ClassSpec> declared_callbacks() {
  return {model_checkpoint_callback(), backup_callback(),           early_stopping_callback(),
          reduce_lr_callback(),        scheduler_callback(),        csv_logger_callback(),
          tensorboard_callback(),      terminate_on_nan_callback(), swap_ema_callback(),
          run_command_callback(),      step_validation_callback(),  text_samples_callback(),
          reset_states_callback()};
}

}  // namespace meshtrain
