// Folders of wrong configs and their exact messages: NAME.yaml and NAME.txt, or what else a test
// makes a case of. A mismatch writes NAME.new beside the case; once reviewed it becomes NAME.txt.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "support/golden.h"

namespace meshtrain {

// Goes to tests/errors/<folder>: messages then name files as they are called there.
inline void enter_cases(const std::string& folder) {
  std::filesystem::current_path(std::string(MESHTRAIN_SOURCE_DIR) + "/tests/errors/" + folder);
}

// The names of the files here with one of these extensions (".yaml").
inline std::set<std::string> case_names(const std::set<std::string>& extensions) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(".")) {
    if (extensions.contains(entry.path().extension().string())) {
      names.insert(entry.path().stem().string());
    }
  }
  return names;
}

inline void check_case(const std::string& name, const std::string& found) {
  const std::string expected = test::read_text(name + ".txt");
  CHECK_MESSAGE(found == expected, name, "\n", found, "\n", expected);
  if (found != expected) {
    std::ofstream(name + ".new", std::ios::binary) << found;
  }
}

}  // namespace meshtrain
