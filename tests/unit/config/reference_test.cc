// configs/REFERENCE.md is what the program writes.
#include <fstream>
#include <sstream>

#include "config/explain.h"
#include "doctest/doctest.h"

namespace meshtrain {

TEST_CASE("configs/REFERENCE.md has every key, class and message") {
  std::ifstream file(std::string(MESHTRAIN_SOURCE_DIR) + "/configs/REFERENCE.md");
  std::ostringstream text;
  text << file.rdbuf();
  CHECK_MESSAGE(text.str() == explain_markdown(),
                "renew it: meshtrain explain --markdown > configs/REFERENCE.md");
}

}  // namespace meshtrain
