// Transforms of columns against Keras (tests/reference/column_transforms.py), and in tables.
#include "data/column_transform.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "config/catalogue.h"
#include "data/csv_table.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

ConfigValue value_of(const Json& json) {
  if (json.is_string()) {
    return {json.get<std::string>()};
  }
  if (json.is_boolean()) {
    return {json.get<bool>()};
  }
  if (json.is_number_integer()) {
    return {json.get<int64_t>()};
  }
  if (json.is_number()) {
    return {json.get<double>()};
  }
  if (json.is_array()) {
    ConfigValue::List list;
    for (const Json& entry : json) {
      list.push_back(value_of(entry));
    }
    return {std::move(list)};
  }
  return {};
}

ConfigObject object_of(const std::string& class_name, const Json& config) {
  ConfigObject object = default_object(Category::kTransform, class_name);
  for (const auto& [key, given] : config.items()) {
    object.args[key] = value_of(given);
  }
  return object;
}

// As a table has it.
std::string text_of(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number_integer()) {
    return std::to_string(value.get<int64_t>());
  }
  return value.is_array() ? text_of(value[0]) + kCrossed + text_of(value[1])
                          : fmt::format("{}", value.get<double>());
}

std::vector<std::string> texts_of(const Json& values) {
  std::vector<std::string> out;
  for (const Json& value : values) {
    out.push_back(text_of(value));
  }
  return out;
}

