// Golden numbers: JSON files below tests/golden.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "support/sources.h"

namespace meshtrain::test {

// `name`: without the folder and the end, "keras/losses".
inline nlohmann::json golden_json(const std::string& name) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 28;
  nlohmann::json json =
      parse_json(read_file(source_folder() + "/tests/golden/" + name + ".json", kMaxBytes));
  REQUIRE_MESSAGE(!json.is_discarded(), name);
  return json;
}

}  // namespace meshtrain::test
