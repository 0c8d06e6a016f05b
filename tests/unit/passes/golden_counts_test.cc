// Golden counts of collectives: P parameters, L layers.
#include <doctest/doctest.h>

#include <map>

#include "passes/layouts.h"
#include "passes/pipeline.h"
#include "support/small_models.h"

using namespace meshtrain;
using testing::StepBuilder;

namespace {

using Counts = std::map<std::string, int>;  // "backward all_reduce data" -> how many

struct Case {
  DeviceMesh mesh;
  AxisList batch_axes;
  std::map<std::string, Sharding> layouts;  // by weight path
  int zero = 0;
  AxisList zero_axes;
  std::map<std::string, Sharding> pins;
};

Compiled compile_case(Graph graph, const Case& c, bool bucket = false) {
  std::vector<Sharding> user;
  for (const Variable& v : graph.variables) {
    const auto found = c.layouts.find(v.path);
    user.push_back(found == c.layouts.end() ? Sharding::replicated(v.shape.size()) : found->second);
  }
  AxisMask batch = 0;
  for (const int axis : c.batch_axes) {
    batch |= AxisMask{1} << axis;
  }
  assign_layouts(graph.variables, user, {batch, c.zero, c.zero_axes}, c.mesh);
  CompileOptions options;
  options.bucket = bucket;
  options.propagate.batch_axes = c.batch_axes;
  options.propagate.pins = c.pins;
  return compile(graph, c.mesh, options);
}

Counts count(const Compiled& compiled, const DeviceMesh& mesh) {
  Counts out;
  for (const Node& node : compiled.graph.nodes) {
    if (!node.op->collective || node.op->name == "shard_slice") {
      continue;
    }
    std::string axes;
    for (const int64_t axis : node.attr_ints("axes")) {
      axes += " " + mesh.axis_name(static_cast<int>(axis));
    }
    ++out[fmt::format("{} {}{}", phase_name(node.phase), node.op->name, axes)];
  }
  return out;
}

// L two-layer blocks of Megatron kind with residual additions; 2 L weight matrices, no biases.
Graph blocks(int num_blocks) {
  StepBuilder s(16, 32, 32);
  ValueId h = s.x;
  for (int i = 0; i < num_blocks; ++i) {
    const ValueId up = s.b.unary("relu", s.dense(fmt::format("up{}", i), h, 64, false));
    h = s.b.add(h, s.dense(fmt::format("down{}", i), up, 32, false));
  }
  return s.finish(h);
}

std::map<std::string, Sharding> megatron(int num_blocks, int model_axis) {
  std::map<std::string, Sharding> out;
  for (int i = 0; i < num_blocks; ++i) {
    out[fmt::format("up{}/kernel", i)] = {{{}, {model_axis}}};
    out[fmt::format("down{}/kernel", i)] = {{{model_axis}, {}}};
  }
  return out;
}

}  // namespace

TEST_CASE("golden counts: data only is one scalar and one all_reduce for each parameter") {
  const DeviceMesh mesh({4}, {"data"});
  const Case c{mesh, {0}, {}, 0, {}, {}};
  const Counts counts = count(compile_case(blocks(2), c), mesh);
  CHECK(counts == Counts{{"forward all_reduce data", 1}, {"backward all_reduce data", 4}});
}

TEST_CASE("golden counts: buckets make the collectives independent of the number of tensors") {
  const DeviceMesh mesh({4}, {"data"});
  const Case c{mesh, {0}, {}, 0, {}, {}};
  for (const int layers : {1, 2, 8}) {
    const Counts counts = count(compile_case(blocks(layers), c, true), mesh);
    CHECK(counts == Counts{{"forward all_reduce data", 1}, {"backward all_reduce data", 1}});
  }
}

TEST_CASE("golden counts: gradients that take two collectives are bucketed too") {
  // Whole kernels behind an activation that is split over `model`: the gradients are reduced over
  // data, then gathered over model.
  const DeviceMesh mesh({2, 2}, {"data", "model"});
  Counts first;
  for (const int layers : {2, 6}) {
    Case c{mesh, {0}, {}, 0, {}, {}};
    for (int i = 0; i < layers; ++i) {
      c.layouts[fmt::format("up{}/kernel", i)] = {{{}, {1}}};
    }
    Counts counts = count(compile_case(blocks(layers), c, true), mesh);
    counts.erase("forward all_reduce model");  // one for each block, as it must be
    counts.erase("backward all_reduce model");
    if (first.empty()) {
      first = counts;
    }
    CHECK(counts == first);
  }
  CHECK(first["backward all_gather model"] == 1);
}

