#include "mesh/sharding.h"

#include <doctest/doctest.h>

#include <set>

using namespace meshtrain;

namespace {
const DeviceMesh kMesh({2, 4, 3}, {"data", "model", "expert"});
Sharding parse(std::string_view text) {
  return parse_sharding(text, kMesh);
}
}  // namespace

TEST_CASE("sharding_problem: every invariant is checked") {
  struct Case {
    Sharding sharding;
    Shape shape;
    std::string_view problem;  // empty: it is fine
  };
  const Case cases[] = {
      {{{{}, {}}, 0}, {5, 7}, ""},
      {{{{0}, {1}}, 0}, {4, 8}, ""},
      {{{{0, 1}, {2}}, 0}, {8, 9}, ""},
      {{{{0}, {}}, 0b110}, {4, 7}, ""},
      {{{{0}, {}}, 0b010, Combine::kMax}, {4, 7}, ""},
      {{{}, 0b111}, {}, ""},
      {{{{0}, {}}, 0}, {kUnknownDim, 7}, ""},
      {{{{0}}, 0}, {0}, ""},
      {{{{0}}, 0}, {4, 8}, "has 1 dimensions, the tensor (4, 8) has 2"},
      {{{{3}}, 0}, {4}, "axis 3 of dimension 0 is not in the mesh"},
      {{{{-1}}, 0}, {4}, "axis -1 of dimension 0 is not in the mesh"},
      {{{{}}, 0b1000}, {4}, "partial axis is not in the mesh"},
      {{{{0}, {0}}, 0}, {4, 4}, "axis 'data' of dimension 1 is used twice"},
      {{{{0, 0}}, 0}, {4}, "axis 'data' of dimension 0 is used twice"},
      {{{{1}}, 0b010}, {4}, "axis 'model' of dimension 0 is used twice"},
      {{{{0, 1}}, 0}, {12}, "dimension 0 of (12,) is not divisible by 8 (data, model)"},
      {{{{2}}, 0}, {4}, "not divisible by 3 (expert)"},
      {{{{}}, 0, Combine::kMax}, {4}, "combine is max but nothing is partial"},
  };
  for (const Case& c : cases) {
    const std::string problem = sharding_problem(c.sharding, c.shape, kMesh).value_or("");
    CHECK_MESSAGE(
        (c.problem.empty() ? problem.empty() : problem.find(c.problem) != std::string::npos),
        problem);
    if (c.problem.empty()) {
      CHECK_NOTHROW(check_sharding(c.sharding, c.shape, kMesh));
    } else {
      CHECK_THROWS_AS(check_sharding(c.sharding, c.shape, kMesh), InternalError);
    }
  }
}

TEST_CASE("Sharding: masks of used axes") {
  const Sharding s = parse("[[data, model], null] sum(expert)");
  CHECK(s.dim_axes() == 0b011);
  CHECK(s.used_axes() == 0b111);
  CHECK_FALSE(s.is_replicated());
  CHECK(s.reduced() == parse("[[data, model], null]"));
  CHECK(Sharding::replicated(3).is_replicated());
  CHECK_FALSE(parse("[null] max(data)").is_replicated());
}

TEST_CASE("local_shape and local_start: blocks tile the tensor") {
  CHECK(local_shape({768, 3072}, parse("[null, model]"), kMesh) == Shape{768, 768});
  CHECK(local_shape({kUnknownDim, 8}, parse("[data, model]"), kMesh) == Shape{kUnknownDim, 2});
  CHECK_THROWS_AS(local_shape({7}, parse("[data]"), kMesh), InternalError);
  CHECK_THROWS_AS(local_shape({8, 8}, parse("[data]"), kMesh), InternalError);
  const Shape shape = {16, 6, 5};
  for (const char* text : {"[null, null, null]", "[[data, model], expert, null]",
                           "[[model, data], null, null]", "[data, [expert, data], null]"}) {
    if (std::string_view(text) == "[data, [expert, data], null]") {
      CHECK_THROWS_AS(parse(text), Error);  // an axis twice
      continue;
    }
    const Sharding s = parse(text);
    const Shape local = local_shape(shape, s, kMesh);
    std::set<std::vector<int64_t>> starts;
    for (int64_t device = 0; device < kMesh.num_devices(); ++device) {
      const std::vector<int64_t> start = local_start(shape, s, kMesh, device);
      for (size_t d = 0; d < shape.size(); ++d) {
        CHECK(start[d] % local[d] == 0);
        CHECK(start[d] + local[d] <= shape[d]);
      }
      starts.insert(start);
    }
    CHECK(static_cast<int64_t>(starts.size()) * num_elements(local) == num_elements(shape));
  }
}

