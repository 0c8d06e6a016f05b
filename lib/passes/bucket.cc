#include "passes/bucket.h"

#include <algorithm>
#include <utility>

#include "ir/name_list.h"
#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

bool can_bucket(const Node& node) {
  const std::optional<MoveKind> move = node.op->move;
  return move == MoveKind::kAllReduce || move == MoveKind::kReduceScatter ||
         move == MoveKind::kAllGather;
}

// When the collectives of a bucket run.
enum class Place : uint8_t {
  kLast,      // where the last of them stands
  kDeferred,  // the same, and what reads the results before waits
  kFirst,     // where the first of them stands
};

struct Bucket {
  std::vector<NodeId> members;
  int64_t bytes = 0, result_bytes = 0;
  NodeId first_reader = 0;  // no member may be appended at or after this node
  Place place = Place::kLast;
};

const Node& producer_of_operand(const Graph& graph, const Node& node) {
  return graph.producer(node.inputs[0]);
}

// A gather of a weight as it is stored, or cast: what it needs is there when the step begins.
bool can_be_early(const Graph& graph, const Node& node) {
  if (node.op->move != MoveKind::kAllGather || node.phase == Phase::kUpdate) {
    return false;
  }
  const Node& operand = producer_of_operand(graph, node);
  return operand.op->kind == OpKind::kParameter ||
         (operand.op->kind == OpKind::kCast &&
          producer_of_operand(graph, operand).op->kind == OpKind::kParameter);
}

// The first of the nodes at the end that update variables.
NodeId find_first_update(const Graph& graph) {
  NodeId first = static_cast<NodeId>(graph.nodes.size());
  while (first > 0 && graph.nodes[first - 1].phase == Phase::kUpdate) {
    --first;
  }
  return first;
}

// The first reader of each value. Collectives of the backward phase whose results only the update
// phase reads can wait for each other, and so can casts between them: as a reader, such a node
// counts where its own result is read.
std::vector<NodeId> first_readers(const Graph& graph, NodeId first_update) {
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  std::vector<NodeId> first(graph.values.size(), end);
  for (NodeId n = end; n-- > 0;) {
    const Node& node = graph.nodes[n];
    const bool waits = (node.op->collective || node.op->kind == OpKind::kCast) &&
                       node.phase == Phase::kBackward && first[node.outputs[0]] >= first_update;
    for (const ValueId input : node.inputs) {
      first[input] = std::min(first[input], waits ? first[node.outputs[0]] : n);
    }
  }
  return first;
}

constexpr int64_t kFewBytes = 4096;

// Collectives of a few numbers, as of losses and metrics, that no other collective depends on: what
// reads their results can wait until all of them are there.
std::vector<bool> can_be_late(const Graph& graph, const DeviceMesh& mesh) {
  // By a collective, or for the backward pass.
  std::vector<bool> needed(graph.values.size(), false);
  std::vector<bool> late(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const bool is_needed =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return needed[v]; });
    const Value& operand = graph.values[node.inputs.empty() ? node.outputs[0] : node.inputs[0]];
    late[n] = can_bucket(node) && node.phase == Phase::kForward && !is_needed &&
              local_bytes(operand, mesh) <= kFewBytes;
    if (is_needed || node.op->collective || node.phase != Phase::kForward) {
      for (const ValueId input : node.inputs) {
        needed[input] = true;
      }
    }
  }
  return late;
}

// Nodes that read a collective's result only for the update or the host. Each would delay the nodes
// after it until the collective is complete, so it runs after all of them.
std::vector<bool> can_be_deferred(const Graph& graph, const std::vector<NodeId>& first_reader,
                                  NodeId first_update, const std::vector<bool>& late) {
  std::vector<bool> out(graph.nodes.size(), false);
  for (NodeId n = 0; n < first_update; ++n) {
    const Node& node = graph.nodes[n];
    for (const ValueId input : node.inputs) {
      const NodeId producer = graph.values[input].producer;
      const bool of_late = late[producer] || (out[producer] && node.phase == Phase::kForward);
      const bool of_gradient = node.op->kind == OpKind::kCast && node.phase == Phase::kBackward &&
                               graph.nodes[producer].op->collective &&
                               first_reader[node.outputs[0]] >= first_update;
      out[n] = out[n] || of_late || of_gradient;
    }
  }
  return out;
}

