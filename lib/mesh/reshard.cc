// Dijkstra over shardings. A state is where every involved axis is; the moves offered from a state
// are those that can be part of a cheapest plan, so a search visits tens of states, not thousands:
// only axes of the source or the target take part, a dimension that already begins as the target
// wants is never undone, and an axis is brought where the target has it (or, with few axes, parked
// on another dimension). Reference: Zhuang et al., "On Optimizing the Communication of Model
// Parallelism" (MLSys 2023) for the problem; the moves are those of reshard.h.
#include "mesh/reshard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace meshtrain {

std::string_view move_name(MoveKind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "all_gather", "slice", "all_to_all", "reduce_scatter", "all_reduce", "permute"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t bytes_sent(MoveKind kind, int64_t bytes, int64_t n) {
  switch (kind) {
    case MoveKind::kSlice:
      return 0;
    case MoveKind::kAllGather:
      return (n - 1) * bytes;
    case MoveKind::kAllToAll:
    case MoveKind::kReduceScatter:
      return (n - 1) * bytes / n;
    case MoveKind::kAllReduce:
      return 2 * (n - 1) * bytes / n;
    case MoveKind::kPermute:
      return bytes;
  }
  return 0;
}

namespace {

void reduce(Sharding& state, AxisMask axes) {
  state.partial &= ~axes;
  if (state.partial == 0) {
    state.combine = Combine::kSum;
  }
}

}  // namespace

const char* apply_move(Sharding& state, MoveKind kind, const AxisList& axes, int dim, int to_dim,
                       const DeviceMesh& mesh) {
  const AxisMask mask = mask_of(axes);
  if (kind == MoveKind::kAllReduce || kind == MoveKind::kReduceScatter) {
    if ((state.partial & mask) != mask) {
      return "is not partial so";
    }
    reduce(state, mask);
  }
  if (kind == MoveKind::kAllGather || kind == MoveKind::kAllToAll) {
    AxisList& list = state.dims[dim];
    if (list.size() < axes.size() || !std::equal(axes.rbegin(), axes.rend(), list.rbegin())) {
      return "does not end in these axes";
    }
    list.resize(list.size() - axes.size());
  }
  if (kind == MoveKind::kPermute) {
    if (mesh.size_of(state.dims[dim]) != mesh.size_of(axes)) {
      return "has another number of shards";
    }
    state.dims[dim] = axes;
  } else if (kind != MoveKind::kAllReduce && kind != MoveKind::kAllGather) {
    AxisList& list = state.dims[kind == MoveKind::kAllToAll ? to_dim : dim];
    list.insert(list.end(), axes.begin(), axes.end());
  }
  return nullptr;
}

int64_t bytes_sent(const ReshardMove& move, const Sharding& source, const Shape& shape, DType dtype,
                   const DeviceMesh& mesh) {
  const int64_t bytes =
      num_elements(local_shape(shape, source, mesh)) * static_cast<int64_t>(dtype_size(dtype));
  return bytes_sent(move.kind, bytes, mesh.size_of(move.axes));
}

namespace {

// With more axes than this on the move, parking on a third dimension is no longer tried.
constexpr int kMaxAxesToPark = 4;
// A longer plan is taken only where it is the only one below the plain plan's cost: every move has
// temporaries and waiting of its own that the cost model does not know.
constexpr size_t kMaxMoves = 4;
// States looked at before the plain plan (reduce, gather, slice) is taken; never reached with up to
// six axes that change place.
constexpr size_t kMaxStates = 20000;

bool holds(AxisMask mask, int axis) {
  return (mask & axis_bit(axis)) != 0;
}

size_t common_prefix(const AxisList& a, const AxisList& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

void append_bytes(std::string& key, const Sharding& sharding) {
  for (const AxisList& axes : sharding.dims) {
    for (const int axis : axes) {
      key += static_cast<char>(axis);
    }
    key += '\x7f';
  }
  key.append(reinterpret_cast<const char*>(&sharding.partial), sizeof(sharding.partial));
}

class Planner {
 public:
  Planner(const Sharding& source, const Sharding& target, const Shape& shape, DType dtype,
          const DeviceMesh& mesh, const ReshardCost& cost)
      : target_(target), shape_(shape), dtype_(dtype), mesh_(mesh), cost_(cost) {
    start_ = source;
    for (const AxisList& axes : target.dims) {
      target_axes_.push_back(mask_of(axes));
      target_dim_axes_ |= target_axes_.back();
    }
    AxisMask changed = source.partial & ~target.partial;
    for (size_t d = 0; d < target.dims.size(); ++d) {
      const size_t same = common_prefix(source.dims[d], target.dims[d]);
      changed |= mask_of({source.dims[d].begin() + same, source.dims[d].end()}) |
                 mask_of({target.dims[d].begin() + same, target.dims[d].end()});
    }
    may_park_ = std::popcount(changed) <= kMaxAxesToPark;
  }

  std::vector<ReshardMove> plan() {
    std::vector<ReshardMove> best = search(0);
    if (best.size() <= kMaxMoves) {
      return best;
    }
    const std::vector<ReshardMove> plain = plain_plan();
    std::vector<ReshardMove> shorter = nodes_.size() < kMaxStates ? search(kMaxMoves) : plain;
    return shorter.size() <= kMaxMoves && total_cost(shorter) <= total_cost(plain) ? shorter : best;
  }

 private:
  struct Node {
    Sharding state;
    double cost = 0;
    int length = 0;
    int parent = -1;
    ReshardMove move;
    bool done = false;
  };
  struct Entry {
    double cost;
    int length;
    int node;
    // Cheapest first, then fewest moves, then first found: the same plan everywhere.
    bool operator>(const Entry& other) const {
      return std::tie(cost, length, node) > std::tie(other.cost, other.length, other.node);
    }
  };

  // The cheapest plan of at most `max_length` moves (0: of any length); the plain plan when there
  // is none or the search grows too large.
  std::vector<ReshardMove> search(size_t max_length) {
    max_length_ = max_length;
    nodes_.clear();
    index_.clear();
    queue_ = {};
    reach(start_, 0, 0, -1, {});
    while (!queue_.empty() && nodes_.size() < kMaxStates) {
      const Entry entry = queue_.top();
      queue_.pop();
      Node& node = nodes_[entry.node];
      if (node.done) {
        continue;
      }
      node.done = true;
      if (node.state == target_) {
        return moves_to(entry.node);
      }
      if (max_length == 0 || node.length < static_cast<int>(max_length)) {
        expand(entry.node);
      }
    }
    return plain_plan();
  }

  std::vector<ReshardMove> moves_to(int node) const {
    std::vector<ReshardMove> moves;
    for (; nodes_[node].parent >= 0; node = nodes_[node].parent) {
      moves.push_back(nodes_[node].move);
    }
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

  void reach(Sharding state, double cost, int length, int parent, ReshardMove move) {
    std::string key;
    append_bytes(key, state);
    if (max_length_ > 0) {  // a dearer way here with fewer moves must not be forgotten
      key += static_cast<char>(length);
    }
    const auto [found, is_new] =
        index_.try_emplace(std::move(key), static_cast<int>(nodes_.size()));
    if (is_new) {
      nodes_.push_back({std::move(state), cost, length, parent, std::move(move), false});
    } else {
      Node& node = nodes_[found->second];
      if (node.done || std::tie(node.cost, node.length) <= std::tie(cost, length)) {
        return;
      }
      node.cost = cost;
      node.length = length;
      node.parent = parent;
      node.move = std::move(move);
    }
    queue_.push({cost, length, found->second});
  }

  double cost_of(const ReshardMove& move, const Sharding& state) const {
    return move.kind == MoveKind::kSlice
               ? 0
               : cost_.alpha + cost_.beta * static_cast<double>(
                                                bytes_sent(move, state, shape_, dtype_, mesh_));
  }
  double total_cost(const std::vector<ReshardMove>& moves) const {
    double total = 0;
    for (size_t i = 0; i < moves.size(); ++i) {
      total += cost_of(moves[i], i == 0 ? start_ : moves[i - 1].result);
    }
    return total;
  }

  // `move` from the node that is being expanded, its result filled in.
  void offer(int from, ReshardMove move) {
    const Node& node = nodes_[from];
    const double step = cost_of(move, node.state);
    Sharding state = move.result;
    reach(std::move(state), node.cost + step, node.length + 1, from, std::move(move));
  }

  bool divides(const Sharding& state, int dim) const {
    return shape_[dim] % mesh_.size_of(state.dims[dim]) == 0;
  }

  void expand(int from) {
    const Sharding state = nodes_[from].state;  // a copy: `nodes_` grows below
    const AxisMask partial = state.partial & ~target_.partial;
    offer_all_reduce(from, state, partial & ~target_dim_axes_);
    for (int d = 0; d < static_cast<int>(shape_.size()); ++d) {
      offer_appends(from, state, MoveKind::kReduceScatter, partial & target_axes_[d], d);
      offer_appends(from, state, MoveKind::kSlice, target_axes_[d] & ~state.used_axes(), d);
      offer_permutes(from, state, d);
      const size_t same = common_prefix(state.dims[d], target_.dims[d]);
      for (size_t keep = same; keep < state.dims[d].size(); ++keep) {
        offer_all_gather(from, state, d, keep);
        offer_all_to_alls(from, state, d, keep);
      }
    }
  }

  // All axes that only need reducing, at once: in parts it costs the same bytes and more latency.
  // Axes that the target splits are left to reduce_scatter.
  void offer_all_reduce(int from, const Sharding& state, AxisMask axes) {
    if (axes == 0) {
      return;
    }
    ReshardMove move{MoveKind::kAllReduce, {}, -1, -1, state};
    for (AxisMask rest = axes; rest != 0; rest &= rest - 1) {
      move.axes.push_back(std::countr_zero(rest));
    }
    reduce(move.result, axes);
    offer(from, std::move(move));
  }

  // Runs of the target's axes of this dimension that are all in `axes`: partial ones are scattered
  // to it, free ones sliced.
  void offer_appends(int from, const Sharding& state, MoveKind kind, AxisMask axes, int d) {
    const AxisList& wanted = target_.dims[d];
    for (size_t begin = 0; begin < wanted.size() && axes != 0; ++begin) {
      ReshardMove move{kind, {}, d, -1, state};
      for (size_t i = begin; i < wanted.size() && holds(axes, wanted[i]); ++i) {
        move.axes.push_back(wanted[i]);
        move.result.dims[d].push_back(wanted[i]);
        reduce(move.result, axis_bit(wanted[i]));
        if (divides(move.result, d)) {
          offer(from, move);
        }
      }
    }
  }

  void offer_all_gather(int from, const Sharding& state, int d, size_t keep) {
    ReshardMove move{MoveKind::kAllGather, {}, d, -1, state};
    AxisList& axes = move.result.dims[d];
    move.axes.assign(axes.begin() + keep, axes.end());
    axes.resize(keep);
    offer(from, std::move(move));
  }

  void offer_all_to_alls(int from, const Sharding& state, int d, size_t keep) {
    const AxisList moved(state.dims[d].begin() + keep, state.dims[d].end());
    const AxisMask mask = mask_of(moved);
    for (int to = 0; to < static_cast<int>(shape_.size()); ++to) {
      if (to == d || (!may_park_ && (mask & ~target_axes_[to]) != 0)) {
        continue;
      }
      ReshardMove move{MoveKind::kAllToAll, moved, d, to, state};
      move.result.dims[d].resize(keep);
      move.result.dims[to].insert(move.result.dims[to].end(), moved.begin(), moved.end());
      if (divides(move.result, to)) {
        offer(from, std::move(move));
      }
    }
  }

  void offer_permutes(int from, const Sharding& state, int d) {
    const AxisList& have = state.dims[d];
    const AxisList& wanted = target_.dims[d];
    if (have.empty() || wanted.empty() || have == wanted) {
      return;
    }
    const AxisMask own = mask_of(have);
    const AxisMask available = ~state.used_axes() | own;
    // Straight to the target's list.
    if ((target_axes_[d] & ~available) == 0 && mesh_.size_of(have) == mesh_.size_of(wanted)) {
      offer_permute(from, state, d, wanted);
    }
    // The wanted axes to the front in the wanted order; the others can then leave from the end.
    AxisList sorted;
    std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(sorted),
                 [&](int axis) { return holds(own, axis); });
    std::copy_if(have.begin(), have.end(), std::back_inserter(sorted),
                 [&](int axis) { return !holds(target_axes_[d], axis); });
    if (sorted != have) {
      offer_permute(from, state, d, std::move(sorted));
    }
    // Single axes replaced by free ones of their size.
    for (size_t i = 0; i < std::min(have.size(), wanted.size()); ++i) {
      if (have[i] != wanted[i] && !holds(state.used_axes(), wanted[i]) &&
          mesh_.axis_size(have[i]) == mesh_.axis_size(wanted[i])) {
        AxisList replaced = have;
        replaced[i] = wanted[i];
        offer_permute(from, state, d, std::move(replaced));
      }
    }
  }

  // The devices that exchange shards differ in the axes of the old and the new list after their
  // common beginning.
  void offer_permute(int from, const Sharding& state, int d, AxisList list) {
    ReshardMove move{MoveKind::kPermute, {}, d, -1, state};
    const AxisList& old = state.dims[d];
    const size_t same = common_prefix(old, list);
    move.axes.assign(old.begin() + same, old.end());
    for (size_t i = same; i < list.size(); ++i) {
      if (std::find(move.axes.begin(), move.axes.end(), list[i]) == move.axes.end()) {
        move.axes.push_back(list[i]);
      }
    }
    move.result.dims[d] = std::move(list);
    offer(from, std::move(move));
  }

  // Reduces everything, gathers every dimension that differs, slices: right whatever the sizes.
  std::vector<ReshardMove> plain_plan() const {
    std::vector<ReshardMove> moves;
    Sharding state = start_;
    const auto step = [&](MoveKind kind, AxisList axes, int d) {
      moves.push_back({kind, std::move(axes), d, -1, state});
    };
    AxisList partial;
    for (AxisMask rest = start_.partial & ~target_.partial; rest != 0; rest &= rest - 1) {
      partial.push_back(std::countr_zero(rest));
    }
    if (!partial.empty()) {
      reduce(state, mask_of(partial));
      step(MoveKind::kAllReduce, partial, -1);
    }
    for (size_t d = 0; d < shape_.size(); ++d) {
      const size_t same = common_prefix(state.dims[d], target_.dims[d]);
      AxisList gathered(state.dims[d].begin() + same, state.dims[d].end());
      if (!gathered.empty()) {
        state.dims[d].resize(same);
        step(MoveKind::kAllGather, std::move(gathered), static_cast<int>(d));
      }
    }
    for (size_t d = 0; d < shape_.size(); ++d) {
      AxisList sliced(target_.dims[d].begin() + state.dims[d].size(), target_.dims[d].end());
      if (!sliced.empty()) {
        state.dims[d] = target_.dims[d];
        step(MoveKind::kSlice, std::move(sliced), static_cast<int>(d));
      }
    }
    return moves;
  }

  Sharding start_;
  const Sharding& target_;
  const Shape& shape_;
  DType dtype_;
  const DeviceMesh& mesh_;
  ReshardCost cost_;
  std::vector<AxisMask> target_axes_;  // per dimension
  AxisMask target_dim_axes_ = 0;
  bool may_park_ = false;
  size_t max_length_ = 0;
  std::deque<Node> nodes_;
  std::unordered_map<std::string, int> index_;  // only looked up, never iterated
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

std::string memo_key(const Sharding& source, const Sharding& target, const Shape& shape,
                     DType dtype, const DeviceMesh& mesh, const ReshardCost& cost) {
  std::string key = {static_cast<char>(shape.size()), static_cast<char>(mesh.num_axes())};
  append_bytes(key, source);
  append_bytes(key, target);
  key += static_cast<char>(source.combine);
  key += static_cast<char>(dtype);
  const auto add = [&key](auto value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const int64_t size : shape) {
    add(size);
  }
  for (const MeshAxis& axis : mesh.axes()) {
    add(axis.size);
  }
  add(cost.alpha);
  add(cost.beta);
  return key;
}

}  // namespace

std::vector<ReshardMove> plan_reshard(const Sharding& source, const Sharding& target,
                                      const Shape& shape, DType dtype, const DeviceMesh& mesh,
                                      const ReshardCost& cost) {
  if (source == target) {
    return {};
  }
  const Sharding from = normalized(source, mesh);
  const Sharding to = normalized(target, mesh);
  check_sharding(from, shape, mesh);
  check_sharding(to, shape, mesh);
  MESHTRAIN_CHECK((to.partial & ~from.partial) == 0, "{} to {}", sharding_string(source, mesh),
                  sharding_string(target, mesh));
  MESHTRAIN_CHECK(to.partial == 0 || to.combine == from.combine, "{} to {}",
                  sharding_string(source, mesh), sharding_string(target, mesh));
  // A model has few distinct reshards; the bound is only against a caller that makes up many.
  constexpr size_t kMaxMemo = 8192;
  thread_local std::unordered_map<std::string, std::vector<ReshardMove>> memo;
  std::string key = memo_key(from, to, shape, dtype, mesh, cost);
  if (const auto found = memo.find(key); found != memo.end()) {
    return found->second;
  }
  if (memo.size() >= kMaxMemo) {
    memo.clear();
  }
  std::vector<ReshardMove> plan = Planner(from, to, shape, dtype, mesh, cost).plan();
  memo.emplace(std::move(key), plan);
  return plan;
}

}  // namespace meshtrain
