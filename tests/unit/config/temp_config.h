// Configs as text.
#pragma once

#include <string>

#include "config/load.h"
#include "support/temp_folder.h"

namespace meshtrain {

inline const char kSmall[] =
    "model:\n"
    "  layers:\n"
    "    - Input: {shape: [4]}\n"
    "    - Dense: {name: d1, units: 2}\n"
    "compile: {loss: mse}\n"
    "data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}\n";

// Loads `text` with words of the command line.
inline Config load_text(const std::string& text, std::vector<std::string> overrides = {}) {
  const test::TempFolder files;
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
