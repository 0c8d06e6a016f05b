// `callbacks`: the checks that look at more than one value.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <variant>

#include "base/text.h"
#include "config/bind.h"
#include "config/file_template.h"
#include "config/rate_expression.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTried = 1000;  // epochs

void strip_slash(std::string& path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
}

// Whether a place in the run's folder is one that the run itself writes to. A CSVLogger may take
// over the run's table.
bool is_of_run(const fs::path& place, std::string_view class_name) {
  static const std::set<std::string, std::less<>> kFiles = {"config.resolved.yaml",
                                                            "config.yaml",
                                                            "data.json",
                                                            "layout.json",
                                                            "log.txt",
                                                            "meta.json",
                                                            "metrics.jsonl",
                                                            "plan.json",
                                                            "plan.txt",
                                                            "report.html",
                                                            "weights.safetensors"};
  auto part = place.begin();
  if (*part == "checkpoints") {
    ++part;
    return part == place.end() || part->empty() || *part == "LOCK" || *part == "best" ||
           *part == "rejected";
  }
  return kFiles.contains(part->string()) || (*part == "metrics.csv" && class_name != "CSVLogger");
}

// The one within a LossScaleOptimizer.
const ConfigObject& inner_of(const ConfigObject& optimizer) {
  return optimizer.has("inner_optimizer") ? optimizer.arg("inner_optimizer").object() : optimizer;
}

const ConfigValue* rate_of(const ConfigObject& optimizer) {
  const ConfigObject& inner = inner_of(optimizer);
  return inner.has("learning_rate") ? &inner.arg("learning_rate") : nullptr;
}

class CallbackBinder {
 public:
  CallbackBinder(ConfigValue& tree, Config& config, Diagnostics& diagnostics)
      : tree_(tree), config_(config), diagnostics_(diagnostics) {}

  void bind(ConfigObject& callback) {
    const std::string& name = callback.class_name;
    if (name == "ModelCheckpoint") {
      strip_slash(std::get<std::string>(callback.args.at("filepath").data));
      checkpoint(callback);
    } else if (name == "BackupAndRestore") {
      backup(callback);
    } else if (name == "LearningRateScheduler" || name == "ReduceLROnPlateau") {
      rate(callback);
    } else if (name == "CSVLogger") {
      table(callback);
    } else if (name == "TensorBoard") {
      board(callback);
    } else if (name == "SwapEMAWeights") {
      averages(callback);
    }
    config_.callbacks.push_back(callback);
  }

 private:
  void checkpoint(const ConfigObject& callback) {
    const ConfigValue& path = callback.arg("filepath");
    const std::string& text = path.string();
    const bool is_h5 = ends_with(text, ".weights.h5");
    if (callback.boolean("save_weights_only") && !is_h5 && !ends_with(text, ".safetensors")) {
      diagnostics_
          .error("E113", path.loc, fmt::format("`save_weights_only` does not fit `{}`", text))
          .help("end it with .weights.h5 or .safetensors");
    }
    if (ends_with(text, ".h5") && !is_h5) {
      diagnostics_.error("E113", path.loc, "Keras 2's `.h5` files cannot be written")
          .help("end it with .keras, .weights.h5 or .safetensors");
    }
    interval(callback);
    claim(callback, "filepath");
    try {
      check_template(callback, FileTemplate(text));
    } catch (const ExprError& error) {
      diagnostics_.error("E112", path.loc,
                         fmt::format("`filepath` cannot be `{}`: {}", text, error.message));
    }
  }

