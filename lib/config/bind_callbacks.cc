// `callbacks`: the checks that look at more than one value.
#include <filesystem>
#include <map>

#include "base/text.h"
#include "config/bind.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

bool has_schedule(const ConfigObject& optimizer) {
  const ConfigObject& inner =
      optimizer.has("inner_optimizer") ? optimizer.arg("inner_optimizer").object() : optimizer;
  return inner.has("learning_rate") && inner.arg("learning_rate").is_object();
}

class CallbackBinder {
 public:
  CallbackBinder(Config& config, Diagnostics& diagnostics)
      : config_(config), diagnostics_(diagnostics) {}

  void bind(const ConfigObject& callback) {
    const std::string& name = callback.class_name;
    if (name == "ModelCheckpoint") {
      checkpoint(callback);
    } else if (name == "BackupAndRestore") {
      backup(callback);
    } else if (name == "LearningRateScheduler" || name == "ReduceLROnPlateau") {
      rate(callback);
    } else if (name == "CSVLogger") {
      table(callback);
    }
    config_.callbacks.push_back(callback);
  }

 private:
  void checkpoint(const ConfigObject& callback) {
    const ConfigValue& path = callback.arg("filepath");
    const bool weights_end =
        ends_with(path.string(), ".weights.h5") || ends_with(path.string(), ".safetensors");
    if (callback.boolean("save_weights_only") && !weights_end) {
      diagnostics_
          .error("E113", path.loc,
                 fmt::format("`save_weights_only` does not fit `{}`", path.string()))
          .help("end it with .weights.h5 or .safetensors");
    }
    if (ends_with(path.string(), ".h5") && !ends_with(path.string(), ".weights.h5")) {
      diagnostics_.error("E113", path.loc, "Keras 2's `.h5` files cannot be written")
          .help("end it with .keras, .weights.h5 or .safetensors");
    }
    interval(callback);
    claim(callback, "filepath");
  }

  void backup(const ConfigObject& callback) {
    const ConfigValue& frequency = callback.arg("save_freq");
    const bool off = frequency.string() == "false";
    const Interval every = off ? Interval{} : interval(callback);
    if (config_.checkpoint.every.loc && !frequency.is_default) {
      diagnostics_
          .error("E113", frequency.loc, "`save_freq` and `checkpoint.every` exclude each other")
          .help("leave one of them out");
    } else if (!config_.checkpoint.every.loc) {
      config_.checkpoint.every = {every, frequency.is_default ? SourceLoc() : frequency.loc};
    }
    claim(callback, "backup_dir");
    once(callback);
  }

  void rate(const ConfigObject& callback) {
    if (has_schedule(config_.compile.optimizer)) {
      diagnostics_
          .error("E113", callback.loc,
                 fmt::format("`{}` sets the learning rate, which is a schedule of its own",
                             callback.class_name))
          .help("a number as `learning_rate` of the optimizer, or no such callback");
    }
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
    if (path.is_null()) {
      return;
    }
    if (path.string().empty()) {
      diagnostics_.error("E112", path.loc, fmt::format("`{}` must not be empty", arg));
      return;
    }
    const std::string name = std::filesystem::path(path.string()).lexically_normal().string();
    const auto [at, added] = owners_.emplace(name, callback.loc);
    if (!added) {
      diagnostics_
          .error("E113", path.loc, fmt::format("`{}` is written by two callbacks", path.string()))
          .note(fmt::format("the other is at {}", at->second.to_string()));
    }
  }

  void once(const ConfigObject& callback) {
    for (const ConfigObject& other : config_.callbacks) {
      if (other.class_name == callback.class_name) {
        diagnostics_.error("E113", callback.loc,
                           fmt::format("there is a `{}` already", callback.class_name));
      }
    }
  }

  Config& config_;
  Diagnostics& diagnostics_;
  std::map<std::string, SourceLoc> owners_;
};

}  // namespace

std::optional<Interval> parse_save_freq(std::string_view text) {
  if (const auto batches = try_integer(text)) {
    return *batches > 0 ? std::optional(Interval{.unit = Interval::Unit::kSteps,
                                                 .count = static_cast<double>(*batches)})
                        : std::nullopt;
  }
  const std::optional<Interval> interval = parse_interval(text);
  return interval && interval->unit != Interval::Unit::kNever ? interval : std::nullopt;
}

void bind_callbacks(ConfigValue& tree, Config& config, Diagnostics& diagnostics) {
  if (!tree.is_list()) {
    return;
  }
  CallbackBinder binder(config, diagnostics);
  for (const ConfigValue& entry : tree.list()) {
    if (entry.is_object()) {
      binder.bind(entry.object());
    }
  }
}

}  // namespace meshtrain
