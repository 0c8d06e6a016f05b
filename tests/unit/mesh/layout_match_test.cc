#include <doctest/doctest.h>

#include "mesh/layout_map.h"

using namespace meshtrain;

namespace {

const DeviceMesh kMesh({2, 3}, {"data", "model"});

TensorLayout layout(std::vector<std::vector<std::string>> dims) {
  TensorLayout out;
  out.dims = std::move(dims);
  return out;
}

void contains(const std::string& text, std::string_view part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, "'", std::string(part), "' in:\n", text);
}

// The names of a small model: d1 has no bias.
const std::vector<LayoutTarget> kTargets = {
    {"d1/kernel", {784, 200}}, {"d1/output", {kUnknownDim, 200}}, {"d2/kernel", {200, 12}},
    {"d2/bias", {12}},         {"d2/output", {kUnknownDim, 12}},  {"block_0/mlp/kernel", {12, 12}},
};
const std::vector<std::string> kLayers = {"d1", "d2", "block_0/mlp", "drop"};

struct Outcome {
  std::vector<std::string> keys;  // per target; "" when none
  std::string text;
  std::vector<std::string> codes;
};

Outcome match(const std::vector<std::string>& keys, bool search = false,
              Unmatched unmatched = Unmatched::kError) {
  LayoutMap map(kMesh, search);
  map.set_unmatched(unmatched);
  for (const std::string& key : keys) {
    map.set(key, layout({{"data"}}));
  }
  Diagnostics diagnostics;
  Outcome out;
  for (const LayoutRule* rule : match_layouts(map, kTargets, kLayers, "mlp", diagnostics)) {
    out.keys.push_back(rule == nullptr ? "" : rule->key);
  }
  out.text = diagnostics.render();
  for (const Diagnostic& d : diagnostics.list()) {
    out.codes.push_back(d.code);
  }
  return out;
}

}  // namespace

TEST_CASE("resolve_layout: entries left out are replicated and several axes keep their order") {
  Diagnostics diagnostics;
  struct Case {
    TensorLayout layout;
    Shape shape;
    std::string_view sharding;
  };
  const Case cases[] = {
      {layout({{}, {"model"}}), {784, 12}, "[null, model]"},
      {layout({{"model"}}), {12, 7, 7}, "[model, null, null]"},
      {layout({{"model", "data"}}), {12, 7}, "[[model, data], null]"},
      {layout({}), {}, "[]"},
      {layout({{"data"}, {}}), {kUnknownDim, 7}, "[data, null]"},
  };
  for (const Case& c : cases) {
    const auto sharding = resolve_layout(c.layout, "w", c.shape, kMesh, diagnostics);
    REQUIRE(sharding.has_value());
    CHECK(sharding_string(*sharding, kMesh) == c.sharding);
  }
  CHECK(diagnostics.list().empty());
}

TEST_CASE("resolve_layout: an axis of size 1 splits nothing") {
  Diagnostics diagnostics;
  const DeviceMesh mesh({2, 1}, {"data", "model"});
  CHECK(resolve_layout(layout({{"data"}, {"model"}}), "w", {4, 7}, mesh, diagnostics) ==
        Sharding{{{0}, {}}});
}

TEST_CASE("resolve_layout: what does not divide is reported with every number") {
  const auto file = std::make_shared<const SourceFile>(
      SourceFile{"mlp.yaml", "layout_map:\n    d1/kernel: [null, model]\n"});
  TensorLayout bad = layout({{}, {"model"}});
  bad.axis_locs = {{}, {{file, 2, 23, 5}}};
  Diagnostics diagnostics;
  CHECK_FALSE(resolve_layout(bad, "d1/kernel", {784, 200}, kMesh, diagnostics).has_value());
  CHECK(diagnostics.render() ==
        "error[E204]: cannot split dimension 1 of `d1/kernel` (784 x 200) over `model` = 3\n"
        " --> mlp.yaml:2:23\n"
        "  |\n"
        "2 |     d1/kernel: [null, model]\n"
        "  |                       ^^^^^ 200 is not divisible by 3\n"
        "  = help: mesh sizes that fit: 1, 2, 4, 5; or make the dimension 198 or 201\n"
        "  = note: mesh: `data` = 2, `model` = 3\n\n");
  Diagnostics both;
  resolve_layout(layout({{"data"}, {"model"}}), "w", {7, 2}, kMesh, both);
  CHECK(both.num_errors() == 2);
  contains(both.render(), "no mesh size above 1 fits 7; write null here, or make the dimension 6");
  contains(both.render(), "make the dimension 3");
  Diagnostics product;
  resolve_layout(layout({{"data", "model"}}), "w", {8}, kMesh, product);
  contains(product.render(), "over `data` x `model` = 6");
}