// How many collectives stand directly before each node. Members of a bucket have as many, so that
// no two buckets wait for each other.
std::vector<int> chain_depths(const Graph& graph) {
  std::vector<int> depths(graph.nodes.size(), 0);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!graph.nodes[n].op->collective) {
      continue;
    }
    const NodeId before = graph.values[graph.nodes[n].inputs[0]].producer;
    depths[n] = graph.nodes[before].op->collective ? depths[before] + 1 : 0;
  }
  return depths;
}

// The common properties of a bucket's members.
struct Kind {
  const Node* node;  // one of them: its op, axes, combine and phase
  DType dtype;
  int depth;
  Place place;

  bool operator==(const Kind& other) const {
    return node->op == other.node->op && node->phase == other.node->phase && dtype == other.dtype &&
           depth == other.depth && place == other.place &&
           node->attr_ints("axes") == other.node->attr_ints("axes") &&
           node->attr_string("combine") == other.node->attr_string("combine");
  }
};

// For each node of a bucket with several members, the bucket; the last member emits it.
std::vector<Bucket> find_buckets(const Graph& graph, const DeviceMesh& mesh, int64_t limit,
                                 const std::vector<NodeId>& first_reader, NodeId first_update,
                                 const std::vector<bool>& late) {
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  const std::vector<int> depths = chain_depths(graph);
  std::vector<std::pair<Kind, size_t>> open;  // the bucket of each kind; there are few kinds
  std::vector<Bucket> buckets;
  for (NodeId n = 0; n < end; ++n) {
    const Node& node = graph.nodes[n];
    if (!can_bucket(node)) {
      continue;
    }
    const Value& value = graph.values[node.inputs[0]];
    const bool early = can_be_early(graph, node);
    const NodeId reader = late[n] || early ? end : first_reader[node.outputs[0]];
    const Place place = early                    ? Place::kFirst
                        : reader >= first_update ? Place::kDeferred
                                                 : Place::kLast;
    const Kind kind{&node, value.dtype, depths[n], place};
    const int64_t bytes = local_bytes(value, mesh);
    const int64_t result_bytes = local_bytes(graph.values[node.outputs[0]], mesh);
    auto found = std::find_if(open.begin(), open.end(),
                              [&](const auto& entry) { return entry.first == kind; });
    if (found == open.end()) {
      found = open.insert(open.end(), {kind, buckets.size()});
      buckets.push_back({{}, 0, 0, end, place});
    } else if (buckets[found->second].first_reader <= n ||
               buckets[found->second].bytes + bytes > limit ||
               (early && buckets[found->second].result_bytes + result_bytes > kGatheredBytes)) {
      found->second = buckets.size();
      buckets.push_back({{}, 0, 0, end, place});
    }
    Bucket& bucket = buckets[found->second];
    bucket.members.push_back(n);
    bucket.bytes += bytes;
    bucket.result_bytes += result_bytes;
    bucket.first_reader = std::min(bucket.first_reader, reader);
  }
  return buckets;
}

Node merged(const Graph& graph, const Bucket& bucket) {
  Node out = graph.nodes[bucket.members.back()];
  std::vector<int64_t> dims, to_dims;
  std::vector<std::string> of, causes;
  out.inputs.clear();
  out.outputs.clear();
  for (const NodeId member : bucket.members) {
    const Node& node = graph.nodes[member];
    out.inputs.push_back(node.inputs[0]);
    out.outputs.push_back(node.outputs[0]);
    dims.push_back(node.attr_int("dim"));
    to_dims.push_back(node.attr_int("to_dim"));
    of.push_back(node.attr_string("of"));
    for (const std::string& cause : split_names(node.attr_string("cause"))) {
      if (std::find(causes.begin(), causes.end(), cause) == causes.end()) {
        causes.push_back(cause);
      }
    }
  }
  out.attrs["dims"] = std::move(dims);
  out.attrs["to_dims"] = std::move(to_dims);
  out.attrs["cause"] = name_list(causes);
  out.attrs["of"] = name_list(of);
  out.attrs.erase("dim");
  out.attrs.erase("to_dim");
  return out;
}

