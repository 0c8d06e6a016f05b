// The ways to write an object, made one:
//
//   Flatten                                    class alone
//   Dropout: 0.4                               class with its first argument
//   Dense: {units: 200}                        class with its arguments
//   {type: Dense, units: 200}                  class among its arguments (data: `source`)
//   {class_name: Dense, config: {units: 200}}  Keras' JSON
#pragma once

#include <optional>
#include <string>

#include "config/catalogue.h"
#include "config/yaml.h"

namespace meshtrain {

struct ObjectForm {
  std::string spelled;              // the class as written
  SourceLoc loc;                    // of the class
  const YamlNode* args = nullptr;   // a map of arguments, or nullptr
  const YamlNode* first = nullptr;  // the first argument alone, or nullptr
  std::string skipped;              // a key of `args` that is no argument: the class key
};

// Nothing when `node` is none of the forms; then `problem`, if not null, gets the reason.
struct ObjectFormProblem {
  SourceLoc loc;
  std::string message;
  std::string help;
};
std::optional<ObjectForm> object_form(const YamlNode& node, Category category,
                                      ObjectFormProblem* problem = nullptr);

// Rewrites `node` so that its arguments are a map, and returns that map; nullptr when it cannot be.
// Data sources keep their class among the arguments, others become {Class: {...}}.
YamlNode* normalize_object(YamlNode& node, Category category);

}  // namespace meshtrain