  void check_template(const ConfigObject& callback, const FileTemplate& path) {
    const std::vector<std::string> names = path.names();
    const SourceLoc loc = callback.loc_of("filepath");
    if (callback.boolean("restore") &&
        (std::count(names.begin(), names.end(), "epoch") != 1 || !path.folder())) {
      diagnostics_
          .error("E113", loc, "`restore` needs one `{epoch}`, in the name and not in the folders")
          .help("write ckpt/ckpt-{epoch}.keras");
    }
    const std::string example =
        path.fill([](const std::string&) -> FileTemplate::Value { return int64_t{1}; });
    const fs::path place = fs::path(example).lexically_normal();
    const std::string name = place.filename().string();
    if (place.parent_path() == "checkpoints" &&
        name.find_first_not_of("0123456789") == std::string::npos) {
      diagnostics_.error("E113", loc, "the run's own checkpoints have such names")
          .help("write `checkpoint: {every: 30 min, keep: 3}` for those, or another folder");
    }
  }

  // What save_freq says becomes `checkpoint.every`, for those who read the resolved config too.
  void backup(const ConfigObject& callback) {
    const ConfigValue& frequency = callback.arg("save_freq");
    const Interval every = frequency.string() == "false" ? Interval{} : interval(callback);
    Located<Interval>& saves = config_.checkpoint.every;
    if (frequency.string() != "epoch" && saves.loc && saves.value != every) {
      diagnostics_
          .error("E113", frequency.loc, "`save_freq` and `checkpoint.every` exclude each other")
          .help("leave one of them out");
    } else if (frequency.string() != "epoch") {
      saves = {every, frequency.loc};
      ConfigValue& shown = tree_.field("checkpoint").field("every");
      // "2 epochs" as it is written; batches, which Keras counts by a number, as steps.
      shown.data = every.unit == Interval::Unit::kSteps || every.unit == Interval::Unit::kNever
                       ? interval_text(every)
                       : frequency.string();
      shown.loc = frequency.loc;
      shown.is_default = false;
    }
    claim(callback, "backup_dir");
    once(callback);
  }

  void rate(const ConfigObject& callback) {
    const ConfigValue* rate = rate_of(config_.compile.optimizer);
    if (rate != nullptr && rate->is_object()) {
      diagnostics_
          .error("E113", callback.loc,
                 fmt::format("`{}` sets the learning rate, which is a schedule of its own",
                             callback.class_name))
          .help("a number as `learning_rate` of the optimizer, or no such callback");
    } else if (rate != nullptr && callback.class_name == "LearningRateScheduler" &&
               !callback.string("schedule").empty()) {
      try_schedule(callback.arg("schedule"), rate->number());
    }
  }

  // What the epochs would get, as far as nothing else sets the rate.
  void try_schedule(const ConfigValue& schedule, double rate) {
    const int64_t first = config_.fit.initial_epoch;
    const int64_t last = std::min(config_.fit.epochs.value, first + kMaxTried);
    try {
      for (int64_t epoch = first; epoch < last; ++epoch) {
        rate =
            static_cast<double>(static_cast<float>(RateExpression(schedule.string())(epoch, rate)));
      }
    } catch (const ExprError& error) {
      Diagnostic& problem = diagnostics_.error(
          "E132", schedule.loc,
          fmt::format("cannot evaluate `{}`: {}", schedule.string(), error.message));
      if (!error.help.empty()) {
        problem.help(error.help);
      }
    }
  }

  void board(const ConfigObject& callback) {
    const ConfigValue& frequency = callback.arg("update_freq");
    const std::string& text = frequency.string();
    const bool is_count = !text.empty() && text.size() < 18 && text[0] != '0' &&
                          text.find_first_not_of("0123456789") == std::string::npos;
    if (text != "epoch" && text != "batch" && !is_count) {
      diagnostics_.error("E112", frequency.loc, fmt::format("`update_freq` cannot be `{}`", text))
          .help("write epoch, batch or a number of batches");
    }
    claim(callback, "log_dir");
  }

  void averages(const ConfigObject& callback) {
    const ConfigObject& optimizer = inner_of(config_.compile.optimizer);
    if (!optimizer.has("use_ema") || !optimizer.boolean("use_ema")) {
      diagnostics_.error("E113", callback.loc, "`SwapEMAWeights` finds no averages to swap")
          .help("`use_ema: true` on the optimizer keeps them");
    }
    once(callback);
  }

