// Plans are proved on data: a small machine applies every move to per-device arrays, and what each
// device ends up with is compared with what the target sharding says it holds.
#include "mesh/reshard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <random>

using namespace meshtrain;

namespace {

using Array = std::vector<int64_t>;  // one device's block, row-major

int64_t combine(Combine how, int64_t a, int64_t b) {
  return how == Combine::kSum ? a + b : how == Combine::kMax ? std::max(a, b) : std::min(a, b);
}

// Elements `begin` .. `begin + count` of dimension `dim`.
Array take(const Array& from, const Shape& shape, int dim, int64_t begin, int64_t count) {
  Shape to = shape;
  to[dim] = count;
  const std::vector<int64_t> strides = row_major_strides(shape);
  Array out;
  for (int64_t i = 0; i < num_elements(shape); ++i) {
    const int64_t at = i / strides[dim] % shape[dim];
    if (at >= begin && at < begin + count) {
      out.push_back(from[i]);
    }
  }
  return out;
}

// Blocks of equal shape side by side along `dim`.
Array concatenate(const std::vector<Array>& parts, const Shape& shape, int dim) {
  int64_t inner = 1;
  for (size_t d = dim; d < shape.size(); ++d) {
    inner *= shape[d];
  }
  Array out;
  for (int64_t outer = 0; outer < num_elements(shape) / std::max<int64_t>(inner, 1); ++outer) {
    for (const Array& part : parts) {
      out.insert(out.end(), part.begin() + outer * inner, part.begin() + (outer + 1) * inner);
    }
  }
  return out;
}

class Machine {
 public:
  Machine(const DeviceMesh& mesh, const Shape& shape, Sharding sharding)
      : mesh_(mesh), shape_(shape), state_(std::move(sharding)) {
    for (int64_t device = 0; device < mesh.num_devices(); ++device) {
      blocks_.push_back(block_of(state_, device, state_.partial));
    }
  }

  void apply(const ReshardMove& move) {
    const Shape local = local_shape(shape_, state_, mesh_);
    const int64_t n = mesh_.size_of(move.axes);
    std::vector<Array> next;
    for (int64_t device = 0; device < mesh_.num_devices(); ++device) {
      const std::vector<int64_t> group = mesh_.group(device, move.axes);
      const int64_t me = mesh_.index_along(device, move.axes);
      switch (move.kind) {
        case MoveKind::kAllGather: {
          std::vector<Array> parts;
          for (const int64_t other : group) {
            parts.push_back(blocks_[other]);
          }
          next.push_back(concatenate(parts, local, move.dim));
          break;
        }
        case MoveKind::kSlice:
          next.push_back(part(blocks_[device], local, move.dim, n, me));
          break;
        case MoveKind::kAllToAll: {
          std::vector<Array> parts;
          Shape shard = local;
          shard[move.to_dim] /= n;
          for (const int64_t other : group) {
            parts.push_back(part(blocks_[other], local, move.to_dim, n, me));
          }
          next.push_back(concatenate(parts, shard, move.dim));
          break;
        }
        case MoveKind::kReduceScatter:
          next.push_back(part(reduced(group), local, move.dim, n, me));
          break;
        case MoveKind::kAllReduce:
          next.push_back(reduced(group));
          break;
        case MoveKind::kPermute: {
          const int64_t wanted = mesh_.index_along(device, move.result.dims[move.dim]);
          const auto holder = std::find_if(group.begin(), group.end(), [&](int64_t other) {
            return mesh_.index_along(other, state_.dims[move.dim]) == wanted;
          });
          REQUIRE(holder != group.end());
          next.push_back(blocks_[*holder]);
          break;
        }
      }
    }
    blocks_ = std::move(next);
    state_ = move.result;
    REQUIRE_FALSE(sharding_problem(state_, shape_, mesh_).has_value());
  }

