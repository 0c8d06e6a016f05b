#include "config/source_like.h"

#include <algorithm>
#include <filesystem>

#include "config/source_classes.h"

namespace meshtrain {
namespace {

constexpr const char* kTraining = "(training source)";  // no name that a file can give

// Whether two texts are paths of one file: "a.csv", "./a.csv", "/data/a.csv".
bool is_same_file(const ConfigValue& a, const ConfigValue& b, const std::string& base_dir) {
  const auto place_of = [&](const ConfigValue& path) {
    std::error_code error;
    return std::filesystem::weakly_canonical(std::filesystem::path(base_dir) / path.string(),
                                             error);
  };
  return a.is_string() && b.is_string() && place_of(a) == place_of(b);
}

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

bool have_same_samples(const ConfigObject& a, const ConfigObject& b, const std::string& base_dir) {
  if (a.class_name != b.class_name || has_options<RandomOptions>(a)) {
    return false;
  }
  const std::vector<Spec>& args = find_class(Category::kSource, a.class_name)->args;
  return std::all_of(args.begin(), args.end(), [&](const Spec& arg) {
    const bool names_samples = arg.selects_samples || names_files(arg) || arg.name == "seed" ||
                               arg.kind == ValueKind::kNames;
    const bool is_aside = arg.name == "slice" || arg.name == "split" || arg.name == "sample_weight";
    if (is_aside || !names_samples) {
      return true;
    }
    const ConfigValue &x = a.arg(arg.name), &y = b.arg(arg.name);
    return is_same(x, y) || (names_files(arg) && is_same_file(x, y, base_dir));
  });
}

const ConfigObject* training_source(const ConfigObject& source) {
  const auto found = source.args.find(kTraining);
  return found == source.args.end() ? nullptr : &found->second.object();
}

}  // namespace meshtrain
