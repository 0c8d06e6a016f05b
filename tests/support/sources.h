// Where the sources lie.
#pragma once

#include <cstdlib>
#include <string>

namespace meshtrain::test {

// $MESHTRAIN_TEST_SOURCES, where a suite runs on another machine than the one that built it
// (scripts/gpu_check.sh); else where it was built.
inline std::string source_folder() {
  const char* const elsewhere = std::getenv("MESHTRAIN_TEST_SOURCES");
  return elsewhere != nullptr ? elsewhere : MESHTRAIN_SOURCE_DIR;
}

}  // namespace meshtrain::test