  // `source_partial`: the axes over which the value was a set of terms to begin with.
  bool holds(const Sharding& target, AxisMask source_partial, Combine how) const {
    for (int64_t device = 0; device < mesh_.num_devices(); ++device) {
      // Expected: the terms of all positions along the reduced axes, combined.
      Array expected;
      AxisList reduced;
      for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
        if (((source_partial & ~target.partial) >> axis & 1) != 0) {
          reduced.push_back(axis);
        }
      }
      const std::vector<int64_t> start = local_start(shape_, target, mesh_, device);
      const Shape local = local_shape(shape_, target, mesh_);
      for (const int64_t other : mesh_.group(device, reduced)) {
        const Array term = terms(start, local, distinct_shard(mesh_, source_partial, other));
        if (expected.empty()) {
          expected = term;
        } else {
          for (size_t i = 0; i < term.size(); ++i) {
            expected[i] = combine(how, expected[i], term[i]);
          }
        }
      }
      if (blocks_[device] != expected) {
        return false;
      }
    }
    return true;
  }

 private:
  // The term of position `shard` along the partial axes, in one block: well mixed numbers.
  Array terms(const std::vector<int64_t>& start, const Shape& local, int64_t shard) const {
    const std::vector<int64_t> local_strides = row_major_strides(local);
    const std::vector<int64_t> strides = row_major_strides(shape_);
    Array out(num_elements(local));
    for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
      int64_t index = 0;
      for (size_t d = 0; d < local.size(); ++d) {
        index += (start[d] + i / local_strides[d] % local[d]) * strides[d];
      }
      out[i] = static_cast<int64_t>(
          (static_cast<uint64_t>(index * 64 + shard) * 0x9E3779B97F4A7C15ull) >> 24);
    }
    return out;
  }
  Array block_of(const Sharding& s, int64_t device, AxisMask partial) const {
    return terms(local_start(shape_, s, mesh_, device), local_shape(shape_, s, mesh_),
                 distinct_shard(mesh_, partial, device));
  }
  static Array part(const Array& block, const Shape& local, int dim, int64_t n, int64_t index) {
    REQUIRE(local[dim] % n == 0);
    return take(block, local, dim, index * (local[dim] / n), local[dim] / n);
  }
  Array reduced(const std::vector<int64_t>& group) const {
    Array out = blocks_[group[0]];
    for (size_t k = 1; k < group.size(); ++k) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = combine(state_.combine, out[i], blocks_[group[k]][i]);
      }
    }
    return out;
  }

  const DeviceMesh& mesh_;
  const Shape& shape_;
  Sharding state_;
  std::vector<Array> blocks_;
};

std::string describe(const std::vector<ReshardMove>& plan, const DeviceMesh& mesh) {
  std::string out;
  for (const ReshardMove& move : plan) {
    std::vector<std::string> names;
    for (const int axis : move.axes) {
      names.push_back(mesh.axis_name(axis));
    }
    out += fmt::format("{}{}({}) -> {}", out.empty() ? "" : "; ", move_name(move.kind),
                       fmt::join(names, ","), sharding_string(move.result, mesh));
  }
  return out;
}

double cost_of(const std::vector<ReshardMove>& plan, Sharding state, const Shape& shape,
               const DeviceMesh& mesh, const ReshardCost& cost = {}) {
  double total = 0;
  for (const ReshardMove& move : plan) {
    if (move.kind != MoveKind::kSlice) {
      total += cost.alpha + cost.beta * static_cast<double>(
                                            bytes_sent(move, state, shape, DType::kFloat32, mesh));
    }
    state = move.result;
  }
  return total;
}

// One all_reduce, one all_gather per split dimension, slices: what anyone would do without thought.
std::vector<ReshardMove> gather_everything(const Sharding& source, const Sharding& target,
                                           const DeviceMesh& mesh) {
  std::vector<ReshardMove> plan;
  Sharding state = source;
  AxisList partial;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (((source.partial & ~target.partial) >> axis & 1) != 0) {
      partial.push_back(axis);
    }
  }
  if (!partial.empty()) {
    state.partial = target.partial;
    plan.push_back({MoveKind::kAllReduce, partial, -1, -1, state});
  }
  for (size_t d = 0; d < state.dims.size(); ++d) {
    if (!state.dims[d].empty() && state.dims[d] != target.dims[d]) {
      const AxisList axes = state.dims[d];
      state.dims[d].clear();
      plan.push_back({MoveKind::kAllGather, axes, static_cast<int>(d), -1, state});
    }
  }
  plan.push_back({MoveKind::kSlice, {}, 0, -1, target});
  return plan;
}