TEST_CASE(
    "golden counts: tensor parallel is L all_reduces forward and L backward for two-layer blocks") {
  const DeviceMesh mesh({1, 4}, {"data", "model"});
  const Case c{mesh, {}, megatron(3, 1), 0, {}, {}};
  const Counts counts = count(compile_case(blocks(3), c), mesh);
  // The gradient of the first block's input is not needed, so backward has one less.
  CHECK(counts == Counts{{"forward all_reduce model", 3}, {"backward all_reduce model", 2}});
}

TEST_CASE(
    "golden counts: data x tensor parallel adds one all_reduce over data for each parameter") {
  const DeviceMesh mesh({2, 2}, {"data", "model"});
  const Case c{mesh, {0}, megatron(3, 1), 0, {}, {}};
  const Counts counts = count(compile_case(blocks(3), c), mesh);
  CHECK(counts == Counts{{"forward all_reduce model", 3},
                         {"forward all_reduce data", 1},
                         {"backward all_reduce model", 2},
                         {"backward all_reduce data", 6}});
}

TEST_CASE("golden counts: FSDP gathers each parameter once and scatters each gradient once") {
  const DeviceMesh mesh({4}, {"data"});
  const Case c{mesh, {0}, {}, 3, {0}, {}};
  const Counts counts = count(compile_case(blocks(2), c), mesh);
  CHECK(counts == Counts{{"forward all_gather data", 4},
                         {"forward all_reduce data", 1},
                         {"backward reduce_scatter data", 4}});
}

TEST_CASE("golden counts: a layout that names the batch axis is FSDP of that variable") {
  const DeviceMesh mesh({4}, {"data"});
  Case c{mesh, {0}, {}, 0, {}, {}};
  for (int i = 0; i < 2; ++i) {
    c.layouts[fmt::format("up{}/kernel", i)] = {{{0}, {}}};
    c.layouts[fmt::format("down{}/kernel", i)] = {{{0}, {}}};
  }
  const Counts counts = count(compile_case(blocks(2), c), mesh);
  CHECK(counts == Counts{{"forward all_gather data", 4},
                         {"forward all_reduce data", 1},
                         {"backward reduce_scatter data", 4}});
}

TEST_CASE("golden counts: ZeRO-1 and ZeRO-2 scatter gradients and gather updated parameters") {
  const DeviceMesh mesh({4}, {"data"});
  for (const int zero : {1, 2}) {
    const Case c{mesh, {0}, {}, zero, {0}, {}};
    const Counts counts = count(compile_case(blocks(2), c), mesh);
    CHECK(counts == Counts{{"forward all_reduce data", 1},
                           {"backward reduce_scatter data", 4},
                           {"update all_gather data", 4}});
  }
}

TEST_CASE("golden counts: FSDP x tensor parallel") {
  const DeviceMesh mesh({2, 2}, {"data", "model"});
  const Case c{mesh, {0}, megatron(3, 1), 3, {0}, {}};
  const Counts counts = count(compile_case(blocks(3), c), mesh);
  CHECK(counts == Counts{{"forward all_gather data", 6},
                         {"forward all_reduce model", 3},
                         {"forward all_reduce data", 1},
                         {"backward all_reduce model", 2},
                         {"backward reduce_scatter data", 6}});
}

TEST_CASE(
    "golden counts: HSDP scatters over the inner axis and reduces shards over the outer one") {
  const DeviceMesh mesh({2, 2}, {"data", "fsdp"});
  const Case c{mesh, {0, 1}, {}, 3, {1}, {}};
  const Counts counts = count(compile_case(blocks(2), c), mesh);
  CHECK(counts == Counts{{"forward all_gather fsdp", 4},
                         {"forward all_reduce data fsdp", 1},
                         {"backward reduce_scatter fsdp", 4},
                         {"backward all_reduce data", 4}});
}

TEST_CASE(
    "golden counts: a vocabulary-parallel embedding adds one all_reduce and nothing backward") {
  const auto embedding = [](bool sharded) {
    StepBuilder s(8, 4, 16);
    const ValueId ids = s.b.input("ids", {8, 4}, DType::kInt32, true);
    const ValueId table = s.weight("tok/embeddings", {32, 16});
    const ValueId rows = s.b.gather_rows(table, ids);
    const ValueId hidden = s.b.unary("tanh", s.b.reduce_sum(rows, {1}));
    const Graph graph = s.finish(hidden);
    const DeviceMesh mesh({2, 2}, {"data", "model"});
    Case c{mesh, {0}, {}, 0, {}, {}};
    if (sharded) {
      c.layouts["tok/embeddings"] = {{{1}, {}}};
    }
    return count(compile_case(graph, c), mesh);
  };
  Counts expected = embedding(false);
  CHECK(expected == Counts{{"forward all_reduce data", 1}, {"backward all_reduce data", 1}});
  expected["forward all_reduce model"] = 1;
  CHECK(embedding(true) == expected);
}
