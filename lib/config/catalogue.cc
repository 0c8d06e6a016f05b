#include "config/catalogue.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace meshtrain {
namespace {

struct CategoryEntry {
  std::vector<ClassSpec> classes;
  std::map<std::string, const ClassSpec*, std::less<>> by_name;
};

// Keras' spellings per category: losses, metrics, initializers, regularizers
// and constraints by class name or its snake_case, optimizers in any case, layers by class name
// only.
void add_names(CategoryEntry& entry, const ClassSpec& spec) {
  entry.by_name.emplace(spec.name, &spec);
  const bool has_snake_case =
      spec.category == Category::kLoss || spec.category == Category::kMetric ||
      spec.category == Category::kInitializer || spec.category == Category::kRegularizer ||
      spec.category == Category::kConstraint;
  if (has_snake_case) {
    entry.by_name.emplace(to_snake_case(spec.name), &spec);
  }
  if (spec.category == Category::kOptimizer) {
    entry.by_name.emplace(to_lower(spec.name), &spec);
  }
  for (const std::string& alias : spec.aliases) {
    entry.by_name.emplace(alias, &spec);
  }
}

std::array<CategoryEntry, kNumCategories> make_catalogue() {
  std::array<CategoryEntry, kNumCategories> all;
  const auto put = [&](Category category, std::vector<ClassSpec> list) {
    CategoryEntry& entry = all[static_cast<size_t>(category)];
    entry.classes = std::move(list);
    for (ClassSpec& spec : entry.classes) {
      spec.category = category;
    }
    for (const ClassSpec& spec : entry.classes) {
      add_names(entry, spec);
    }
  };
  put(Category::kLayer, layer_classes());
  put(Category::kLoss, loss_classes());
  put(Category::kMetric, metric_classes());
  put(Category::kOptimizer, optimizer_classes());
  put(Category::kSchedule, schedule_classes());
  put(Category::kInitializer, initializer_classes());
  put(Category::kActivation, activation_classes());
  put(Category::kSource, source_classes());
  put(Category::kTransform, transform_classes());
  put(Category::kRegularizer, regularizer_classes());
  put(Category::kConstraint, constraint_classes());
  put(Category::kCallback, callback_classes());
  return all;
}

const CategoryEntry& entry_of(Category category) {
  static const std::array<CategoryEntry, kNumCategories> kCatalogue = make_catalogue();
  return kCatalogue[static_cast<size_t>(category)];
}

// Class names of Keras, and data sources, without an implementation here, as one text.
constexpr std::string_view kUnsupported[kNumCategories] = {
    "MaxNumBoundingBoxes Pipeline "
    "StringLookup IntegerLookup "
    "Hashing HashedCrossing TextVectorization TFSMLayer JaxLayer "
    "FlaxLayer TorchModuleWrapper",
    "",
    "",
    "",
    "",
    "",
    "",
    "parquet safetensors imdb reuters california_housing",
    "Normalization Resizing CenterCrop RandomFlip RandomCrop",
    "",
    "",
    "",
};

}  // namespace

const Spec* ClassSpec::find(std::string_view arg) const {
  const auto it =
      std::find_if(args.begin(), args.end(), [&](const Spec& spec) { return spec.name == arg; });
  return it == args.end() ? nullptr : &*it;
}

std::vector<std::string> ClassSpec::arg_names() const {
  std::vector<std::string> out;
  for (const Spec& arg : args) {
    if (arg.kind != ValueKind::kUnsupported) {
      out.push_back(arg.name);
    }
  }
  return out;
}

std::span<const ClassSpec> classes(Category category) {
  return entry_of(category).classes;
}

const ClassSpec* find_class(Category category, std::string_view spelled) {
  const auto& by_name = entry_of(category).by_name;
  const auto exact = by_name.find(spelled);
  if (exact != by_name.end()) {
    return exact->second;
  }
  if (category == Category::kOptimizer) {
    const auto lower = by_name.find(to_lower(spelled));
    return lower == by_name.end() ? nullptr : lower->second;
  }
  return find_word(category, spelled);
}

const ClassSpec* find_word(Category category, std::string_view spelled) {
  if (category != Category::kLoss && category != Category::kMetric) {
    return nullptr;
  }
  const auto& by_name = entry_of(category).by_name;
  const auto found = by_name.find(to_lower(spelled));
  const bool is_word =
      found != by_name.end() && found->second->name == to_lower(found->second->name);
  return is_word ? found->second : nullptr;
}

const ClassSpec* spec_of(const ConfigObject& object) {
  for (int c = 0; c < kNumCategories; ++c) {
    const ClassSpec* const spec = find_class(static_cast<Category>(c), object.spelled);
    if (spec != nullptr && spec->name == object.class_name &&
        spec->args.size() == object.args.size() &&
        std::all_of(spec->args.begin(), spec->args.end(),
                    [&](const Spec& arg) { return object.args.contains(arg.name); })) {
      return spec;
    }
  }
  return nullptr;
}

const ClassSpec& class_of_object(Category category, const ConfigObject& object) {
  const ClassSpec* const spec = find_class(category, object.class_name);
  MESHTRAIN_CHECK(spec != nullptr, "no {} {}", category_name(category), object.class_name);
  return *spec;
}

std::vector<std::string> class_names(Category category) {
  std::vector<std::string> out;
  for (const ClassSpec& spec : classes(category)) {
    out.push_back(spec.name);
  }
  return out;
}

std::vector<std::string> unsupported_class_names(Category category) {
  const std::string_view names = kUnsupported[static_cast<size_t>(category)];
  return names.empty() ? std::vector<std::string>() : split(names, ' ');
}

bool is_unsupported_class(Category category, std::string_view spelled) {
  const std::vector<std::string> names = unsupported_class_names(category);
  return !spelled.empty() && std::find(names.begin(), names.end(), spelled) != names.end();
}

std::string_view refusal(Category category, std::string_view spelled) {
  static constexpr std::pair<std::string_view, std::string_view> kCallbacks[] = {
      {"LambdaCallback",
       "functions of Python cannot run here; metrics.jsonl has every epoch, and "
       "with `run.log_steps: true` every step"},
      {"RemoteMonitor",
       "nothing is sent over the network; send the lines of metrics.jsonl, or of "
       "stdout with --log-format json"},
      {"OrbaxCheckpoint",
       "checkpoints are sharded and written aside anyway: see `checkpoint`, or "
       "use ModelCheckpoint with a folder"},
      {"History", "it is always there: metrics.jsonl and metrics.csv"},
      {"ProgbarLogger", "it is always there: see `run.verbose`"}};
  for (const auto& [name, text] : kCallbacks) {
    if (category == Category::kCallback && name == spelled) {
      return text;
    }
  }
  if (category == Category::kLayer && (spelled == "MixUp" || spelled == "CutMix")) {
    return "write it in `data: {transform: [...]}`, where it mixes targets as well as inputs";
  }
  return {};
}

std::string_view category_name(Category category) {
  static constexpr std::string_view kNames[] = {
      "layer",      "loss",        "metric",    "optimizer",   "schedule",   "initializer",
      "activation", "data source", "transform", "regularizer", "constraint", "callback"};
  return kNames[static_cast<size_t>(category)];
}

std::string class_kind_word(Category category) {
  switch (category) {
    case Category::kLoss:
      return "losses";
    case Category::kSource:
      return "sources";
    default:
      return std::string(category_name(category)) + "s";
  }
}

std::string_view class_key(Category category) {
  return category == Category::kSource ? "source" : "type";
}

}  // namespace meshtrain