class RandomCase {
 public:
  explicit RandomCase(uint32_t seed) : random_(seed) {}

  DeviceMesh mesh(int max_axes, int64_t max_devices) {
    std::vector<int64_t> shape;
    std::vector<std::string> names;
    int64_t size = 1;
    const int axes = pick(1, max_axes);
    for (int i = 0; i < axes; ++i) {
      const int64_t n = std::vector<int64_t>{2, 2, 2, 3, 4}[pick(0, 4)];
      if (size * n <= max_devices) {
        size *= n;
        shape.push_back(n);
        names.push_back(std::string(1, static_cast<char>('a' + i)));
      }
    }
    return DeviceMesh(shape, names);
  }

  // Every axis free, partial, or in a dimension that it still divides.
  Sharding sharding(const DeviceMesh& mesh, const Shape& shape, AxisMask may_pend) {
    Sharding out = Sharding::replicated(shape.size());
    std::vector<int> axes(mesh.num_axes());
    for (int i = 0; i < mesh.num_axes(); ++i) {
      axes[i] = i;
    }
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const int axis : axes) {
      const int where = pick(-2, static_cast<int>(shape.size()) - 1);
      if (where == -1 && (may_pend >> axis & 1) != 0) {
        out.partial |= AxisMask{1} << axis;
      } else if (where >= 0) {
        out.dims[where].push_back(axis);
        if (shape[where] % mesh.size_of(out.dims[where]) != 0) {
          out.dims[where].pop_back();
        }
      }
    }
    return out;
  }

  int pick(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }

 private:
  std::mt19937 random_;
};

// Four on all meshes of up to three axes; with more, one more where every shorter plan would cost
// more than gathering everything.
size_t max_moves(const DeviceMesh& mesh) {
  return mesh.num_axes() <= 3 ? 4 : 5;
}

const DeviceMesh kMesh({2, 4, 2}, {"x", "y", "z"});
std::vector<ReshardMove> plan(std::string_view source, std::string_view target,
                              const Shape& shape = {1024, 1024}, const DeviceMesh& mesh = kMesh) {
  return plan_reshard(parse_sharding(source, mesh), parse_sharding(target, mesh), shape,
                      DType::kFloat32, mesh);
}

}  // namespace

TEST_CASE("plan_reshard: chooses the collectives of the table") {
  struct Case {
    std::string_view source, target, plan;
  };
  const Case cases[] = {
      {"[x, null]", "[x, null]", ""},
      {"[null, null] sum(x)", "[null, null]", "all_reduce(x) -> [null, null]"},
      {"[null, null] sum(x, y)", "[null, null]", "all_reduce(x,y) -> [null, null]"},
      {"[null, null] sum(x)", "[x, null]", "reduce_scatter(x) -> [x, null]"},
      {"[null, null] max(x)", "[null, x]", "reduce_scatter(x) -> [null, x]"},
      {"[null, null] sum(x, y)", "[x, null]",
       "reduce_scatter(x) -> [x, null] sum(y); all_reduce(y) -> [x, null]"},
      {"[null, null] sum(x, y)", "[[x, y], null]", "reduce_scatter(x,y) -> [[x, y], null]"},
      {"[null, null] sum(x, y)", "[[y, x], null]", "reduce_scatter(y,x) -> [[y, x], null]"},
      {"[null, null] sum(x, y)", "[x, null] sum(y)", "reduce_scatter(x) -> [x, null] sum(y)"},
      {"[y, null]", "[null, y]", "all_to_all(y) -> [null, y]"},
      {"[[x, y], null]", "[x, y]", "all_to_all(y) -> [x, y]"},
      {"[[x, y], null]", "[null, [x, y]]", "all_to_all(x,y) -> [null, [x, y]]"},
      {"[x, null]", "[null, null]", "all_gather(x) -> [null, null]"},
      {"[[x, y], null]", "[null, null]", "all_gather(x,y) -> [null, null]"},
      {"[[x, y], null]", "[x, null]", "all_gather(y) -> [x, null]"},
      {"[null, null]", "[x, null]", "slice(x) -> [x, null]"},
      {"[null, null]", "[[x, y], z]", "slice(x,y) -> [[x, y], null]; slice(z) -> [[x, y], z]"},
      {"[x, null]", "[z, null]", "permute(x,z) -> [z, null]"},
      {"[[x, y], null]", "[[y, x], null]", "permute(x,y) -> [[y, x], null]"},
      {"[x, null]", "[[x, z], null]", "slice(z) -> [[x, z], null]"},
      {"[x, null] sum(y)", "[x, null]", "all_reduce(y) -> [x, null]"},
  };
  for (const Case& c : cases) {
    CHECK(describe(plan(c.source, c.target), kMesh) == c.plan);
  }
}

