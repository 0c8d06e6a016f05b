// ConfigObjects of data sources and transforms as the config loader makes them, each with a place.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "data/rows.h"

namespace meshtrain::test {

inline SourceLoc place(int line) {
  static const auto file = std::make_shared<const SourceFile>(
      SourceFile{"test.yaml", "data:\n  train: {source: ...}\n  third: line\n"});
  return {file, line, 3, 5};
}

template <class T>
ConfigValue value(T data) {
  ConfigValue out;
  out.data = std::move(data);
  out.loc = place(2);
  return out;
}
inline ConfigValue value(const char* text) {
  return value(std::string(text));
}
inline ConfigValue value(int number) {
  return value(int64_t{number});
}
inline ConfigValue null_value() {
  return value(std::monostate{});
}
inline ConfigValue default_value(const char* text) {
  ConfigValue out = value(text);
  out.is_default = true;
  return out;
}
inline ConfigValue list_value(const std::vector<int64_t>& numbers) {
  ConfigValue::List list;
  for (const int64_t number : numbers) {
    list.push_back(value(number));
  }
  return value(std::move(list));
}

using Args = std::vector<std::pair<std::string, ConfigValue>>;

inline ConfigObject object(const std::string& class_name, const Args& args) {
  ConfigObject out;
  out.class_name = class_name;
  out.spelled = class_name;
  out.loc = place(2);
  for (const auto& [name, arg] : args) {
    out.args[name] = arg;
  }
  return out;
}

// All rows of an array of a dataset.
inline HostTensor whole(const RowsPtr& rows) {
  return rows->read_range(0, rows->size());
}

}  // namespace meshtrain::test
