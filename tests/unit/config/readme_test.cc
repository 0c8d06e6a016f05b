// The tables of configs/KERAS.md have every class that a config may name, and no other; what Keras
// has besides is named there as missing.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "config/catalogue.h"
#include "doctest/doctest.h"
#include "support/golden_json.h"

namespace meshtrain {
namespace {

// Heading of the table -> the names in backticks in the first column of its rows.
std::map<std::string, std::set<std::string>> tables() {
  std::ifstream file(std::string(MESHTRAIN_SOURCE_DIR) + "/configs/KERAS.md");
  std::map<std::string, std::set<std::string>> out;
  std::string line, heading;
  const std::regex name("`([A-Za-z0-9_]+)`");
  while (std::getline(file, line)) {
    if (line.rfind("##", 0) == 0) {
      heading = line.substr(line.find(' ') + 1);
    }
    if (line.rfind("| `", 0) == 0) {
      const std::string first = line.substr(2, line.find(" | ", 2) - 2);
      for (std::sregex_iterator it(first.begin(), first.end(), name), end; it != end; ++it) {
        CHECK_MESSAGE(out[heading].insert((*it)[1]).second, heading, ": ", (*it)[1], " twice");
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("KERAS.md: the tables of classes are those of the catalogue") {
  const auto found = tables();
  const std::pair<const char*, Category> kTables[] = {
      {"Layers", Category::kLayer},           {"Losses", Category::kLoss},
      {"Metrics", Category::kMetric},         {"Optimizers", Category::kOptimizer},
      {"Schedules", Category::kSchedule},     {"Initializers", Category::kInitializer},
      {"Activations", Category::kActivation}, {"Regularizers", Category::kRegularizer},
      {"Constraints", Category::kConstraint}, {"Data", Category::kSource},
      {"Transforms", Category::kTransform},   {"Callbacks", Category::kCallback}};
  for (const auto& [heading, category] : kTables) {
    REQUIRE_MESSAGE(found.contains(heading), heading);
    const std::set<std::string>& rows = found.at(heading);
    for (const std::string& name : class_names(category)) {
      CHECK_MESSAGE(rows.contains(name), heading, " of configs/KERAS.md lack ", name);
    }
    for (const std::string& name : rows) {
      CHECK_MESSAGE(find_class(category, name) != nullptr, heading, ": there is no ", name);
    }
  }
}

TEST_CASE("KERAS.md: what Keras has is in the catalogue, or named as missing and refused") {
  const nlohmann::json keras = test::golden_json("keras/catalogue");
  const auto found = tables();
  std::set<std::string> missing = found.at("What is missing");
  size_t count = 0;
  for (int c = 0; c < kNumCategories; ++c) {
    const auto category = static_cast<Category>(c);
    for (const std::string& name :
         keras.value(std::string(category_name(category)), std::vector<std::string>())) {
      CAPTURE(name);
      ++count;
      if (!refusal(category, name).empty()) {
        continue;  // its message says why
      }
      const bool is_there = find_class(category, name) != nullptr;
      CHECK(is_there != (missing.erase(name) > 0));
      CHECK(is_there != is_unsupported_class(category, name));
    }
  }
  CHECK(missing.empty());  // no name that Keras has not
  CHECK(count > 300);
}

}  // namespace meshtrain
