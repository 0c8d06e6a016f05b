// `callbacks`: the checks of several callbacks together.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <variant>

#include "config/bind.h"
#include "config/catalogue.h"
#include "config/run_files.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

void strip_slash(std::string& path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
}

// Whether a place in the run's folder is one that the run itself writes to.
bool is_of_run(const fs::path& place, CallbackOutput output) {
  auto part = place.begin();
  if (*part == run_files::kCheckpoints) {
    ++part;
    return part == place.end() || part->empty() || *part == "LOCK" || *part == "best" ||
           *part == "rejected";
  }
  return run_files::is_of_run(part->string()) ||
         (*part == "metrics.csv" && output != CallbackOutput::kTable);
}

class CallbackBinder {
 public:
  CallbackBinder(ConfigValue& tree, Config& config, Diagnostics& diagnostics)
      : tree_(tree), config_(config), diagnostics_(diagnostics) {}

  void bind(ConfigObject& callback) {
    const ClassSpec& spec = class_of_object(Category::kCallback, callback);
    for (const Spec& arg : spec.args) {
      if (arg.output == CallbackOutput::kModel) {
        strip_slash(std::get<std::string>(callback.args.at(arg.name).data));
      }
    }
    spec.check({callback, config_, tree_, diagnostics_});
    for (const Spec& arg : spec.args) {
      if (arg.output != CallbackOutput::kNone) {
        claim(callback, arg);
      }
    }
    if (spec.is_unique && config_.callback(spec.name) != nullptr) {
      diagnostics_.error("E113", callback.loc, fmt::format("there is a `{}` already", spec.name));
    }
    config_.callbacks.push_back(callback);
  }

 private:
  // Two callbacks that write one file would undo each other's work.
  void claim(const ConfigObject& callback, const Spec& arg) {
    const ConfigValue& path = callback.arg(arg.name);
    if (path.is_null() || path.string().empty()) {  // the latter has been reported
      return;
    }
    std::string name = fs::path(path.string()).lexically_normal().string();
    if (!may_write(arg, path, name)) {
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

  bool may_write(const Spec& arg, const ConfigValue& path, const fs::path& place) {
    const bool has_name =
        arg.output == CallbackOutput::kModel || arg.output == CallbackOutput::kTable;
    const fs::path name = place.filename();
    if (has_name && (name.empty() || name == "." || name == "..")) {
      diagnostics_
          .error("E112", path.loc, fmt::format("`{}` cannot be `{}`", arg.name, path.string()))
          .help("it ends with a name of its own");
      return false;
    }
    if (arg.output != CallbackOutput::kLink && place.is_relative() &&
        is_of_run(place, arg.output)) {
      diagnostics_
          .error("E113", path.loc, fmt::format("`{}` is written by the run itself", path.string()))
          .help("another name");
      return false;
    }
    return true;
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
