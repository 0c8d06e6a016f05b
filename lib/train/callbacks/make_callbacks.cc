#include "train/callbacks/make_callbacks.h"

#include <map>

#include "base/text.h"

namespace meshtrain {
namespace {

using Make = std::unique_ptr<Callback> (*)(const ConfigObject&, CallbackContext&, std::string name);

template <class T>
std::unique_ptr<Callback> make(const ConfigObject& object, CallbackContext& context,
                               std::string name) {
  return std::make_unique<T>(object, context, std::move(name));
}

// BackupAndRestore is none of these: it says when the run's checkpoints are made and used.
const std::map<std::string, Make, std::less<>>& makers() {
  static const std::map<std::string, Make, std::less<>> kMakers = {};
  return kMakers;
}

}  // namespace

void check_callbacks(const Setup&, bool, Diagnostics&) {}

void add_callbacks(CallbackList& list) {
  CallbackContext& context = list.context();
  std::map<std::string, int> count;
  for (const ConfigObject& object : context.config.callbacks) {
    const auto found = makers().find(object.class_name);
    if (found != makers().end()) {
      const int number = ++count[object.class_name];
      list.add(found->second(
          object, context,
          number == 1 ? object.class_name : fmt::format("{}-{}", object.class_name, number)));
    }
  }
}

}  // namespace meshtrain