TEST_CASE("plan_reshard: small tensors get the collectives of the table too") {
  CHECK(describe(plan("[null] sum(x, y)", "[x]", {8}), kMesh) ==
        "reduce_scatter(x) -> [x] sum(y); all_reduce(y) -> [x]");
}

TEST_CASE("plan_reshard: a shard that changes dimension behind another one never gathers all") {
  // Openxla's issue 15207: a naive partitioner rematerializes the whole tensor here.
  const Shape shape = {64, 64, 64};
  const auto two = plan("[[x, y], null, null]", "[null, x, y]", shape);
  CHECK(describe(two, kMesh) == "all_to_all(y) -> [x, null, y]; all_to_all(x) -> [null, x, y]");
}

TEST_CASE("plan_reshard: axes of size 1 need no move") {
  const DeviceMesh mesh({2, 1, 1}, {"a", "one", "two"});
  CHECK(plan("[[one, a]] sum(two)", "[a]", {8}, mesh).empty());
}

TEST_CASE("plan_reshard: a target may not gain partial axes") {
  CHECK_THROWS_AS(plan("[null, null]", "[null, null] sum(x)"), InternalError);
  CHECK_THROWS_AS(plan("[null, null] sum(x)", "[null, null] max(x)"), InternalError);
  CHECK_THROWS_AS(plan("[null, null]", "[x, null]", {7, 7}), InternalError);
}

TEST_CASE("bytes_sent: the formulas of bandwidth-optimal collectives") {
  const Shape shape = {64, 64};  // 16 KiB of float32
  const auto sent = [&](std::string_view source, std::string_view target) {
    const auto moves = plan(source, target, shape);
    REQUIRE(moves.size() == 1);
    return bytes_sent(moves[0], parse_sharding(source, kMesh), shape, DType::kFloat32, kMesh);
  };
  CHECK(sent("[null, null] sum(y)", "[null, null]") == 2 * 16384 * 3 / 4);
  CHECK(sent("[null, null] sum(y)", "[y, null]") == 16384 * 3 / 4);
  CHECK(sent("[y, null]", "[null, null]") == 4096 * 3);
  CHECK(sent("[y, null]", "[null, y]") == 4096 * 3 / 4);
  CHECK(sent("[x, null]", "[z, null]") == 8192);
  CHECK(sent("[null, null]", "[y, null]") == 0);
}

