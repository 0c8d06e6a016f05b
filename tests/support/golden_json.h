// Golden numbers: JSON files below tests/golden.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace meshtrain::test {

// `name`: without the folder and the end, "keras/losses".
inline nlohmann::json golden_json(const std::string& name) {
  std::ifstream file(std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/" + name + ".json");
  REQUIRE_MESSAGE(file.good(), name);
  return nlohmann::json::parse(file);
}

}  // namespace meshtrain::test
