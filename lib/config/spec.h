// Spec: what a key of the config may hold. One description gives the parser, its errors, the JSON
// schema for editors and the help. Sections (schema.h) and classes (catalogue.h) are lists of
// these.
//
//   integer("epochs", "1", "index of the last epoch, as Keras").least(1)
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "base/diagnostic.h"
#include "config/object.h"

namespace meshtrain {

struct Section;

// What the values of a config are stored with.
struct StoreScope {
  std::string folder;  // of the first config file: paths of the command line are relative to it
  Diagnostics& diagnostics;
  bool is_class = false;  // of a class's arguments: a default has the place of the class
};

// The arguments of a class as a struct (class_options.h).
struct ClassOptions {
  virtual ~ClassOptions() = default;
};

enum class Category : uint8_t {
  kLayer,
  kLoss,
  kMetric,
  kOptimizer,
  kSchedule,
  kInitializer,
  kActivation,
  kSource,
  kTransform,
  kRegularizer,
  kConstraint,
  kCallback,
};
constexpr int kNumCategories = 12;

// How a value is read, and the ConfigValue it becomes.
enum class ValueKind : uint8_t {
  kAny,               // vars: kept as written; not read
  kBool,              // bool
  kInt,               // int64_t
  kFloat,             // double
  kText,              // std::string
  kEnum,              // std::string, one of `allowed`
  kPath,              // std::string, relative to the folder of the file it was written in
  kPaths,             // std::string or List of std::string, each as kPath
  kSlice,             // std::string "[a:b]"
  kIntOrList,         // int64_t or List of int64_t
  kFloatOrList,       // double or (nested) List of double
  kShape,             // List of int64_t and null; also written `4x2`, or one number
  kTextList,          // List of std::string; one text is a list of one
  kNames,             // std::string, List or Dict of std::string
  kLayout,            // List of null, std::string or List of std::string
  kActivation,        // std::string (canonical function name) or ConfigObject with arguments
  kObject,            // ConfigObject of `category`
  kFloatOrObject,     // double or ConfigObject of `category`
  kObjectList,        // List of ConfigObject
  kObjectPerOutput,   // ConfigObject, List of it, or Dict output -> ConfigObject
  kObjectsPerOutput,  // as above with a List per output
  kFloatPerOutput,    // double, List of double, Dict output -> double
  kMap,               // Dict text -> `element`
  kSection,           // Dict of all fields of `section`
  kUnsupported,       // a key known from Keras or planned: refused unless null or empty
};

// What a callback writes to the path that an argument gives.
enum class CallbackOutput : uint8_t {
  kNone,
  kModel,   // a file of a model, or a folder of its own
  kTable,   // a file, which may take the place of the run's own metrics.csv
  kFolder,  // files in a folder
  kLink,    // a link in a folder, which may be anywhere
};

struct Spec {
  std::string name;
  ValueKind kind = ValueKind::kText;
  std::string default_text;  // as YAML; "null" where there is none
  std::string help;          // one line
  bool is_required = false;
  bool is_nullable = false;
  bool allows_unknown = false;  // kShape: null entries
  bool allows_infer = false;    // kShape: one -1
  bool allows_empty = false;    // kShape: no entry
  bool allows_nested = false;   // kIntOrList: lists within the list; kNames: lists within the map
  bool is_always_list = false;  // k...OrList: a number is a list of one for Keras
  bool floats_only = false;     // kFloatOrObject: an integer is refused, as Keras does
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  // the minimum itself is refused
  bool below_maximum = false;
  std::vector<std::string> allowed;      // kEnum
  std::string accepted;                  // what it takes, where the kind does not say it all
  Category category = Category::kLayer;  // kObject...
  const Section* section = nullptr;      // kSection
  ValueKind element = ValueKind::kText;  // kMap
  bool names_files = false;              // of data
  bool selects_samples = false;          // says which samples a data source reads
  bool is_evaluated_later = false;       // an expression, with names that only training knows
  CallbackOutput output = CallbackOutput::kNone;
  // Stores the value in a member of the struct `owner` (key.h); empty for keys that bind_*.cc read.
  // False for a ClassOptions without this member.
  std::function<bool(void* owner, const ConfigValue& value, const StoreScope& scope)> store;
  std::type_index owner = typeid(void);