TEST_CASE("plan_reshard: random plans move the data bit for bit") {
  int cases = 0;
  int with_partial = 0;
  int two_on_a_dim = 0;
  size_t longest = 0;
  for (uint32_t seed = 0; cases < 600; ++seed) {
    RandomCase random(seed);
    const DeviceMesh mesh = random.mesh(4, 24);
    Shape shape;
    for (int d = random.pick(1, 3); d > 0; --d) {
      shape.push_back(std::vector<int64_t>{4, 6, 8, 12, 16, 24}[random.pick(0, 5)]);
    }
    Sharding source = random.sharding(mesh, shape, ~AxisMask{0});
    const Sharding target =
        random.sharding(mesh, shape, random.pick(0, 3) == 0 ? source.partial : 0);
    if (source.partial != 0 && target.partial == 0) {
      source.combine = static_cast<Combine>(random.pick(0, 2));
    }
    if (source == target) {
      continue;
    }
    ++cases;
    with_partial += source.partial != 0;
    two_on_a_dim += std::any_of(source.dims.begin(), source.dims.end(),
                                [](const AxisList& axes) { return axes.size() > 1; });
    const std::vector<ReshardMove> moves =
        plan_reshard(source, target, shape, DType::kFloat32, mesh);
    INFO("seed ", seed, " mesh ", mesh.to_string(), " ", shape_string(shape), " ",
         sharding_string(source, mesh), " to ", sharding_string(target, mesh), ": ",
         describe(moves, mesh));
    REQUIRE(!moves.empty());
    REQUIRE(moves.back().result == target);
    longest = std::max(longest, moves.size());
    CHECK(moves.size() <= max_moves(mesh));
    Machine machine(mesh, shape, source);
    for (const ReshardMove& move : moves) {
      machine.apply(move);
    }
    CHECK(machine.holds(target, source.partial, source.combine));
    // Again: from the memo, the same.
    CHECK(describe(plan_reshard(source, target, shape, DType::kFloat32, mesh), mesh) ==
          describe(moves, mesh));
  }
  CHECK(with_partial > 150);
  CHECK(two_on_a_dim > 60);
  CHECK(longest >= 3);
}

TEST_CASE("plan_reshard: never dearer than gathering everything") {
  for (uint32_t seed = 1000; seed < 1400; ++seed) {
    RandomCase random(seed);
    const DeviceMesh mesh = random.mesh(4, 64);
    Shape shape;
    for (int d = random.pick(1, 3); d > 0; --d) {
      shape.push_back(std::vector<int64_t>{48, 96, 144, 192}[random.pick(0, 3)]);
    }
    shape[0] *= 144 * 16;  // large enough that bytes count more than latency
    const Sharding source = random.sharding(mesh, shape, ~AxisMask{0});
    const Sharding target = random.sharding(mesh, shape, 0);
    const std::vector<ReshardMove> moves =
        plan_reshard(source, target, shape, DType::kFloat32, mesh);
    INFO("seed ", seed, " mesh ", mesh.to_string(), " ", shape_string(shape), " ",
         sharding_string(source, mesh), " to ", sharding_string(target, mesh), ": ",
         describe(moves, mesh));
    CHECK(moves.size() <= max_moves(mesh));
    CHECK(cost_of(moves, source, shape, mesh) <=
          cost_of(gather_everything(source, target, mesh), source, shape, mesh));
  }
}

TEST_CASE("plan_reshard: twelve axes are planned at once whether few or all take part") {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    names.push_back(fmt::format("a{}", i));
  }
  const DeviceMesh mesh(std::vector<int64_t>(12, 2), names);
  const Shape shape = {4096, 4096};
  const auto few = plan("[[a3, a7], null] sum(a11)", "[a7, a3]", shape, mesh);
  CHECK(few.back().result == parse_sharding("[a7, a3]", mesh));
  CHECK(few.size() <= 4);
}

TEST_CASE("plan_reshard: every axis of a large mesh may change its place") {
  for (const int num_axes : {6, 8, 12}) {
    std::vector<std::string> names;
    Sharding source = Sharding::replicated(2);
    Sharding target = Sharding::replicated(2);
    for (int i = 0; i < num_axes; ++i) {
      names.push_back(fmt::format("a{}", i));
      AxisList& to = target.dims[1 - i / (num_axes / 2)];
      source.dims[i % 2].push_back(i);
      to.insert(to.begin(), i);
    }
    const DeviceMesh mesh(std::vector<int64_t>(num_axes, 2), names);
    const Shape shape = {64, 64};
    const std::clock_t begin = std::clock();  // of this process: other load does not count
    const auto moves = plan_reshard(source, target, shape, DType::kFloat32, mesh);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    INFO(describe(moves, mesh), " in ", seconds, " s");
    CHECK(seconds < 5);  // milliseconds; the bound is for slow and sanitized builds
    CHECK(moves.back().result == target);
    CHECK(moves.size() <= 6);
    if (num_axes <= 8) {  // the data of 4096 devices would take gigabytes
      Machine machine(mesh, shape, source);
      for (const ReshardMove& move : moves) {
        machine.apply(move);
      }
      CHECK(machine.holds(target, 0, Combine::kSum));
    }
  }
}
