// Classes whose arguments are members of a struct, declared by key() (key.h):
//
//   struct EarlyStoppingOptions : CallbackOptions {
//     int64_t patience = 0;
//   };
//   class_of<EarlyStoppingOptions>("EarlyStopping", "stops when a log no longer improves",
//       {key("patience", &EarlyStoppingOptions::patience, "epochs without improvement")});
//
//   const auto options = read_options<EarlyStoppingOptions>(object);
//
// The structs of a category have a common base, a ClassOptions that says which category it is.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "config/catalogue.h"
#include "config/key.h"

namespace meshtrain {

// The arguments of `object`: all of its class, or those that classes share when S is their common
// base. Members keep their initial values where the object has no such argument.
template <class S>
S read_options(const ConfigObject& object, Diagnostics& diagnostics) {
  S options;
  for (const Spec& arg : class_of_object(S::kCategory, object).args) {
    if (const auto given = object.args.find(arg.name); given != object.args.end()) {
      arg.store(static_cast<ClassOptions*>(&options), given->second, {{}, diagnostics, true});
    }
  }
  return options;
}
template <class S>
S read_options(const ConfigObject& object) {
  Diagnostics diagnostics;
  S options = read_options<S>(object, diagnostics);
  diagnostics.throw_if_errors();
  return options;
}
// Whether the struct of the object's class is S or builds on it.
template <class S>
bool has_options(const ConfigObject& object) {
  const ClassSpec& spec = class_of_object(S::kCategory, object);
  return spec.options == typeid(S) ||
         std::any_of(spec.args.begin(), spec.args.end(),
                     [](const Spec& arg) { return arg.owner == typeid(S); });
}
// Nothing when the arguments of the object's class are those of another struct.
template <class S>
std::optional<S> options_if(const ConfigObject& object) {
  const bool is_one = class_of_object(S::kCategory, object).options == typeid(S);
  return is_one ? std::optional(read_options<S>(object)) : std::nullopt;
}

// `check(options, scope)`, where there is one, reports what does not fit together.
template <class S, class Check = std::nullptr_t>
ClassSpec class_of(std::string name, std::string help, std::vector<Spec> args, Check check = {}) {
  ClassSpec spec;
  spec.name = std::move(name);
  spec.help = std::move(help);
  spec.args = std::move(args);
  spec.options = typeid(S);
  spec.check = [check](const ClassScope& scope) {
    const S options = read_options<S>(scope.object, scope.diagnostics);
    if constexpr (!std::is_null_pointer_v<Check>) {
      check(options, scope);
    }
  };
  S options;
  Diagnostics diagnostics;
  for (const Spec& arg : spec.args) {
    MESHTRAIN_CHECK(arg.store(static_cast<ClassOptions*>(&options), {}, {{}, diagnostics}),
                    "{} of {}", arg.name, spec.name);
  }
  return spec;
}

}  // namespace meshtrain
