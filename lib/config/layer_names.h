// Keras' automatic names: the class in snake_case, then _1, _2, ... for its later uses, counted
// over the config.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/catalogue.h"
#include "config/yaml.h"

namespace meshtrain {

class NameCounter {
 public:
  // "Dense" -> "dense", "dense_1", ...; an Input is an "input_layer".
  std::string next(const std::string& spelled);

 private:
  std::map<std::string, int> counts_;
};

// The names of a list of objects as they stand in the tree: layers by name, given or automatic;
// other objects by class as written. "" where there is none.
std::vector<std::string> entry_names(const YamlNode& list, Category category);

}  // namespace meshtrain
