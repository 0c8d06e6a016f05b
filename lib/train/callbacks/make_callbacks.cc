#include "train/callbacks/make_callbacks.h"

#include <algorithm>
#include <map>

#include "train/callbacks/csv_logger.h"
#include "train/callbacks/early_stopping.h"
#include "train/callbacks/learning_rate_scheduler.h"
#include "train/callbacks/model_checkpoint.h"
#include "train/callbacks/reduce_lr_on_plateau.h"
#include "train/callbacks/swap_ema_weights.h"
#include "train/callbacks/tensorboard.h"
#include "train/callbacks/terminate_on_nan.h"

namespace meshtrain {
namespace {

constexpr const char* kOwnTable = "metrics.csv";

using Make = std::unique_ptr<Callback> (*)(const ConfigObject&, CallbackContext&, std::string name);

template <class T>
std::unique_ptr<Callback> make(const ConfigObject& object, CallbackContext& context,
                               std::string name) {
  return std::make_unique<T>(object, context, std::move(name));
}

// BackupAndRestore is none of these: it says how the run's checkpoints are made and used.
const std::map<std::string, Make, std::less<>>& makers() {
  static const std::map<std::string, Make, std::less<>> kMakers = {
      {"CSVLogger", make<CsvLogger>},
      {"EarlyStopping", make<EarlyStopping>},
      {"LearningRateScheduler", make<LearningRateScheduler>},
      {"ModelCheckpoint", make<ModelCheckpoint>},
      {"ReduceLROnPlateau", make<ReduceLROnPlateau>},
      {"SwapEMAWeights", make<SwapEmaWeights>},
      {"TensorBoard", make<TensorBoard>},
      {"TerminateOnNaN", make<TerminateOnNaN>},
  };
  return kMakers;
}

}  // namespace

void add_callbacks(CallbackList& list) {
  CallbackContext& context = list.context();
  const std::vector<ConfigObject>& callbacks = context.config.callbacks;
  const std::vector<std::string> names = callback_names(callbacks);
  const std::string own_table = context.resolve(kOwnTable);
  bool has_table = false;
  for (size_t c = 0; c < callbacks.size(); ++c) {
    const auto found = makers().find(callbacks[c].class_name);
    if (found != makers().end()) {
      list.add(found->second(callbacks[c], context, names[c]));
    }
    has_table = has_table || (callbacks[c].class_name == "CSVLogger" &&
                              context.resolve(callbacks[c].string("filename")) == own_table);
  }
  if (!has_table) {
    list.add(std::make_unique<CsvLogger>(kOwnTable, context, kOwnTable));
  }
}

}  // namespace meshtrain
