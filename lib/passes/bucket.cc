#include "passes/bucket.h"

#include <algorithm>
#include <utility>

#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

bool can_bucket(const Node& node) {
  const std::string_view op = node.op->name;
  return op == "all_reduce" || op == "reduce_scatter" || op == "all_gather";
}

struct Bucket {
  std::vector<NodeId> members;
  int64_t bytes = 0;
  NodeId first_reader = 0;  // no member may be appended at or after this node
};

// The first of the nodes at the end that update variables.
NodeId find_first_update(const Graph& graph) {
  NodeId first = static_cast<NodeId>(graph.nodes.size());
  while (first > 0 && graph.nodes[first - 1].phase == Phase::kUpdate) {
    --first;
  }
  return first;
}

// The first reader of each value. Collectives of the backward phase whose results only the update
// phase reads can wait for each other: as a reader, such a collective counts where its own result
// is read.
std::vector<NodeId> first_readers(const Graph& graph, NodeId first_update) {
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  std::vector<NodeId> first(graph.values.size(), end);
  for (NodeId n = end; n-- > 0;) {
    const Node& node = graph.nodes[n];
    const bool waits = node.op->collective && node.phase == Phase::kBackward &&
                       first[node.outputs[0]] >= first_update;
    for (const ValueId input : node.inputs) {
      first[input] = std::min(first[input], waits ? first[node.outputs[0]] : n);
    }
  }
  return first;
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

// What the members of a bucket have in common.
struct Kind {
  const Node* node;  // one of them: its op, axes, combine and phase
  DType dtype;
  int depth;
  bool can_wait;

  bool operator==(const Kind& other) const {
    return node->op == other.node->op && node->phase == other.node->phase && dtype == other.dtype &&
           depth == other.depth && can_wait == other.can_wait &&
           node->attr_ints("axes") == other.node->attr_ints("axes") &&
           node->attr_string("combine") == other.node->attr_string("combine");
  }
};

// For each node of a bucket with several members, the bucket; the last member emits it.
std::vector<Bucket> find_buckets(const Graph& graph, const DeviceMesh& mesh, int64_t limit) {
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  const NodeId first_update = find_first_update(graph);
  const std::vector<NodeId> first_reader = first_readers(graph, first_update);
  const std::vector<int> depths = chain_depths(graph);
  std::vector<std::pair<Kind, size_t>> open;  // the bucket of each kind; there are few kinds
  std::vector<Bucket> buckets;
  for (NodeId n = 0; n < end; ++n) {
    const Node& node = graph.nodes[n];
    if (!can_bucket(node)) {
      continue;
    }
    const Value& value = graph.values[node.inputs[0]];
    const bool can_wait = first_reader[node.outputs[0]] >= first_update;
    const Kind kind{&node, value.dtype, depths[n], can_wait};
    const int64_t bytes = num_elements(local_shape(value.shape, *value.sharding, mesh)) *
                          static_cast<int64_t>(dtype_size(value.dtype));
    auto found = std::find_if(open.begin(), open.end(),
                              [&](const auto& entry) { return entry.first == kind; });
    if (found == open.end()) {
      found = open.insert(open.end(), {kind, buckets.size()});
      buckets.push_back({{}, 0, end});
    } else if (buckets[found->second].first_reader <= n ||
               buckets[found->second].bytes + bytes > limit) {
      found->second = buckets.size();
      buckets.push_back({{}, 0, end});
    }
    Bucket& bucket = buckets[found->second];
    bucket.members.push_back(n);
    bucket.bytes += bytes;
    bucket.first_reader = std::min(bucket.first_reader, first_reader[node.outputs[0]]);
  }
  return buckets;
}

Node merged(const Graph& graph, const Bucket& bucket) {
  Node out = graph.nodes[bucket.members.back()];
  std::vector<int64_t> dims, to_dims;
  std::string cause;
  out.inputs.clear();
  out.outputs.clear();
  for (const NodeId member : bucket.members) {
    const Node& node = graph.nodes[member];
    out.inputs.push_back(node.inputs[0]);
    out.outputs.push_back(node.outputs[0]);
    dims.push_back(node.attr_int("dim"));
    to_dims.push_back(node.attr_int("to_dim"));
    cause += (cause.empty() ? "" : ", ") + node.attr_string("cause");
  }
  out.attrs["dims"] = std::move(dims);
  out.attrs["to_dims"] = std::move(to_dims);
  out.attrs["cause"] = std::move(cause);
  out.attrs.erase("dim");
  out.attrs.erase("to_dim");
  return out;
}

}  // namespace

Graph bucket_collectives(Graph graph, const DeviceMesh& mesh, int64_t bucket_bytes) {
  std::vector<int> bucket_of(graph.nodes.size(), kNone);
  const std::vector<Bucket> buckets = find_buckets(graph, mesh, bucket_bytes);
  bool any = false;
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].members.size() > 1) {
      any = true;
      for (const NodeId member : buckets[b].members) {
        bucket_of[member] = static_cast<int>(b);
      }
    }
  }
  if (!any) {
    return graph;
  }
  Rewriter rewriter(graph);
  std::vector<Node> waiting;  // for the results of a bucket that is not complete yet
  const auto emit = [&](Node& node) {
    const bool ready = std::all_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId input) { return rewriter.mapped(input) != kNone; });
    ready ? static_cast<void>(rewriter.move(node)) : waiting.push_back(std::move(node));
    return ready;
  };
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    if (bucket_of[n] == kNone) {
      emit(graph.nodes[n]);
    } else if (n == buckets[bucket_of[n]].members.back()) {
      Node bucket = merged(graph, buckets[bucket_of[n]]);
      for (bool progress = emit(bucket); progress && !waiting.empty();) {
        progress = false;
        for (Node& node : std::exchange(waiting, {})) {
          progress = emit(node) || progress;
        }
      }
    }
  }
  MESHTRAIN_CHECK(waiting.empty(), "{} waits for ever", waiting[0].path);
  return rewriter.finish();
}

}  // namespace meshtrain
