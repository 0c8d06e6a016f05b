// Arguments of Keras' serialized objects as values of the catalogue.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/catalogue.h"
#include "config/config.h"

namespace meshtrain {

// An argument that differs from its default.
using GivenArgs = std::vector<std::pair<std::string, ConfigValue>>;

class ValueImporter {
 public:
  // Adds values that cannot be represented to `problems`, as "`layer `d1` (Dense)`: ...".
  explicit ValueImporter(std::vector<std::string>& problems) : problems_(problems) {}

  // The arguments of `config`, in the order of the class; those in `skipped` are looked at by the
  // caller. What the class does not know must be neutral: null, false, empty, or of no effect.
  GivenArgs arguments(const ClassSpec& spec, const nlohmann::json& config, const std::string& owner,
                      const std::vector<std::string>& skipped);

  // A value of any kind; is_default when it equals the default.
  ConfigValue value(const nlohmann::json& json, const Spec& spec, const std::string& owner);

 private:
  void problem(const std::string& owner, const std::string& what);

  std::vector<std::string>& problems_;
  std::string policy_;  // of the layer whose arguments are imported
};

// Whether a serialized object is of a class of the user's own, whatever its name.
bool is_custom_class(const nlohmann::json& object, const std::string& class_name);

// The activation function that a layer or operation of Keras is (LeakyReLU -> leaky_relu), or
// nullptr.
const ClassSpec* find_activation(const std::string& class_name);

// The name of a dtype policy: a text, a DTypePolicy object, or what a DTypePolicyMap has for the
// layer's path (keras/src/dtype_policies); "" when it is none of these.
std::string policy_name(const nlohmann::json& dtype, std::string_view layer = {});

}  // namespace meshtrain