// Writes the new graph: each bucket as one node at its place.
class BucketWriter {
 public:
  // Nodes that are `deferred` run before node `first_update`.
  BucketWriter(Graph& graph, std::vector<Bucket> buckets, std::vector<bool> deferred,
               NodeId first_update)
      : graph_(graph),
        buckets_(std::move(buckets)),
        deferred_(std::move(deferred)),
        first_update_(first_update),
        rewriter_(graph),
        bucket_of_(graph.nodes.size(), kNone),
        is_emitted_(graph.nodes.size(), false) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (const NodeId member : buckets_[b].members) {
        bucket_of_[member] = static_cast<int>(b);
      }
    }
  }

  Graph run() {
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      if (n == first_update_) {
        emit_waiting(true);
      }
      const int b = bucket_of_[n];
      const bool is_early = b != kNone && buckets_[b].place == Place::kFirst;
      if (is_early && n == buckets_[b].members.front()) {
        emit_early(b);
      } else if (is_early || is_emitted_[n]) {
        continue;
      } else if (deferred_[n]) {
        waiting_.push_back(std::move(graph_.nodes[n]));
      } else if (b == kNone) {
        emit(graph_.nodes[n]);
      } else if (n == buckets_[b].members.back()) {
        emit_bucket(buckets_[b]);
      }
    }
    emit_waiting(true);
    MESHTRAIN_CHECK(waiting_.empty(), "{} waits for ever", waiting_[0].path);
    return rewriter_.finish();
  }

 private:
  bool is_there(ValueId old_value) const { return rewriter_.mapped(old_value) != kNone; }

  bool emit(Node& node) {
    const bool ready = std::all_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId input) { return is_there(input); });
    ready ? static_cast<void>(rewriter_.move(node)) : waiting_.push_back(std::move(node));
    return ready;
  }

  void emit_bucket(const Bucket& bucket) {
    Node node = bucket.members.size() == 1 ? std::move(graph_.nodes[bucket.members[0]])
                                           : merged(graph_, bucket);
    if (emit(node)) {
      emit_waiting(false);
    }
  }

  // Emits nodes that waited for a complete bucket: its collectives, or `all` nodes.
  void emit_waiting(bool all) {
    for (bool progress = true; progress && !waiting_.empty();) {
      progress = false;
      for (Node& node : std::exchange(waiting_, {})) {
        if (all || node.op->collective) {
          progress = emit(node) || progress;
        } else {
          waiting_.push_back(std::move(node));
        }
      }
    }
  }

  // Weights of this bucket are needed now, those of the next one soon: its gathers are under way
  // while these are used.
  void emit_early(int b) {
    const auto is_early = [](const Bucket& bucket) { return bucket.place == Place::kFirst; };
    auto at = buckets_.begin() + b;
    for (int ahead = 0; ahead < 2 && at != buckets_.end(); ++ahead) {
      const Bucket& bucket = *at;
      at = std::find_if(at + 1, buckets_.end(), is_early);
      if (is_emitted_[bucket.members[0]]) {
        continue;
      }
      for (const NodeId member : bucket.members) {
        make_operand(graph_.nodes[member].inputs[0]);
      }
      is_emitted_[bucket.members[0]] = true;
      emit_bucket(bucket);
    }
  }

  // A weight or a cast of it, before its turn.
  void make_operand(ValueId value) {
    if (is_there(value)) {
      return;
    }
    const NodeId n = graph_.values[value].producer;
    for (const ValueId input : graph_.nodes[n].inputs) {
      make_operand(input);
    }
    is_emitted_[n] = true;
    rewriter_.move(graph_.nodes[n]);
  }

  Graph& graph_;
  std::vector<Bucket> buckets_;  // in the order of their first members
  std::vector<bool> deferred_;
  NodeId first_update_;
  Rewriter rewriter_;
  std::vector<int> bucket_of_;
  std::vector<bool> is_emitted_;  // before its turn
  std::vector<Node> waiting_;     // for the results of a bucket that is not complete yet
};

}  // namespace

int64_t local_bytes(const Value& value, const DeviceMesh& mesh) {
  return num_elements(local_shape(value.shape, *value.sharding, mesh)) *
         static_cast<int64_t>(dtype_size(value.dtype));
}

Graph bucket_collectives(Graph graph, const DeviceMesh& mesh, int64_t bucket_bytes) {
  const NodeId first_update = find_first_update(graph);
  const std::vector<NodeId> first_reader = first_readers(graph, first_update);
  const std::vector<bool> late = can_be_late(graph, mesh);
  std::vector<bool> deferred = can_be_deferred(graph, first_reader, first_update, late);
  std::vector<Bucket> buckets =
      find_buckets(graph, mesh, bucket_bytes, first_reader, first_update, late);
  std::erase_if(buckets, [](const Bucket& bucket) {
    return bucket.members.size() == 1 && bucket.place != Place::kFirst;
  });
  const bool any =
      !buckets.empty() || std::find(deferred.begin(), deferred.end(), true) != deferred.end();
  return any ? BucketWriter(graph, std::move(buckets), std::move(deferred), first_update).run()
             : graph;
}

}  // namespace meshtrain
