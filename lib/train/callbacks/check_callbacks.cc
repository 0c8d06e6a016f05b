// check_callbacks: what needs the model's metrics and the file system, but no run.
#include <algorithm>
#include <filesystem>

#include "base/suggest.h"
#include "base/text.h"
#include "config/file_template.h"
#include "data/dataset_spec.h"
#include "record/run_dir.h"
#include "train/callbacks/make_callbacks.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/text_samples.h"

namespace meshtrain {
namespace {

class Checker {
 public:
  Checker(const Setup& setup, bool validates, Diagnostics& diagnostics)
      : setup_(setup), diagnostics_(diagnostics), validates_(validates) {
    std::vector<std::string> of_validation;
    for (const TrackedMetric& tracked : setup.graphs().metrics()) {
      running_.push_back(tracked.metric.name);
      if (validates && !tracked.only_training) {
        of_validation.push_back("val_" + tracked.metric.name);
      }
    }
    std::sort(running_.begin(), running_.end());
    std::sort(of_validation.begin(), of_validation.end());
    logs_ = running_;
    logs_.insert(logs_.end(), of_validation.begin(), of_validation.end());
  }

  void check(const ConfigObject& callback) {
    check_validation(callback);
    const CallbackType& type = callback_type(callback.class_name);
    if (type.adds_learning_rate) {
      logs_.push_back("learning_rate");  // for all that follow
    }
    const auto saves = options_if<ModelCheckpointOptions>(callback);
    const bool by_batches = saves && saves->save_freq.unit != Interval::Unit::kEpochs;
    const std::vector<std::string>& logs = by_batches ? running_ : logs_;
    const bool is_written = saves && !callback.arg("monitor").is_default;
    if (saves ? saves->save_best_only || is_written : has_options<MonitorOptions>(callback)) {
      check_monitor(callback, logs);
    }
    if (saves) {
      check_template(*saves, logs, by_batches);
    }
    if (const auto samples = options_if<TextSamplesOptions>(callback)) {
      check_texts(*samples);
    }
    for (const Spec& arg : class_of_object(Category::kCallback, callback).args) {
      if (arg.output != CallbackOutput::kNone && callback.has(arg.name)) {
        check_place(callback.arg(arg.name));
      }
    }
  }

  // `checkpoint.monitor`, after all callbacks have added their logs.
  void check_best(const CheckpointConfig& checkpoint) {
    if (!checkpoint.monitor->empty()) {
      check_watched("checkpoint", checkpoint.monitor, checkpoint.mode, logs_);
    }
  }

 private:
  void check_validation(const ConfigObject& callback) {
    if (has_options<StepValidationOptions>(callback) && !validates_) {
      diagnostics_.error("E113", callback.loc, "`StepValidation` has no data to validate on")
          .help("data.validation, data.split or fit.validation_split");
    }
  }

  void check_texts(const TextSamplesOptions& options) {
    try {
      check_text_samples(options, setup_);
    } catch (const ConfigError& error) {
      diagnostics_.append(error.diagnostics());
    }
  }

  void check_monitor(const ConfigObject& callback, const std::vector<std::string>& logs) {
    const auto options = read_options<MonitorOptions>(callback);
    check_watched(callback.class_name, options.monitor, options.mode, logs);
  }

  void check_watched(const std::string& owner, const Located<std::string>& watched,
                     MonitorMode mode, const std::vector<std::string>& logs) {
    const auto& [monitor, loc] = watched;
    if (std::find(logs.begin(), logs.end(), monitor) == logs.end()) {
      Diagnostic& problem = diagnostics_.error(
          "E113", loc, fmt::format("`{}` watches `{}`, which is no log here", owner, monitor));
      suggest(problem, monitor, logs);
      problem.note("logs: " + join(logs, ", "));
      if (starts_with(monitor, "val_") && logs_.size() == running_.size()) {
        problem.help(
            "`val_` logs need validation data: data.validation, data.split or "
            "fit.validation_split");
      }
    } else if (mode == MonitorMode::kAuto && !larger_is_better(setup_.graphs(), monitor)) {
      diagnostics_
          .error("E113", loc, fmt::format("whether a larger `{}` is better is not known", monitor))
          .help("write `mode: max` or `mode: min`");
    }
  }

