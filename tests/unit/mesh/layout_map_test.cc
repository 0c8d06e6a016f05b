// Cases of Keras' distribution tests for TensorLayout, LayoutMap and the two distributions' data
// layouts, and those they miss: several axes on a dimension, full match, limits, places in
// messages.
#include "mesh/layout_map.h"

#include <doctest/doctest.h>

#include <ctime>

using namespace meshtrain;

namespace {

const DeviceMesh kMesh({2, 4}, {"data", "model"});

TensorLayout layout(std::vector<std::vector<std::string>> dims) {
  TensorLayout out;
  out.dims = std::move(dims);
  return out;
}

// The rendered problem of a call that must throw a ConfigError, checked to have `code` first.
template <class F>
std::string problem_of(std::string_view code, F&& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().list()[0].code == code);
    CHECK(error.exit_code() == ExitCode::kConfig);
    return error.what();
  }
  FAIL("no error");
  return {};
}
bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  CHECK_MESSAGE(found, "'", std::string(part), "' in:\n", text);
  return found;
}

SourceLoc place(const std::shared_ptr<const SourceFile>& file, int line, int column, int length) {
  return {file, line, column, length};
}

const auto kFile = std::make_shared<const SourceFile>(
    SourceFile{"mlp.yaml", "layout_map:\n  .*dense.*bias: [model]\n  .*bias: [modle]\n"});

}  // namespace

TEST_CASE("TensorLayout: reads as in a config") {
  CHECK(layout({{}, {"model"}}).to_string() == "[null, model]");
  CHECK(layout({{"data", "model"}, {}}).to_string() == "[[data, model], null]");
  CHECK(layout({}).to_string() == "[]");
}

TEST_CASE("LayoutMap: rules are kept in order and can be taken out") {
  LayoutMap map(kMesh);
  map.set("dense/kernel", layout({{}, {"model"}}));
  map.set("dense/bias", layout({{"model"}}));
  CHECK(map.size() == 2);
  CHECK(map.rules()[0].key == "dense/kernel");
  CHECK(map.rules()[1].key == "dense/bias");
  CHECK(map.mesh() == kMesh);
  map.erase("dense/kernel");
  CHECK(map.size() == 1);
  CHECK(map.find("dense/kernel") == nullptr);
  CHECK(map.find("dense/bias")->layout.to_string() == "[model]");
  CHECK_THROWS_AS(map.erase("dense/kernel"), Error);
  CHECK_THROWS_AS(map.erase(".*bias"), Error);  // exact keys only
}

TEST_CASE("LayoutMap: is a value") {
  LayoutMap map(kMesh);
  map.set(".*bias", layout({{"model"}}));
  LayoutMap copy = map;
  copy.set(".*kernel", layout({{}, {"model"}}));
  CHECK(map.size() == 1);
  CHECK(copy.find("a/bias") != nullptr);
}

TEST_CASE("LayoutMap.set: a repeated key names the first") {
  LayoutMap map(kMesh);
  map.set({".*bias", place(kFile, 2, 3, 13), layout({{"model"}})});
  const std::string text = problem_of("E203", [&] {
    map.set({".*bias", place(kFile, 3, 3, 6), layout({{"data"}})});
  });
  contains(text, "`.*bias` is there already, as [model]");
  contains(text, "first at mlp.yaml:2:3");
  CHECK(map.size() == 1);
}

TEST_CASE("LayoutMap.set: an unknown axis is found at once and points at the axis") {
  LayoutMap map(kMesh);
  LayoutRule rule{".*bias", place(kFile, 3, 3, 6), layout({{"modle"}})};
  rule.layout.loc = place(kFile, 3, 11, 7);
  rule.layout.axis_locs = {{place(kFile, 3, 12, 5)}};
  const std::string text = problem_of("E205", [&] { map.set(rule); });
  contains(text, "axis `modle` of [modle] is not in the mesh");
  contains(text, "mlp.yaml:3:12");
  contains(text, "^^^^^ did you mean `model`?");
  contains(text, "mesh axes: data, model");
  CHECK(map.size() == 0);
}

