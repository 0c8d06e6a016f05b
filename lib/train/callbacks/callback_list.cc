#include "train/callbacks/callback_list.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace meshtrain {

std::string CallbackContext::resolve(const std::string& path) const {
  // The run's folder stays as it is written: behind a link, `..` is elsewhere.
  return (std::filesystem::path(run_dir) / std::filesystem::path(path).lexically_normal()).string();
}

std::string CallbackContext::output(const std::string& path) const {
  return writes ? resolve(path) : "/dev/null";
}

bool is_within_run(const std::string& path) {
  const std::filesystem::path place = std::filesystem::path(path).lexically_normal();
  return place.is_relative() && *place.begin() != "..";
}

void set_log(Logs& logs, const std::string& name, double value) {
  const auto found =
      std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == name; });
  if (found == logs.end()) {
    logs.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

void CallbackList::sync() {
  for (const auto& callback : callbacks_) {
    callback->sync();
  }
}

std::vector<StateSave> CallbackList::take_state_saves() {
  return std::exchange(context_.state_saves, {});
}

}  // namespace meshtrain
