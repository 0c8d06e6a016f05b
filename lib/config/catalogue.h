// The classes a config may name: layers, losses, metrics, optimizers, schedules, initializers,
// activations, data sources, transforms, regularizers, constraints, callbacks. Names, arguments,
// their order and defaults are Keras 3.16's.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "config/object.h"
#include "config/spec.h"

namespace meshtrain {

struct Config;

// What the check of a class may look at, beside the arguments.
struct ClassScope {
  const ConfigObject& object;
  Config& config;     // what was bound before
  ConfigValue& tree;  // the whole config as it is shown
  Diagnostics& diagnostics;
};

struct ClassSpec {
  Category category = Category::kLayer;
  std::string name;                  // "Dense", "MeanSquaredError", "relu", "digits"
  std::string help;                  // one line
  std::vector<Spec> args;            // in the order of the constructor
  std::vector<std::string> aliases;  // further spellings: "mse"
  std::string unknown_help = {};     // said of arguments that it does not have

  // Of classes whose arguments are members of a struct (class_options.h): its type, and what must
  // hold for several arguments, or for one beside other keys.
  std::type_index options = typeid(void);
  std::function<void(const ClassScope&)> check = {};
  // Of a data source. What it reads depends on the training data: it takes over the arguments of a
  // training source of its class, and what this one `learns` with the arguments that are given.
  bool is_read_like_training = false;
  std::function<bool(const ConfigObject&)> learns = {};
  bool is_generated = false;     // `samples` of its own, from no file
  bool is_unique = false;        // of a callback: a config has one at most
  bool changes_batches = false;  // of a transform: acts within the training step
  bool has_roles = false;  // of a layer: `inputs` may be a map from what they are to their names

  const Spec* find(std::string_view arg) const;
  std::vector<std::string> arg_names() const;
};

// All classes of a category, in the order of the documentation.
std::span<const ClassSpec> classes(Category category);
// By any spelling that Keras accepts, or nullptr.
const ClassSpec* find_class(Category category, std::string_view spelled);
// `accuracy` and `crossentropy`, which stand for the class that fits the shapes. As in Keras they
// are words in any case: `Accuracy` too, which is a class where it has arguments.
const ClassSpec* find_word(Category category, std::string_view spelled);
// The class that an object is one of, nullptr for none. An object does not say its category: where
// one spelling is of several, the first with its arguments.
const ClassSpec* spec_of(const ConfigObject& object);
// The class of an object of this category; throws InternalError where there is none.
const ClassSpec& class_of_object(Category category, const ConfigObject& object);
// A class with the defaults of all arguments, for what no config names; required ones are empty.
// Throws InternalError when there is no such class.
ConfigObject default_object(Category category, std::string_view class_name);
std::vector<std::string> class_names(Category category);
// Why there is no such class and what to use instead; empty where nothing is known.
std::string_view refusal(Category category, std::string_view spelled);
// Classes of Keras that this release does not have yet.
std::vector<std::string> unsupported_class_names(Category category);
bool is_unsupported_class(Category category, std::string_view spelled);

std::string_view category_name(Category category);  // "layer", "data source"
std::string class_kind_word(Category category);     // "layers", "sources": for `explain`
// The key that names the class inside its own map: `type`, or `source` of a data source.
std::string_view class_key(Category category);

// The parts of the catalogue (catalogue_*.cc).
std::vector<ClassSpec> layer_classes();
std::vector<ClassSpec> loss_classes();
std::vector<ClassSpec> metric_classes();
std::vector<ClassSpec> optimizer_classes();
std::vector<ClassSpec> schedule_classes();
std::vector<ClassSpec> initializer_classes();
std::vector<ClassSpec> activation_classes();
std::vector<ClassSpec> source_classes();
std::vector<ClassSpec> transform_classes();
std::vector<ClassSpec> regularizer_classes();
std::vector<ClassSpec> constraint_classes();
std::vector<ClassSpec> callback_classes();

}  // namespace meshtrain