  Spec& least(double value) { return minimum = value, *this; }
  Spec& most(double value) { return maximum = value, *this; }
  Spec& above(double value) { return minimum = value, above_minimum = true, *this; }
  Spec& below(double value) { return maximum = value, below_maximum = true, *this; }
  Spec& one_of(std::vector<std::string> names) {
    return kind = ValueKind::kEnum, allowed = std::move(names), *this;
  }
  Spec& takes(std::string text) { return accepted = std::move(text), *this; }
  Spec& nullable() { return is_nullable = true, *this; }
  Spec& null_by_default() { return default_text = "null", nullable(); }
  Spec& required() {
    default_text.clear();
    is_nullable = false;
    return is_required = true, *this;
  }
  Spec& unknown_ok() { return allows_unknown = true, *this; }
  Spec& infer_ok() { return allows_infer = true, *this; }
  Spec& empty_ok() { return allows_empty = true, *this; }
  Spec& nested_ok() { return allows_nested = true, *this; }
  Spec& listed() { return is_always_list = true, *this; }
  Spec& no_integer() { return floats_only = true, *this; }
  Spec& of_kind(ValueKind value) { return kind = value, *this; }
  Spec& map_of(ValueKind value) {
    default_text.clear();
    is_nullable = false;
    return kind = ValueKind::kMap, element = value, *this;
  }
  Spec& files() { return names_files = true, *this; }
  Spec& own_samples() { return selects_samples = true, *this; }
  Spec& evaluated_later() { return is_evaluated_later = true, *this; }
  Spec& writes(CallbackOutput value) { return output = value, *this; }
};

// Every constructor takes the default as YAML text; "null" makes the value nullable.
Spec make_spec(std::string name, ValueKind kind, std::string default_text, std::string help);

inline Spec boolean(std::string name, std::string default_text, std::string help) {
  return make_spec(std::move(name), ValueKind::kBool, std::move(default_text), std::move(help));
}
inline Spec integer(std::string name, std::string default_text, std::string help) {
  return make_spec(std::move(name), ValueKind::kInt, std::move(default_text), std::move(help));
}
inline Spec number(std::string name, std::string default_text, std::string help) {
  return make_spec(std::move(name), ValueKind::kFloat, std::move(default_text), std::move(help));
}
inline Spec text(std::string name, std::string default_text, std::string help) {
  return make_spec(std::move(name), ValueKind::kText, std::move(default_text), std::move(help));
}
Spec choice(std::string name, std::vector<std::string> allowed, std::string default_text,
            std::string help);
Spec unsupported(std::string name, std::string help);
Spec object(std::string name, ValueKind kind, Category category, std::string default_text,
            std::string help);
// Where the keys of `section` are stored in a struct, it is the one around it.
Spec section(std::string name, const Section& section, std::string help);

// A number of elements must fit the kernels' 32-bit sizes.
constexpr double kMaxSize = 2147483647;
constexpr int kMaxRank = 8;
constexpr int64_t kMaxElements = int64_t{1} << 48;

// A section of the file: a map with these keys only.
struct Section {
  std::string path;  // "distribution.device_mesh"; "" for the top level
  std::vector<Spec> fields;
  std::type_index owner = typeid(void);  // the struct that holds the values, if there is one

  const Spec* find(std::string_view name) const;
  std::vector<std::string> names() const;  // without the unsupported ones
  // The path of the first key of that name in a section below this one.
  std::optional<std::string> find_below(std::string_view name) const;
  // Stores what `tree` has for the fields in `owner`, which is of the type `this->owner`.
  void store(void* owner, const ConfigValue& tree, const StoreScope& scope) const;
};

}  // namespace meshtrain