TEST_CASE("resolve_layout: more entries than dimensions are an error") {
  Diagnostics diagnostics;
  CHECK_FALSE(resolve_layout(layout({{}, {"model"}}), "d1/bias", {12}, kMesh, diagnostics));
  CHECK(diagnostics.list()[0].code == "E205");
  contains(diagnostics.render(),
           "layout [null, model] has 2 entries; `d1/bias` (12) has 1 dimension");
  Diagnostics scalar;
  CHECK_FALSE(resolve_layout(layout({{"data"}}), "adam/iteration", {}, kMesh, scalar));
  contains(scalar.render(), "(a scalar) has 0 dimensions");
}

TEST_CASE("match_layouts: every target gets its rule and outputs match like variables") {
  const Outcome out = match({"d1/kernel", ".*d2.*(kernel|bias)", ".*/output"});
  CHECK(out.keys == std::vector<std::string>{"d1/kernel", ".*/output", ".*d2.*(kernel|bias)",
                                             ".*d2.*(kernel|bias)", ".*/output", ""});
  CHECK(out.text.empty());
}

TEST_CASE("match_layouts: a rule that acts on nothing is an error with the nearest paths") {
  const Outcome out = match({"dense/kernel"});
  CHECK(out.codes == std::vector<std::string>{"E202"});
  contains(out.text, "rule `dense/kernel` matches no variable and no layer output");
  contains(out.text, "closest paths: d1/kernel, d2/kernel");
  contains(match({"d1/kernle"}).text, "did you mean `d1/kernel`?");
  contains(match({"other/d1/kernel"}).text,
           "paths here have no such name in front: write `d1/kernel`");
}

TEST_CASE("match_layouts: a pattern for searching is shown as one for whole paths") {
  struct Case {
    std::string_view key, fixed;
  };
  const Case cases[] = {
      {"d2/ker", "`d2/ker.*` would match d2/kernel"},
      {"lp/kernel", "`.*lp/kernel` would match block_0/mlp/kernel"},
      {"lp/ker", "`.*lp/ker.*` would match block_0/mlp/kernel"},
      {"kernel", "`.*kernel` would match d1/kernel and 2 more"},
      {"ernel|ias", "`.*(?:ernel|ias)` would match d1/kernel and 3 more"},
      {"^d1/k", "`^d1/k.*` would match d1/kernel"},
  };
  for (const Case& c : cases) {
    const Outcome out = match({std::string(c.key)});
    CHECK(out.codes == std::vector<std::string>{"E202"});
    contains(out.text, std::string("a rule must match the whole path: ") + std::string(c.fixed));
    CHECK(match({std::string(c.key)}, true).text.empty());  // search mode
  }
}

TEST_CASE("match_layouts: a variable that its layer merely lacks is only a warning") {
  for (const char* key : {"d1/bias", "mlp/d1/bias", "drop/bias"}) {
    const Outcome out = match({key});
    CHECK(out.codes == std::vector<std::string>{"W203"});
  }
  contains(match({"d1/bias"}).text, "layer `d1` has no `bias`");
  contains(match({"d1/bias"}).text, "`d1` has kernel, output");
  // A slip of the pen is not a missing variable, nor is a pattern.
  CHECK(match({"d1/kernle"}).codes == std::vector<std::string>{"E202"});
  CHECK(match({"d1/.*bias"}).codes == std::vector<std::string>{"E202"});
  CHECK(match({"d9/bias"}).codes == std::vector<std::string>{"E202"});
}

