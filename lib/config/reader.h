// From the merged tree to typed values: every key of every section and class is present afterwards,
// with its declared type, its place and whether it is a default. What is wrong is collected; a
// value that cannot be read is replaced by one of the right type, so that later checks still run.
#pragma once

#include <string>
#include <utility>

#include "base/diagnostic.h"
#include "config/catalogue.h"
#include "config/object.h"
#include "config/object_form.h"
#include "config/schema.h"
#include "config/yaml.h"

namespace meshtrain {

// A value that is written in the config.
inline ConfigValue make_value(decltype(ConfigValue::data) data, const SourceLoc& loc) {
  return {std::move(data), loc, false};
}
// What a message calls it: "a list", "null", "`text`".
std::string kind_name(const YamlNode& node);

class Reader {
 public:
  // `block_names` are known where layers are listed.
  explicit Reader(Diagnostics& diagnostics, std::vector<std::string> block_names = {})
      : diagnostics_(diagnostics), block_names_(std::move(block_names)) {}

  // Dict of all fields; `node` may be null or empty. Not a map: E112. Unknown keys: E111.
  ConfigValue section(const YamlNode* node, const Section& section, const SourceLoc& parent);
  // `owner` is the section or class as messages name it: "`fit`".
  ConfigValue value(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue default_value(const Spec& spec, const SourceLoc& owner_loc);

 private:
  using ObjectPtr = std::shared_ptr<ConfigObject>;

  ConfigValue given_value(const YamlNode& node, const Spec& spec, const std::string& owner);
  bool is_resolved_default(const ConfigValue& value, const Spec& spec);
  ConfigValue fallback(const Spec& spec, const SourceLoc& loc);
  ConfigValue missing(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue scalar(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue integer(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue number(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue choice(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue slice(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue shape(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue shape_entry(const YamlNode& node, const Spec& spec, const std::string& owner);
  void check_shape(const ConfigValue& value, const Spec& spec, const std::string& owner);
  ConfigValue number_list(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue texts(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue layout(const YamlNode& node, const std::string& key);
  ConfigValue layout_entry(const YamlNode& node, const std::string& key);
  ConfigValue layout_tuple(const std::vector<YamlNode>& entries, size_t& i);
  ConfigValue map(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue activation(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue float_or_object(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue object_list(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue per_output(const YamlNode& node, const Spec& spec, const std::string& owner);
  ConfigValue floats_per_output(const YamlNode& node, const Spec& spec, const std::string& owner);

  // nullptr after an error.
  ObjectPtr object(const YamlNode& node, Category category);
  ConfigValue object_value(const YamlNode& node, Category category);
  void arguments(const YamlNode* args, const std::string& skipped, const ClassSpec& spec,
                 ConfigObject& object);
  void check_name(const Spec& arg, const ConfigValue& value);
  void add_context(Diagnostic& d) const;
  ObjectPtr unknown_class(const ObjectForm& form, Category category);

  Diagnostic& wrong(const char* code, const SourceLoc& loc, const Spec& spec,
                    const std::string& owner, std::string what);
  // E112 for what Python calls a tuple.
  bool is_tuple(const YamlNode& node, const Spec& spec, const std::string& owner);
  bool is_python_none(const YamlNode& node);
  void check_range(double value, const YamlNode& node, const Spec& spec, const std::string& owner);
  Diagnostic& unknown_key(const YamlNode& child, const std::string& owner, bool is_class,
                          const std::vector<std::string>& names);

  Diagnostics& diagnostics_;
  std::vector<std::string> block_names_;
  std::string context_;  // "`activation` of `Dense`" while an argument is read
};

}  // namespace meshtrain
