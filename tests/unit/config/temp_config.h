// Config files in a folder that is removed at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "config/load.h"

namespace meshtrain {

class TempConfigs {
 public:
  TempConfigs() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "meshtrain_config_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~TempConfigs() { std::filesystem::remove_all(folder_); }
  TempConfigs(const TempConfigs&) = delete;
  TempConfigs& operator=(const TempConfigs&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

inline const char kSmall[] =
    "model:\n"
    "  layers:\n"
    "    - Input: {shape: [4]}\n"
    "    - Dense: {name: d1, units: 2}\n"
    "compile: {loss: mse}\n"
    "data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}\n";

// Loads `text` with words of the command line.
inline Config load_text(const std::string& text, std::vector<std::string> overrides = {}) {
  const TempConfigs files;
  LoadOptions options;
  options.files = {files.write("t.yaml", text)};
  options.overrides = std::move(overrides);
  return load_config(options);
}

// The codes of all problems, "E111 E112"; warnings when there is no error; "" when there is
// nothing.
inline std::string codes_of(const std::string& text, std::vector<std::string> overrides = {}) {
  Diagnostics found;
  try {
    found = load_text(text, std::move(overrides)).warnings;
  } catch (const ConfigError& e) {
    found = e.diagnostics();
  }
  std::string out;
  for (const Diagnostic& d : found.list()) {
    out += (out.empty() ? "" : " ") + d.code;
  }
  return out;
}

}  // namespace meshtrain
