// Keras' automatic names: the class in snake_case, then _1, _2, ... for its later uses, counted
// over the config.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/catalogue.h"
#include "config/object.h"
#include "config/yaml.h"

namespace meshtrain {

// "Dense" -> "dense"; an Input is an "input_layer".
std::string automatic_name(const std::string& spelled);

class NameCounter {
 public:
  // "Dense" -> "dense", "dense_1", ...
  std::string next(const std::string& spelled);

 private:
  std::map<std::string, int> counts_;
};

// The names of a list of objects as they stand in the tree: layers by name, given or automatic;
// other objects by class as written. "" where there is none.
std::vector<std::string> entry_names(const YamlNode& list, Category category);

// What a layer gives beside its output, by the names that follow the layer's: "state_h" of
// `encoder.state_h`. States of a recurrent layer with `return_state`, in Keras' order; of a
// Bidirectional without a `merge_mode` its second direction first; of attention whose argument
// `call` has `return_attention_scores`, "attention_scores". `entry`: the layer itself, or the Call
// that uses it again.
std::vector<std::string> further_outputs(const ConfigObject& layer, const ConfigObject& entry);

// The argument of a class that names another layer, whose weights it uses; "" where there is none.
std::string_view argument_of_shared_layer(std::string_view class_name);

// "encoder.state_h" -> "encoder" and "state_h"; the whole name and "" where there is no dot.
std::pair<std::string, std::string> split_output(const std::string& name);

}  // namespace meshtrain
