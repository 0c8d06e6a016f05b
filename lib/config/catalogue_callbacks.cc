// Callbacks: the checks of their arguments, also beside those of the optimizer and of checkpoints.
#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/callback_classes.h"
#include "config/cells.h"
#include "config/file_template.h"
#include "config/optimizer_members.h"
#include "config/rate_expression.h"
#include "config/run_files.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTried = 1000;  // epochs

// The rates of the optimizers that have one.
std::vector<const ConfigValue*> rates_of(const Config& config) {
  std::vector<const ConfigValue*> rates;
  for (const OptimizerMember& member : optimizer_members(config.compile.optimizer)) {
    if (member.config->has("learning_rate")) {
      rates.push_back(&member.config->arg("learning_rate"));
    }
  }
  return rates;
}

void check_template(const ModelCheckpointOptions& callback, const FileTemplate& path,
                    Diagnostics& diagnostics) {
  const std::vector<std::string> names = path.names();
  if (callback.restore &&
      (std::count(names.begin(), names.end(), "epoch") != 1 || !path.folder())) {
    diagnostics
        .error("E113", callback.filepath.loc,
               "`restore` needs one `{epoch}`, in the name and not in the folders")
        .help("write ckpt/ckpt-{epoch}.keras");
  }
  const std::string example =
      path.fill([](const std::string&) -> FileTemplate::Value { return int64_t{1}; });
  const fs::path place = fs::path(example).lexically_normal();
  const std::string name = place.filename().string();
  if (place.parent_path() == run_files::kCheckpoints &&
      name.find_first_not_of("0123456789") == std::string::npos) {
    diagnostics.error("E113", callback.filepath.loc, "the run's own checkpoints have such names")
        .help("write `checkpoint: {every: 30 min, keep: 3}` for those, or another folder");
  }
}

// What the epochs would get, as far as nothing else sets the rate.
void try_schedule(const Located<std::string>& schedule, double rate, const ClassScope& scope) {
  const int64_t first = scope.config.fit.initial_epoch;
  const int64_t last = std::min(scope.config.fit.epochs.value, first + kMaxTried);
  try {
    for (int64_t epoch = first; epoch < last; ++epoch) {
      rate = static_cast<double>(static_cast<float>(RateExpression(schedule.value)(epoch, rate)));
    }
  } catch (const ExprError& error) {
    Diagnostic& problem = scope.diagnostics.error(
        "E132", schedule.loc,
        fmt::format("cannot evaluate `{}`: {}", schedule.value, error.message));
    if (!error.help.empty()) {
      problem.help(error.help);
    }
  }
}

}  // namespace

std::vector<ClassSpec> callback_classes() {
  return declared_callbacks();
}

std::optional<Interval> parse_backup_freq(std::string_view text) {
  return text == "false" ? Interval{} : parse_save_freq(text);
}

std::optional<Interval> parse_sample_freq(std::string_view text) {
  const std::optional<Interval> out = parse_save_freq(text);
  return out && out->unit == Interval::Unit::kSeconds ? std::nullopt : out;
}

std::optional<int64_t> parse_update_freq(std::string_view text) {
  const bool is_count = !text.empty() && text.size() < 18 && text[0] != '0' &&
                        text.find_first_not_of("0123456789") == std::string_view::npos;
  return text == "epoch"   ? std::optional<int64_t>(0)
         : text == "batch" ? 1
         : is_count        ? try_integer(std::string(text))
                           : std::nullopt;
}

void check_model_checkpoint(const ModelCheckpointOptions& callback, const ClassScope& scope) {
  const auto& [text, loc] = callback.filepath;
  const bool is_h5 = ends_with(text, ".weights.h5");
  if (callback.save_weights_only && !is_h5 && !ends_with(text, ".safetensors")) {
    scope.diagnostics.error("E113", loc, fmt::format("`save_weights_only` does not fit `{}`", text))
        .help("end it with .weights.h5 or .safetensors");
  }
  if (ends_with(text, ".h5") && !is_h5) {
    scope.diagnostics.error("E113", loc, "Keras 2's `.h5` files cannot be written")
        .help("end it with .keras, .weights.h5 or .safetensors");
  }
  // Extensions of model files of other programs; a folder may have a dot in its name.
  static constexpr std::string_view kOther[] = {".pt",  ".pth",  ".ckpt", ".hdf5", ".pb",    ".bin",
                                                ".npz", ".onnx", ".tf",   ".pkl",  ".joblib"};
  for (const std::string_view extension : kOther) {
    if (ends_with(to_lower(text), extension)) {
      scope.diagnostics
          .error("E113", loc, fmt::format("`{}` files cannot be written as models", extension))
          .help(
              "end it with .keras, .weights.h5 or .safetensors, or without an extension for a "
              "folder with everything");
    }
  }
  try {
    check_template(callback, FileTemplate(text), scope.diagnostics);
  } catch (const ExprError& error) {
    scope.diagnostics.error("E112", loc,
                            fmt::format("`filepath` cannot be `{}`: {}", text, error.message));
  }
}

