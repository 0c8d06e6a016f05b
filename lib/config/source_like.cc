#include "config/source_like.h"

#include <algorithm>
#include <iterator>

namespace meshtrain {
namespace {

// Which samples are read.
constexpr std::string_view kOwn[] = {"path", "slice", "seed", "validation_split", "subset"};

constexpr const char* kTraining = "(training source)";  // no name that a file can give

}  // namespace

bool is_read_like_training(const std::string& class_name) {
  return class_name == "csv" || class_name == "text" || class_name == "tokens" ||
         class_name == "image_folder";
}

bool names_files(const ClassSpec& source, const Spec& arg) {
  return arg.kind == ValueKind::kPath || arg.kind == ValueKind::kPaths ||
         (source.name == "npy" && arg.kind == ValueKind::kNames);
}

void take_arguments(const ConfigObject& train, ConfigObject& source) {
  if (source.class_name != train.class_name || !is_read_like_training(train.class_name)) {
    return;
  }
  for (auto& [name, value] : source.args) {
    if (value.is_default && std::find(std::begin(kOwn), std::end(kOwn), name) == std::end(kOwn)) {
      value = train.arg(name);
    }
  }
}

void read_like_training(const ConfigObject& train, ConfigObject& source) {
  if (source.class_name != train.class_name || !is_read_like_training(train.class_name)) {
    return;
  }
  take_arguments(train, source);
  ConfigValue& like = source.args[kTraining];
  like.data = std::make_shared<ConfigObject>(train);
  like.loc = train.loc;
}

const ConfigObject* training_source(const ConfigObject& source) {
  const auto found = source.args.find(kTraining);
  return found == source.args.end() ? nullptr : &found->second.object();
}

}  // namespace meshtrain
