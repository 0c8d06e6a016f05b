#include "train/callbacks/model_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/json.h"
#include "interop/save_model.h"
#include "record/run_list.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// The path with the largest epoch among those in its folder that the template could have made.
std::optional<std::string> newest_in(const std::string& folder, const FileTemplate& name) {
  std::optional<std::string> newest;
  int64_t largest = -1;
  for (const std::string& entry : folder_names(folder)) {
    const std::optional<int64_t> epoch = name.epoch_in(entry);
    if (epoch && *epoch > largest) {
      largest = *epoch;
      newest = (fs::path(folder) / entry).string();
    }
  }
  return newest;
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(const ModelCheckpointOptions& options, CallbackContext& context,
                                 std::string state_name)
    : Callback(context, std::move(state_name)),
      filepath_(options.filepath),
      path_(filepath_),
      monitor_(options, 0, context, options.initial_value_threshold),
      every_(options.save_freq),
      keep_(options.keep.value_or(0)),
      verbose_(options.verbose > 0),
      best_only_(options.save_best_only) {}

void ModelCheckpoint::on_train_begin(const TrainPosition& at) {
  last_save_ = context().shared_now();
  steps_ = at.step;
}

int64_t ModelCheckpoint::steps_until_sync(const TrainPosition& at) const {
  if (every_.unit == Interval::Unit::kSteps) {
    return std::max<int64_t>(static_cast<int64_t>(every_.count) - batches_, 1);
  }
  return every_.unit == Interval::Unit::kSeconds ? 1 : Callback::steps_until_sync(at);
}

void ModelCheckpoint::on_train_step(const TrainPosition& at, const StepRunner& runner) {
  if (!std::isfinite(runner.last_loss())) {
    return;
  }
  ++steps_;
  bool due = false;
  if (every_.unit == Interval::Unit::kSteps) {
    due = ++batches_ >= static_cast<int64_t>(every_.count);
    batches_ = due ? 0 : batches_;
  } else if (every_.unit == Interval::Unit::kSeconds) {
    due = context().shared_now() - last_save_ >= every_.count;
  }
  if (due) {
    save(at.epoch, at.batch - 1, runner.logs());
    last_save_ = context().shared_now();
  }
}

void ModelCheckpoint::on_epoch_end(EpochReport& report) {
  if (every_.unit == Interval::Unit::kEpochs &&
      report.epoch % static_cast<int64_t>(every_.count) == 0) {
    save(report.epoch - 1, std::nullopt, report.logs);
  }
}

bool ModelCheckpoint::is_wanted(int64_t epoch, const Logs& logs, const std::string& path) {
  const auto say = [&](const std::string& text) {
    if (verbose_) {
      context().print(fmt::format("\nEpoch {}: {}\n", epoch + 1, text));
    }
  };
  if (!best_only_) {
    say("saving model to " + path);
    return true;
  }
  const double* value = monitor_.find(
      logs, fmt::format("Can save best model only with {} available.", monitor_.name()));
  if (value == nullptr) {  // such as val_loss in an epoch that fit.validation_freq leaves out
    return false;
  }
  const std::string best =
      monitor_.best() ? fmt::format("{:.5f}", *monitor_.best()) : std::string("None");
  if (!monitor_.improves_on(*value, monitor_.best())) {
    say(fmt::format("{} did not improve from {}", monitor_.name(), best));
    return false;
  }
  say(fmt::format("{} improved from {} to {:.5f}, saving model to {}", monitor_.name(), best,
                  *value, path));
  monitor_.set_best(*value);
  return true;
}

void ModelCheckpoint::save(int64_t epoch, std::optional<int64_t> batch, const Logs& logs) {
  const std::string name = path_.fill([&](const std::string& key) -> FileTemplate::Value {
    if (const double* value = find_log(logs, key)) {
      return *value;
    }
    return key == "epoch" ? epoch + 1 : key == "step" ? steps_ : batch.value_or(0) + 1;
  });
  const std::string path = context().resolve(name);
  if (!is_wanted(epoch, logs, name)) {
    return;
  }
  if (model_format(path) == ModelFormat::kNone) {
    context().state_saves.push_back(
        {path, [=, this](const std::string& error) { finish(epoch, name, error); }});
    return;
  }
  std::string error;
  try {
    context().save_model(path);
  } catch (const RuntimeFailure& problem) {
    if (problem.exit_code() != ExitCode::kWriteFailed) {
      throw;
    }
    error = problem.what();
  }
  finish(epoch, name, error);
}

void ModelCheckpoint::finish(int64_t epoch, const std::string& path, const std::string& error) {
  if (!error.empty()) {
    if (context().config.checkpoint.on_error == SaveFailure::kStop) {
      throw RuntimeFailure(ExitCode::kWriteFailed, error);
    }
    context().warn(error + "; training continues");
    return;
  }
  if (keep_ > 0) {  // only what was written here is ever deleted
    std::erase(files_, path);
    files_.push_back(path);
  }
  if (verbose_) {
    context().print(fmt::format("\nEpoch {}: finished saving model to {}\n", epoch + 1, path));
  }
  prune();
}

void ModelCheckpoint::prune() {
  while (keep_ > 0 && static_cast<int64_t>(files_.size()) > keep_) {
    const std::string path = context().resolve(files_.front());
    if (const auto problem = context().writes ? remove_folder(path) : std::nullopt) {  // or file
      context().warn(*problem);
    }
    files_.erase(files_.begin());
  }
}

std::string ModelCheckpoint::save_state() const {
  nlohmann::json state = {{"batches", batches_}, {"filepath", filepath_}, {"files", files_}};
  monitor_.save(state);
  return json_text(state);
}

void ModelCheckpoint::load_state(const std::string& json) {
  const nlohmann::json state = parse_json(json);
  batches_ = state.at("batches");
  monitor_.load(state);
  if (state.value("filepath", filepath_) == filepath_) {  // else nothing of theirs is deleted
    files_ = state.at("files").get<std::vector<std::string>>();
  }
}

std::optional<std::string> newest_model(const ConfigObject& callback, const std::string& runs) {
  const std::string filepath = read_options<ModelCheckpointOptions>(callback).filepath;
  const std::string folder = FileTemplate(filepath).folder().value_or("");
  const size_t begin = folder.empty() ? 0 : folder == "/" ? 1 : folder.size() + 1;
  const FileTemplate name(filepath.substr(begin));
  if (fs::path(filepath).is_absolute()) {
    return newest_in(folder, name);
  }
  std::vector<std::string> places;
  for (const std::string& run : folder_names(runs)) {
    if (std::string place = (fs::path(runs) / run).string(); is_real_folder(place)) {
      places.push_back(std::move(place));
    }
  }
  sort_oldest_first(places);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    if (auto newest = newest_in((fs::path(*place) / folder).string(), name)) {
      return newest;
    }
  }
  return std::nullopt;
}

}  // namespace meshtrain