TEST_CASE("local_start: the order of axes in a dimension decides which block is where") {
  // Device 1 is at data=0, model=0, expert=1; device 3 at model=1; device 12 at data=1.
  CHECK(local_start({8}, parse("[[data, model]]"), kMesh, 3) == std::vector<int64_t>{1});
  CHECK(local_start({8}, parse("[[model, data]]"), kMesh, 3) == std::vector<int64_t>{2});
  CHECK(local_start({8}, parse("[[data, model]]"), kMesh, 12) == std::vector<int64_t>{4});
  CHECK(local_start({8}, parse("[[model, data]]"), kMesh, 12) == std::vector<int64_t>{1});
}

TEST_CASE("distinct_shard: counts what devices hold and finds its first holder") {
  for (AxisMask axes = 0; axes < 8; ++axes) {
    std::vector<int64_t> first(kMesh.size_of(axes), -1);
    for (int64_t device = 0; device < kMesh.num_devices(); ++device) {
      const int64_t shard = distinct_shard(kMesh, axes, device);
      REQUIRE(shard >= 0);
      REQUIRE(shard < kMesh.size_of(axes));
      if (first[shard] < 0) {
        first[shard] = device;
      }
      for (int axis = 0; axis < 3; ++axis) {
        if ((axes >> axis & 1) != 0) {
          CHECK(kMesh.coordinate(device, axis) == kMesh.coordinate(first[shard], axis));
        }
      }
    }
    for (int64_t shard = 0; shard < kMesh.size_of(axes); ++shard) {
      CHECK(device_of_shard(kMesh, axes, shard) == first[shard]);
    }
  }
  CHECK_THROWS_AS(device_of_shard(kMesh, 0b001, 2), InternalError);
}

TEST_CASE("normalized: axes of size 1 split nothing") {
  const DeviceMesh mesh({2, 1}, {"data", "one"});
  CHECK(normalized(parse_sharding("[[one, data], null]", mesh), mesh) ==
        parse_sharding("[data, null]", mesh));
  CHECK(normalized(parse_sharding("[null] max(one)", mesh), mesh) == Sharding::replicated(1));
  CHECK(normalized(parse_sharding("[null] max(data, one)", mesh), mesh) ==
        parse_sharding("[null] max(data)", mesh));
}

TEST_CASE("sharding_string: is read back by parse_sharding") {
  for (const char* text :
       {"[]", "[] sum(data)", "[null]", "[data, null]", "[[data, model], null] sum(expert)",
        "[null, [expert, data]] max(model)", "[null, null] min(data, model, expert)"}) {
    CHECK(sharding_string(parse(text), kMesh) == text);
  }
  CHECK(sharding_string(parse(" [ [data] ,[ ] ] "), kMesh) == "[data, null]");
}

TEST_CASE("parse_sharding: says what is wrong and where") {
  struct Case {
    std::string_view text, problem;
  };
  const Case cases[] = {
      {"", "expected '['"},
      {"[data", "expected ']'"},
      {"[data,]", "expected a name"},
      {"[modle]", "axis 'modle' is not in the mesh"},
      {"[data, data]", "axis 'data' occurs twice"},
      {"[data] sum(data)", "axis 'data' occurs twice"},
      {"[data] mean(model)", "'mean' is not one of sum, max, min"},
      {"[data] sum", "expected '('"},
      {"[data] sum(model) x", "nothing more was expected"},
      {"[[null]]", "axis 'null' is not in the mesh"},
  };
  for (const Case& c : cases) {
    try {
      parse(c.text);
      FAIL(c.text);
    } catch (const Error& error) {
      CHECK_MESSAGE(std::string(error.what()).find(c.problem) != std::string::npos, error.what());
    }
  }
}