TEST_CASE("LayoutMap.set: an axis may occur once and all problems are reported together") {
  LayoutMap map(kMesh);
  contains(problem_of("E205",
                      [&] {
                        map.set("a", layout({{"data"}, {"data"}}));
                      }),
           "axis `data` occurs twice in [data, data]");
  problem_of("E205", [&] { map.set("a", layout({{"data", "data"}})); });
  problem_of("E205", [&] { map.set("a", layout({{"data", "model"}, {"data"}})); });
  try {
    map.set("(", layout({{"foo"}, {"data"}, {"data"}}));
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(error.diagnostics().num_errors() == 3);  // unknown axis, repeated axis, bad pattern
  }
}

TEST_CASE("LayoutMap.set: an invalid pattern tells the character") {
  struct Case {
    std::string_view key, part;
  };
  const Case cases[] = {
      {"(a", "missing closing parenthesis at character 3"},
      {"a[", "missing terminating ] for character class at character 3"},
      {"*dense", "did you mean `.*dense`?"},
      {"a\\", "\\ at end of pattern"},
      {"\\C", "at character 3"},
      {"(?P<n", "at character"},
  };
  for (const Case& c : cases) {
    LayoutMap map(kMesh);
    contains(problem_of("E201", [&] { map.set(std::string(c.key), layout({})); }), c.part);
  }
  contains(problem_of("E201", [] { Pattern(std::string(5000, 'a')); }), "limit is 4096");
}

TEST_CASE("LayoutMap.find: the verified table of Keras") {
  LayoutMap map(kMesh);
  map.set(".*dense.*kernel", layout({{}, {"model"}}));
  map.set(".*bias", layout({{"model"}}));
  map.set("a/kernel", layout({{"data"}, {}}));
  struct Case {
    std::string_view path, key;
  };
  const Case cases[] = {
      {"dense/kernel", ".*dense.*kernel"},
      {"x/dense_1/kernel", ".*dense.*kernel"},
      {"a/kernel", "a/kernel"},
      {"b/a/kernel", ""},
      {"kernel", ""},
      {"dense/kernel/extra", ""},
      {"dense_1/bias", ".*bias"},
      {"bias", ".*bias"},
      {"", ""},
  };
  for (const Case& c : cases) {
    const LayoutRule* rule = map.find(c.path);
    CHECK_MESSAGE((rule == nullptr ? "" : rule->key) == c.key, std::string(c.path));
  }
  map.set(".*dense.*bias", layout({{"model"}}));
  const std::string text = problem_of("E203", [&] { map.find("dense/bias"); });
  contains(text, "2 rules match `dense/bias`: `.*bias` and `.*dense.*bias`");
  contains(text, "add a rule for exactly `dense/bias`");
  CHECK(map.find("other/bias")->key == ".*bias");
}

TEST_CASE("LayoutMap.find: two rules that match are both named with their lines") {
  LayoutMap map(kMesh);
  map.set({".*dense.*bias", place(kFile, 2, 3, 13), layout({{"model"}})});
  map.set({".*bias", place(kFile, 3, 3, 6), layout({{"model"}})});
  const std::string text = problem_of("E203", [&] { map.find("dense/bias"); });
  contains(text, "`.*dense.*bias` at mlp.yaml:2:3, `.*bias` at mlp.yaml:3:3");
}

TEST_CASE("LayoutMap.find: an exact key wins over patterns and is a pattern itself") {
  LayoutMap map(kMesh);
  map.set("a.b/kernel", layout({{"data"}}));
  map.set(".*kernel", layout({{"model"}}));
  CHECK(map.find("a.b/kernel")->key == "a.b/kernel");
  CHECK(map.find("c/kernel")->key == ".*kernel");
  CHECK_THROWS_AS(map.find("aXb/kernel"), ConfigError);  // as in Keras: the dot is not escaped
}

