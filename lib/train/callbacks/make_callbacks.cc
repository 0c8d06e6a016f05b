#include "train/callbacks/make_callbacks.h"

#include <algorithm>

#include "train/callbacks/csv_logger.h"
#include "train/callbacks/early_stopping.h"
#include "train/callbacks/learning_rate_scheduler.h"
#include "train/callbacks/model_checkpoint.h"
#include "train/callbacks/reduce_lr_on_plateau.h"
#include "train/callbacks/reset_states.h"
#include "train/callbacks/run_command_callback.h"
#include "train/callbacks/step_validation.h"
#include "train/callbacks/swap_ema_weights.h"
#include "train/callbacks/tensorboard.h"
#include "train/callbacks/terminate_on_nan.h"
#include "train/callbacks/text_samples.h"

namespace meshtrain {
namespace {

constexpr const char* kOwnTable = "metrics.csv";

template <class T, class Options>
std::unique_ptr<Callback> make(const ConfigObject& object, CallbackContext& context,
                               std::string name) {
  return std::make_unique<T>(read_options<Options>(object), context, std::move(name));
}

constexpr CallbackType kTypes[] = {
    {.class_name = "BackupAndRestore", .writes_files = true},
    {.class_name = "CSVLogger", .make = make<CsvLogger, CsvLoggerOptions>, .writes_files = true},
    {.class_name = "EarlyStopping", .make = make<EarlyStopping, EarlyStoppingOptions>},
    {.class_name = "LearningRateScheduler",
     .make = make<LearningRateScheduler, LearningRateSchedulerOptions>,
     .adds_learning_rate = true},
    {.class_name = "ModelCheckpoint",
     .make = make<ModelCheckpoint, ModelCheckpointOptions>,
     .writes_files = true},
    {.class_name = "ReduceLROnPlateau",
     .make = make<ReduceLROnPlateau, ReduceLROnPlateauOptions>,
     .adds_learning_rate = true},
    {.class_name = "ResetStates", .make = make<ResetStates, ResetStatesOptions>},
    {.class_name = "RunCommand", .make = make<RunCommand, RunCommandOptions>},
    {.class_name = "StepValidation", .make = make<StepValidation, StepValidationOptions>},
    {.class_name = "SwapEMAWeights",
     .make = make<SwapEmaWeights, SwapEmaOptions>,
     .undo = SwapEmaWeights::undo},
    {.class_name = "TensorBoard",
     .make = make<TensorBoard, TensorBoardOptions>,
     .writes_files = true},
    {.class_name = "TerminateOnNaN", .make = make<TerminateOnNaN, TerminateOnNaNOptions>},
    {.class_name = "TextSamples",
     .make = make<TextSamples, TextSamplesOptions>,
     .writes_files = true},
};

}  // namespace

std::span<const CallbackType> callback_types() {
  return kTypes;
}

const CallbackType& callback_type(std::string_view class_name) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const CallbackType& type) { return type.class_name == class_name; });
  MESHTRAIN_CHECK(found != std::end(kTypes), "no callback `{}`", class_name);
  return *found;
}

void undo_callback(std::string_view state_name, const std::string& state, StepRunner& runner) {
  for (const CallbackType& type : kTypes) {
    const std::string_view name = state_name.substr(0, state_name.find('-'));
    if (type.class_name == name && type.undo != nullptr) {
      type.undo(state, runner);
    }
  }
}

void add_callbacks(CallbackList& list) {
  CallbackContext& context = list.context();
  const std::vector<ConfigObject>& callbacks = context.config.callbacks;
  const std::vector<std::string> names = callback_names(callbacks);
  const std::string own_table = context.resolve(kOwnTable);
  bool has_table = false;
  for (size_t c = 0; c < callbacks.size(); ++c) {
    const ConfigObject& callback = callbacks[c];
    if (const auto make = callback_type(callback.class_name).make) {
      list.add(make(callback, context, names[c]));
    }
    const auto table = options_if<CsvLoggerOptions>(callback);
    has_table = has_table || (table && context.resolve(table->filename) == own_table);
  }
  if (!has_table) {
    CsvLoggerOptions own;
    own.filename = kOwnTable;
    list.add(std::make_unique<CsvLogger>(own, context, kOwnTable));
  }
}

}  // namespace meshtrain