ColumnTable learned(const ColumnTransform& transform, const std::vector<std::string>& values) {
  std::vector<int64_t> rows(values.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return transform.learn(values, rows);
}

void check_case(const Json& one) {
  const ConfigObject config = object_of(one["class_name"], one["config"]);
  const auto transform = make_column_transform(config);
  const ColumnTable table = learned(*transform, texts_of(one["train"]));
  if (one.contains("vocabulary")) {
    CHECK(table.vocabulary == one["vocabulary"].get<std::vector<std::string>>());
  }
  if (one.contains("boundaries")) {
    const auto expected = one["boundaries"].get<std::vector<double>>();
    REQUIRE(table.boundaries.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(table.boundaries[i] == doctest::Approx(expected[i]).epsilon(1e-6));
    }
  }
  transform->use(table);
  const std::vector<std::string> values = texts_of(one["values"]);
  for (size_t row = 0; row < values.size(); ++row) {
    CAPTURE(values[row]);
    const auto expected = one["output"][row].get<std::vector<double>>();
    REQUIRE(transform->width() == static_cast<int64_t>(expected.size()));
    std::vector<double> found(expected.size());
    CHECK(transform->problem(values[row]) == "");
    CHECK(transform->write(values[row], found.data()) == "");
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("transforms of columns give what Keras' layers give") {
  const Json golden = parse_json(read_file(
      std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/keras/column_transforms.json", 1 << 20));
  REQUIRE(golden["cases"].size() == 47);
  for (const Json& one : golden["cases"]) {
    CAPTURE(one["class_name"]);
    CAPTURE(one["config"].dump());
    check_case(one);
  }
}

TEST_CASE("a value that equals a given boundary is in the bin that begins there") {
  check_case(Json{{"class_name", "Discretization"},
                  {"config", {{"bin_boundaries", {0.1, 0.7}}}},
                  {"train", Json::array()},
                  {"values", {0.1, 0.7, 0.69}},
                  {"output", {{1}, {2}, {1}}}});
}

constexpr const char* kReviews =
    "review,city,age,id,good\n"
    "a fine cat,Rome,20,3,yes\n"
    "a bad dog,Bonn,30,5,no\n"
    "cat and cat,Rome,40,3,yes\n"
    "dog,Oslo,50,4,no\n";

struct Reviews {
  Reviews() {
    transforms.push_back(object_of("TextVectorization", Json{{"column", "review"}}));
    transforms.push_back(
        object_of("StringLookup", Json{{"column", "city"}, {"output_mode", "one_hot"}}));
    transforms.push_back(
        object_of("Discretization", Json{{"column", "age"}, {"bin_boundaries", {25.0, 45.0}}}));
    transforms.push_back(object_of(
        "HashedCrossing", Json{{"columns", {"city", "id"}}, {"name", "both"}, {"num_bins", 8}}));
    for (const ConfigObject& transform : transforms) {
      settings.preprocessing.push_back(&transform);
    }
    settings.targets = {{"y", {{"good", {}}}, true}};
    settings.inputs = {{"review", {{"review", {}}}, true},
                       {"place", {{"city", {}}, {"id", {}}}, false},
                       {"age", {{"age", {}}}, true},
                       {"both", {{"both", {}}}, true}};
  }
  std::vector<ConfigObject> transforms;
  CsvSettings settings;
};

std::vector<double> numbers_of(const HostTensor& tensor) {
  std::vector<double> out;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    out.push_back(tensor.at(i));
  }
  return out;
}

TEST_CASE("csv: preprocessed columns are inputs of their widths") {
  const Reviews reviews;
  const CsvTable table = parse_csv(kReviews, "t.csv", reviews.settings);
  REQUIRE(table.inputs.size() == 4);
  const HostTensor& review = table.inputs[0].tensor;
  CHECK(review.dtype() == DType::kInt32);
  CHECK(review.shape() == Shape{4, 3});  // the longest text has three words
  // Three times cat; dog and a twice, the larger text first; then one of each.
  CHECK(table.learned.tables.at("review").vocabulary ==
        std::vector<std::string>{"cat", "dog", "a", "fine", "bad", "and"});
  CHECK(numbers_of(review) == std::vector<double>{4, 5, 2, 4, 6, 3, 2, 7, 2, 3, 0, 0});
  const HostTensor& place = table.inputs[1].tensor;
  CHECK(place.dtype() == DType::kFloat32);
  CHECK(place.shape() == Shape{4, 5});  // unknown, Rome, Oslo, Bonn; and the number
  CHECK(numbers_of(place) == std::vector<double>{0, 1, 0, 0, 3, 0, 0, 0, 1, 5,  //
                                                 0, 1, 0, 0, 3, 0, 0, 1, 0, 4});
  CHECK(table.columns.at("place") ==
        std::vector<std::string>{"city.0", "city.1", "city.2", "city.3", "id"});
  CHECK(table.inputs[2].tensor.shape() == Shape{4});
  CHECK(numbers_of(table.inputs[2].tensor) == std::vector<double>{0, 1, 1, 2});
  const std::vector<double> both = numbers_of(table.inputs[3].tensor);
  CHECK(both[0] == both[2]);
  // The city is read by two transforms, and noted once.
  CHECK(table.learned.columns.at({"preprocessing", "city"}) == std::vector<std::string>{"city"});
}

TEST_CASE("csv: other data take the tables of the training data") {
  const Reviews reviews;
  const CsvLearned known = parse_csv(kReviews, "t.csv", reviews.settings).learned;
  const CsvTable table = parse_csv("id,good,age,city,review\n9,no,1,Kyiv,a new cat and many more\n",
                                   "u.csv", reviews.settings, &known);
  CHECK(numbers_of(table.inputs[0].tensor) == std::vector<double>{4, 1, 2});
  CHECK(numbers_of(table.inputs[1].tensor) == std::vector<double>{1, 0, 0, 0, 9});
}

std::string problem_of(const CsvSettings& settings, const char* text) {
  try {
    parse_csv(text, "t.csv", settings);
  } catch (const ConfigError& error) {
    const Diagnostic& first = error.diagnostics().list().front();
    return first.code + ": " + first.message;
  }
  return "";
}

TEST_CASE("csv: values that a transform does not take") {
  const auto problem = [](const char* class_name, Json config, const char* text) {
    config["column"] = "a";
    const ConfigObject transform = object_of(class_name, config);
    CsvSettings settings;
    settings.preprocessing = {&transform};
    settings.targets = {{"y", {{"b", {}}}, true}};
    return problem_of(settings, text);
  };
  CHECK(problem("Discretization", {{"num_bins", 2}}, "a,b\n1,1\nx,1\n") ==
        "E310: `t.csv`: row 2 (line 3) column `a` is `x`, which is no number");
  CHECK(problem("Discretization", {{"num_bins", 2}}, "a,b\n1,1\n,1\n") ==
        "E311: `t.csv`: row 2 (line 3) column `a` is empty");
  CHECK(problem("IntegerLookup", Json::object(), "a,b\n1,1\n1.5,1\n2.5,1\n") ==
        "E310: `t.csv`: row 2 (line 3) column `a` is `1.5`, which is no integer (and 1 more such "
        "fields)");
  CHECK(problem("CategoryEncoding", {{"num_tokens", 4}}, "a,b\n3,1\n4,1\n") ==
        "E310: `t.csv`: row 2 (line 3) column `a` is `4`, no integer from 0 to 3");
  CHECK(problem("StringLookup", {{"num_oov_indices", 0}, {"vocabulary", {"u"}}},
                "a,b\nu,1\nv,1\nw,1\n") ==
        "E312: row 2 of the column `a` is `v`, which is not among the 1 of the vocabulary (and 1 "
        "more such rows)");
}

}  // namespace
}  // namespace meshtrain