  void check_template(const ModelCheckpointOptions& callback, const std::vector<std::string>& logs,
                      bool by_batches) {
    const auto& [path, loc] = callback.filepath;
    std::vector<std::string> known = {"epoch", "step"};
    if (by_batches) {
      known.insert(known.begin() + 1, "batch");
    }
    known.insert(known.end(), logs.begin(), logs.end());
    for (const std::string& name : FileTemplate(path).names()) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        Diagnostic& problem = diagnostics_.error(
            "E113", loc, fmt::format("`filepath` has `{{{}}}`, which is not known here", name));
        suggest(problem, name, known);
        problem.note("known: " + join(known, ", "));
      } else if (starts_with(name, "val_") && !validates_whenever(callback)) {
        diagnostics_
            .error("E113", loc,
                   fmt::format("`{{{}}}` is not there after each epoch that is saved", name))
            .help("`fit.validation_freq: 1`, or the same distance as `save_freq: 2 epochs`");
      }
    }
  }

  // Whether every epoch that is saved is validated.
  bool validates_whenever(const ModelCheckpointOptions& callback) const {
    const FitConfig& fit = setup_.config().fit;
    const auto every = static_cast<int64_t>(callback.save_freq.count);
    return fit.validation_epochs.empty() && every % fit.validation_freq.value == 0;
  }

  // Paths of the run's own folder are its business.
  void check_place(const ConfigValue& path) {
    const std::filesystem::path place(path.string());
    if (place.is_absolute()) {
      check_can_make(place.parent_path().string(), path.loc, diagnostics_);
    }
  }

  const Setup& setup_;
  Diagnostics& diagnostics_;
  bool validates_;
  std::vector<std::string> running_, logs_;
};

// The files that a run reads: its data and the config. Weights to begin with may be replaced by
// better ones.
std::vector<std::string> read_files(const Config& config, const ConfigValue& output) {
  std::vector<std::string> files;
  for (const auto& source : {config.data.train, config.data.validation, config.data.test}) {
    if (source) {
      const std::vector<std::string> of_source = source_paths(*source, config.data);
      files.insert(files.end(), of_source.begin(), of_source.end());
    }
  }
  files.push_back(output.loc ? output.loc.file->name : "");
  return files;
}

}  // namespace

void check_outputs(const Config& config, const std::string& run_dir, Diagnostics& diagnostics) {
  namespace fs = std::filesystem;
  for (const ConfigObject& callback : config.callbacks) {
    for (const Spec& arg : class_of_object(Category::kCallback, callback).args) {
      const bool is_file =
          arg.output == CallbackOutput::kTable || arg.output == CallbackOutput::kModel;
      if (!is_file || !callback.has(arg.name)) {
        continue;
      }
      const ConfigValue& path = callback.arg(arg.name);
      const fs::path place = fs::path(run_dir) / path.string();
      std::error_code error;
      if ((run_dir.empty() && place.is_relative()) || !fs::is_regular_file(place, error)) {
        continue;
      }
      for (const std::string& file : read_files(config, path)) {
        if (fs::equivalent(place, file, error)) {
          diagnostics
              .error("E113", path.loc,
                     fmt::format("`{}` of `{}` would replace `{}`, which the run reads", arg.name,
                                 callback.class_name, file))
              .help("another name for what the callback writes");
          break;
        }
      }
    }
  }
}

void check_callbacks(const Setup& setup, bool validates, Diagnostics& diagnostics) {
  Checker checker(setup, validates, diagnostics);
  for (const ConfigObject& callback : setup.config().callbacks) {
    checker.check(callback);
  }
  checker.check_best(setup.config().checkpoint);
  check_outputs(setup.config(), "", diagnostics);
}

}  // namespace meshtrain