// What save_freq says becomes `checkpoint.every`, for those who read the resolved config too.
void check_backup(const BackupOptions& callback, const ClassScope& scope) {
  const Located<Interval>& kept = scope.config.checkpoint.keep_every;
  if (callback.delete_checkpoint && kept->unit != Interval::Unit::kNever) {
    scope.diagnostics
        .error("E113", kept.loc,
               "`keep_every` keeps checkpoints, and `BackupAndRestore` deletes all at the end")
        .help("write `BackupAndRestore: {delete_checkpoint: false}`, or leave `keep_every` out");
  }
  const ConfigValue& frequency = scope.object.arg("save_freq");
  const Interval& every = callback.save_freq;
  Located<Interval>& saves = scope.config.checkpoint.every;
  if (frequency.string() != "epoch" && saves.loc && saves.value != every) {
    scope.diagnostics
        .error("E113", frequency.loc, "`save_freq` and `checkpoint.every` exclude each other")
        .help("leave one of them out");
  } else if (frequency.string() != "epoch") {
    saves = {every, frequency.loc};
    ConfigValue& shown = scope.tree.field("checkpoint").field("every");
    // "2 epochs" as it is written; batches, which Keras counts by a number, as steps.
    shown.data = every.unit == Interval::Unit::kSteps || every.unit == Interval::Unit::kNever
                     ? interval_text(every)
                     : frequency.string();
    shown.loc = frequency.loc;
    shown.is_default = false;
  }
}

void check_rate(const CallbackOptions& /*callback*/, const ClassScope& scope) {
  const std::vector<const ConfigValue*> rates = rates_of(scope.config);
  if (std::any_of(rates.begin(), rates.end(),
                  [](const ConfigValue* rate) { return rate->is_object(); })) {
    scope.diagnostics
        .error("E113", scope.object.loc,
               fmt::format("`{}` sets the learning rate, which is a schedule of its own",
                           scope.object.class_name))
        .help("a number as `learning_rate` of the optimizer, or no such callback");
  }
}

void check_scheduler(const LearningRateSchedulerOptions& callback, const ClassScope& scope) {
  check_rate(callback, scope);
  const std::vector<const ConfigValue*> rates = rates_of(scope.config);
  if (!rates.empty() && !rates[0]->is_object() && !callback.schedule->empty()) {
    try_schedule(callback.schedule, rates[0]->number(), scope);
  }
}

void check_csv_logger(const CsvLoggerOptions& callback, const ClassScope& scope) {
  const std::string& text = callback.separator.value;
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r") {
    scope.diagnostics.error("E112", callback.separator.loc, "`separator` must be one character")
        .help("write \",\", \";\" or \"\\t\"");
  }
}

void check_reset_states(const ResetStatesOptions& /*callback*/, const ClassScope& scope) {
  const std::vector<LayerConfig>& layers = scope.config.model.layers;
  const bool any = std::any_of(layers.begin(), layers.end(),
                               [](const LayerConfig& layer) { return is_stateful(layer.object); });
  if (!any) {
    scope.diagnostics.error("E113", scope.object.loc, "`ResetStates` finds no states to reset")
        .help("`stateful: true` of a recurrent layer keeps them");
  }
}

void check_swap_ema(const SwapEmaOptions& /*callback*/, const ClassScope& scope) {
  const std::vector<OptimizerMember> members = optimizer_members(scope.config.compile.optimizer);
  if (std::none_of(members.begin(), members.end(), [](const OptimizerMember& member) {
        return member.config->has("use_ema") && member.config->boolean("use_ema");
      })) {
    scope.diagnostics.error("E113", scope.object.loc, "`SwapEMAWeights` finds no averages to swap")
        .help("`use_ema: true` on the optimizer keeps them");
  }
}

}  // namespace meshtrain
