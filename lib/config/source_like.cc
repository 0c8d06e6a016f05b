#include "config/source_like.h"

#include "config/source_classes.h"

namespace meshtrain {
namespace {

constexpr const char* kTraining = "(training source)";  // no name that a file can give

}  // namespace

bool is_read_like_training(const std::string& class_name) {
  return find_class(Category::kSource, class_name)->is_read_like_training;
}

bool names_files(const Spec& arg) {
  return arg.names_files || arg.kind == ValueKind::kPath || arg.kind == ValueKind::kPaths;
}

void take_arguments(const ConfigObject& train, ConfigObject& source) {
  if (source.class_name != train.class_name) {
    return;
  }
  const bool takes_all = is_read_like_training(train.class_name);
  for (const Spec& arg : find_class(Category::kSource, source.class_name)->args) {
    const auto own = source.args.find(arg.name);
    const bool is_taken = takes_all || arg.owner == typeid(SeriesOptions);
    if (is_taken && !arg.selects_samples && own != source.args.end() && own->second.is_default) {
      own->second = train.arg(arg.name);
    }
  }
}

void read_like_training(const ConfigObject& train, ConfigObject& source) {
  take_arguments(train, source);
  if (source.class_name != train.class_name || !is_read_like_training(train.class_name)) {
    return;
  }
  ConfigValue& like = source.args[kTraining];
  like.data = std::make_shared<ConfigObject>(train);
  like.loc = train.loc;
}

const ConfigObject* training_source(const ConfigObject& source) {
  const auto found = source.args.find(kTraining);
  return found == source.args.end() ? nullptr : &found->second.object();
}

}  // namespace meshtrain