TEST_CASE("match_layouts: a pattern that exact keys leave without work is a warning") {
  const Outcome out = match({"d2/bias", ".*bias"});
  CHECK(out.codes == std::vector<std::string>{"W203"});
  contains(out.text, "every path that it matches has a rule of its own, such as `d2/bias`");
}

TEST_CASE("match_layouts: a rule that acts on nothing may pass with a warning or without") {
  const std::vector<std::string> keys = {"dense/kernel", "d1/bias", "d2/kernel"};
  CHECK(match(keys).codes == std::vector<std::string>{"E202", "W203"});
  const Outcome warned = match(keys, false, Unmatched::kWarn);
  CHECK(warned.codes == std::vector<std::string>{"W203", "W203"});
  contains(warned.text, "rule `dense/kernel` matches no variable and no layer output");
  const Outcome silent = match(keys, false, Unmatched::kOff);
  CHECK(silent.codes.empty());
  CHECK(silent.keys == warned.keys);
  // Two rules that meet are no matter of this.
  CHECK(match({".*kernel", "d.*kernel"}, false, Unmatched::kOff).codes ==
        std::vector<std::string>{"E203"});
}

TEST_CASE("match_layouts: two rules that meet are reported once and neither as unused") {
  const Outcome out = match({".*kernel", "d.*kernel", ".*bias"});
  CHECK(out.codes == std::vector<std::string>{"E203"});
  contains(out.text, "2 rules match `d1/kernel`: `.*kernel` and `d.*kernel`");
  contains(out.text, "they meet on 1 more path, such as `d2/kernel`");
  CHECK(out.keys[0].empty());
  CHECK(out.keys[5] == ".*kernel");
}

TEST_CASE("match_layouts: a match that is given up is an error and not an exception") {
  LayoutMap map(kMesh);
  map.set("(a+)+", layout({}));
  Diagnostics diagnostics;
  const std::vector<LayoutTarget> targets = {{std::string(60, 'a') + "!", {1}}};
  match_layouts(map, targets, {}, "", diagnostics);
  CHECK(diagnostics.list()[0].code == "E201");
}

TEST_CASE("match_layouts: thousands of layers take no time") {
  std::vector<LayoutTarget> targets;
  std::vector<std::string> layers;
  for (int i = 0; i < 1000; ++i) {
    layers.push_back(fmt::format("block_{}/mlp", i));
    for (const char* name : {"kernel", "bias", "output"}) {
      targets.push_back({fmt::format("{}/{}", layers.back(), name), {6, 6}});
    }
  }
  LayoutMap map(kMesh);
  for (const char* key : {".*mlp.*kernel", ".*mlp.*bias", ".*attention.*kernel", ".*ln.*gamma",
                          "embedding/embeddings", ".*mlp/output"}) {
    map.set(key, layout({}));
  }
  Diagnostics diagnostics;
  const auto rules = match_layouts(map, targets, layers, "functional", diagnostics);
  CHECK(rules[0]->key == ".*mlp.*kernel");
  CHECK(rules[2999]->key == ".*mlp/output");
  CHECK(diagnostics.num_errors() == 3);
}

TEST_CASE("a rule that acts on nothing names the bytes that stay whole because of it") {
  // 200 x 12 and 12 x 12 float32 elements without another rule.
  contains(match({"d2/kernle"}).text,
           "9.4 KiB stay replicated on each device because of it: `d2/kernel`");
  contains(match({"mlp/kernel"}).text,
           "576 B stay replicated on each device because of it: `block_0/mlp/kernel`");
  const std::string covered = match({"d2/kernle", "d2/kernel"}).text;
  CHECK(covered.find("stay replicated") == std::string::npos);
}
