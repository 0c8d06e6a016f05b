// Golden text: compared with a committed file. On a mismatch the new text is written beside it as
// "<name>.new" and the message names both; review it, then rename it.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "support/sources.h"

namespace meshtrain::test {

inline std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// `name`: below tests/golden, "passes/mlp.ir".
inline void check_golden(const std::string& name, const std::string& text) {
  const std::string path = source_folder() + "/tests/golden/" + name;
  const bool equal = read_text(path) == text;
  if (!equal) {
    std::ofstream(path + ".new", std::ios::binary) << text;
  }
  CHECK_MESSAGE(equal, path << " differs; the new text is in " << path << ".new");
}

}  // namespace meshtrain::test