  void table(const ConfigObject& callback) {
    const ConfigValue& separator = callback.arg("separator");
    const std::string& text = separator.string();
    if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r") {
      diagnostics_.error("E112", separator.loc, "`separator` must be one character")
          .help("write \",\", \";\" or \"\\t\"");
    }
    claim(callback, "filename");
  }

  Interval interval(const ConfigObject& callback) {
    const ConfigValue& value = callback.arg("save_freq");
    const std::optional<Interval> every = parse_save_freq(value.string());
    if (!every) {
      diagnostics_
          .error("E112", value.loc, fmt::format("`save_freq` cannot be `{}`", value.string()))
          .help("write epoch, 200 (batches), 2 epochs or 30 min");
    }
    return every.value_or(Interval{});
  }

  // Two callbacks that write one file would undo each other's work.
  void claim(const ConfigObject& callback, const char* arg) {
    const ConfigValue& path = callback.arg(arg);
    if (path.is_null() || path.string().empty()) {  // the latter has been reported
      return;
    }
    std::string name = fs::path(path.string()).lexically_normal().string();
    if (!may_write(callback, arg, name)) {
      return;
    }
    strip_slash(name);
    const auto [at, added] = owners_.emplace(name, callback.loc);
    if (!added) {
      diagnostics_
          .error("E113", path.loc, fmt::format("`{}` is written by two callbacks", path.string()))
          .note(fmt::format("the other is at {}", at->second.to_string()));
    }
  }

  bool may_write(const ConfigObject& callback, std::string_view arg, const fs::path& place) {
    const ConfigValue& path = callback.arg(arg);
    const fs::path name = place.filename();
    if ((arg == "filepath" || arg == "filename") && (name.empty() || name == "." || name == "..")) {
      diagnostics_.error("E112", path.loc, fmt::format("`{}` cannot be `{}`", arg, path.string()))
          .help("it ends with a name of its own");
      return false;
    }
    if (arg != "backup_dir" && place.is_relative() && is_of_run(place, callback.class_name)) {
      diagnostics_
          .error("E113", path.loc, fmt::format("`{}` is written by the run itself", path.string()))
          .help("another name");
      return false;
    }
    return true;
  }

  void once(const ConfigObject& callback) {
    for (const ConfigObject& other : config_.callbacks) {
      if (other.class_name == callback.class_name) {
        diagnostics_.error("E113", callback.loc,
                           fmt::format("there is a `{}` already", callback.class_name));
      }
    }
  }

  ConfigValue& tree_;  // of the whole config
  Config& config_;
  Diagnostics& diagnostics_;
  std::map<std::string, SourceLoc> owners_;
};

}  // namespace

const ConfigObject* Config::callback(std::string_view class_name) const {
  const auto found = std::find_if(callbacks.begin(), callbacks.end(), [&](const ConfigObject& c) {
    return c.class_name == class_name;
  });
  return found == callbacks.end() ? nullptr : &*found;
}

std::vector<std::string> callback_names(const std::vector<ConfigObject>& callbacks) {
  std::map<std::string, int> count;
  std::vector<std::string> out;
  for (const ConfigObject& callback : callbacks) {
    const int number = ++count[callback.class_name];
    out.push_back(number == 1 ? callback.class_name
                              : fmt::format("{}-{}", callback.class_name, number));
  }
  return out;
}

void bind_callbacks(ConfigValue& tree, Config& config, Diagnostics& diagnostics) {
  const ConfigValue& callbacks = tree.field("callbacks");
  if (!callbacks.is_list()) {
    return;
  }
  CallbackBinder binder(tree, config, diagnostics);
  for (const ConfigValue& entry : callbacks.list()) {
    if (entry.is_object()) {
      binder.bind(*std::get<std::shared_ptr<ConfigObject>>(entry.data));
    }
  }
}

}  // namespace meshtrain
