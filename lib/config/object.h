// ConfigObject: a checked "{Class: {argument: value}}" of the config: a layer, loss, metric,
// optimizer, initializer, ... Every argument that the catalogue knows for the class is present with
// its declared type, the default filled in; nothing is left to check but what depends on shapes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/words.h"

namespace meshtrain {

struct ConfigObject;

// A typed value with its place. Null is std::monostate.
struct ConfigValue {
  using List = std::vector<ConfigValue>;
  using Dict = std::vector<std::pair<std::string, ConfigValue>>;  // in file order
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Dict,
               std::shared_ptr<ConfigObject>>
      data;
  SourceLoc loc;  // of the value; the class's place for a default
  bool is_default = false;

  bool is_null() const { return data.index() == 0; }
  bool is_bool() const { return std::holds_alternative<bool>(data); }
  bool is_int() const { return std::holds_alternative<int64_t>(data); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(data); }
  bool is_string() const { return std::holds_alternative<std::string>(data); }
  bool is_list() const { return std::holds_alternative<List>(data); }
  bool is_dict() const { return std::holds_alternative<Dict>(data); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<ConfigObject>>(data); }

  // Each throws InternalError when the value has another type.
  bool boolean() const;
  int64_t integer() const;
  double number() const;  // integers convert
  const std::string& string() const;
  const List& list() const;
  const Dict& dict() const;
  const ConfigObject& object() const;
  std::vector<int64_t> integers() const;  // a list of integers; kUnknownDim (-1) for null entries
  std::vector<double> numbers() const;
  std::vector<std::string> strings() const;
  // The entry of a Dict; throws InternalError when there is none.
  const ConfigValue& field(std::string_view name) const;
  ConfigValue& field(std::string_view name);
};

struct ConfigObject {
  std::string class_name;  // as in Keras: "Dense", "SGD", "MeanSquaredError"
  std::string spelled;     // as the user wrote it: "mse", "adam" (the display name of metrics)
  SourceLoc loc;           // of the class name
  std::map<std::string, ConfigValue, std::less<>> args;

  // Throws InternalError when the class has no such argument.
  const ConfigValue& arg(std::string_view name) const;
  bool has(std::string_view name) const;  // known and not null
  int64_t integer(std::string_view name) const { return arg(name).integer(); }
  double number(std::string_view name) const { return arg(name).number(); }
  bool boolean(std::string_view name) const { return arg(name).boolean(); }
  const std::string& string(std::string_view name) const { return arg(name).string(); }
  template <class E>
  E word(std::string_view name) const {
    return find_word_of<E>(arg(name).string()).value();
  }
  SourceLoc loc_of(std::string_view name) const { return arg(name).loc; }
};

// Whether two are equal, whatever their places in the config.
bool is_same(const ConfigValue& a, const ConfigValue& b);
bool is_same(const ConfigObject& a, const ConfigObject& b);

}  // namespace meshtrain