TEST_CASE("LayoutMap.find: full match takes whole alternatives and whole lines") {
  LayoutMap map(kMesh);
  map.set("d|d1/kernel", layout({{}, {"model"}}));
  CHECK(map.find("d1/kernel") != nullptr);
  CHECK(map.find("d1/kernels") == nullptr);
  CHECK(map.find("d1/kernel\n") == nullptr);
  LayoutMap named(kMesh);
  named.set("(?P<block>block_\\d+)/(?!ln).*/kernel", layout({{}, {"model"}}));
  CHECK(named.find("block_12/mlp/kernel") != nullptr);
  CHECK(named.find("block_12/ln/kernel") == nullptr);
}

TEST_CASE("LayoutMap.find: the model's name in front of a key is tolerated") {
  for (const char* key :
       {"d1/kernel", "mlp/d1/kernel", ".*d1/kernel", "mlp.*d1/kernel", "^mlp/.*kernel$"}) {
    LayoutMap map(kMesh);
    map.set(key, layout({{}, {"model"}}));
    CHECK_MESSAGE(map.find("d1/kernel", "mlp") != nullptr, key);
  }
  LayoutMap map(kMesh);
  map.set("mlp/d1/kernel", layout({{}, {"model"}}));
  map.set("[^/]+/d1/bias", layout({{"model"}}));
  CHECK(map.find("d1/kernel") == nullptr);
  CHECK(map.find("d1/kernel", "other") == nullptr);
  CHECK(map.find("d1/bias", "mlp") == nullptr);  // does not speak of the model
  map.set("d1/kernel", layout({{}, {"data"}}));
  CHECK_THROWS_AS(map.find("d1/kernel", "mlp"), ConfigError);  // two exact names of one variable
}

TEST_CASE("LayoutMap.find: search mode matches anywhere as old maps expect") {
  LayoutMap map(kMesh, true);
  map.set("dense.*kernel", layout({{}, {"model"}}));
  map.set("^bias", layout({{"model"}}));
  CHECK(map.search());
  CHECK(map.find("sequential/dense_1/kernel/extra")->key == "dense.*kernel");
  CHECK(map.find("bias_1") != nullptr);
  CHECK(map.find("dense/bias") == nullptr);
  CHECK_FALSE(LayoutMap(kMesh).search());
}

TEST_CASE("Pattern: catastrophic patterns end quickly with an error") {
  const Pattern pattern("(a+)+$");
  CHECK(pattern.full_match("aaaa"));
  const std::clock_t begin = std::clock();  // of this process: other load does not count
  contains(problem_of("E201", [&] { pattern.full_match(std::string(60, 'a') + "!"); }),
           "nested repeats");
  problem_of("E201", [] { Pattern("(?R)?a").full_match(std::string(100000, 'a')); });
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(seconds < 2);
  CHECK(Pattern("a.c").full_match("a\xffz") == false);  // bytes that are not UTF-8 match nothing
}

TEST_CASE("data layout: the batch axis splits the first dimension and nothing else") {
  Diagnostics diagnostics;
  const Shape shape = {kUnknownDim, 28, 28};
  const auto data_parallel =
      resolve_layout(layout({{"batch"}}), "x", shape, DeviceMesh({8}, {"batch"}), diagnostics);
  CHECK(*data_parallel == Sharding{{{0}, {}, {}}});
  const auto model_parallel =
      resolve_layout(layout({{"data"}}), "x", {64, 28, 28}, kMesh, diagnostics);
  CHECK(sharding_string(*model_parallel, kMesh) == "[data, null, null]");
  CHECK(local_shape({64, 28, 28}, *model_parallel, kMesh) == Shape{32, 28, 28});
  CHECK(diagnostics.list().empty());
  // Rank 0 has no first dimension; an axis that is not there is a mistake of the caller.
  CHECK_FALSE(resolve_layout(layout({{"data"}}), "x", {}, kMesh, diagnostics).has_value());
  CHECK(diagnostics.num_errors() == 1);
  CHECK_THROWS_AS(resolve_layout(layout({{"batch"}}), "x", shape, kMesh, diagnostics), Error);
}
