// Objects of a config as Keras' serialize_keras_object writes them.
#pragma once

#include <string>

#include "interop/keras/export_model.h"

namespace meshtrain {

// The four keys that each object has; `registered_name` is null.
OrderedJson serialized(const std::string& module, const std::string& class_name,
                       OrderedJson config);
// The module that has a class of layers: "keras.layers", "keras_hub.layers", or that of a class
// which they have without a public name.
std::string module_of_layer(std::string_view class_name);
// A layer, under the module and the registered name of its package.
OrderedJson serialized_layer(const std::string& class_name, OrderedJson config);
// The DTypePolicy of a name: "mixed_bfloat16".
OrderedJson policy_json(const std::string& name);
// The sizes of a shape; null where one is unknown.
OrderedJson shape_json(const Shape& shape);

// An argument's value, and an object with the arguments it was given. Throw E417 (exit 6) for what
// Keras' JSON cannot represent; `owner` is for that message: "layer `d1`".
OrderedJson value_json(const ConfigValue& value, const Spec& spec, const std::string& owner);
OrderedJson object_json(const ConfigObject& object, Category category, const std::string& owner);

}  // namespace meshtrain
