// What a case of wrong configs is loaded with: NAME.yaml, and the words of a command line in
// NAME.args:
//
//   file base.yaml            a config file beside NAME.yaml or instead of it; several are merged
//   override fit.epochs=ten
//   flag --mesh distribution.device_mesh.shape 2x
//   profile debug
#pragma once

#include <filesystem>
#include <sstream>
#include <string>

#include "config/load.h"
#include "errors/cases.h"

namespace meshtrain {

inline void read_args(const std::string& path, LoadOptions& options) {
  std::istringstream lines(test::read_text(path));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind >> std::ws;
    std::string rest;
    std::getline(words, rest);
    if (kind == "file") {
      options.files.push_back(rest);
    } else if (kind == "override") {
      options.overrides.push_back(rest);
    } else if (kind == "profile") {
      options.profile = rest;
    } else if (kind == "flag") {
      std::istringstream parts(rest);
      std::string flag;
      std::string key;
      std::string value;
      parts >> flag >> key >> value;
      options.flag_names.push_back(flag);
      options.flags.emplace_back(key, value);
    } else {
      FAIL("unknown line in " << path << ": " << line);
    }
  }
}

inline LoadOptions case_options(const std::string& name) {
  LoadOptions options;
  if (std::filesystem::exists(name + ".args")) {
    read_args(name + ".args", options);
  }
  if (std::filesystem::exists(name + ".yaml")) {
    options.files.insert(options.files.begin(), name + ".yaml");
  }
  return options;
}

}  // namespace meshtrain
