#include "passes/bucket.h"

#include <algorithm>
#include <map>
#include <tuple>

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

// For each node of a bucket with several members, the bucket; the last member emits it.
std::vector<Bucket> find_buckets(const Graph& graph, const DeviceMesh& mesh, int64_t limit) {
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  std::vector<NodeId> first_reader(graph.values.size(), end);
  for (NodeId n = end; n-- > 0;) {
    for (const ValueId input : graph.nodes[n].inputs) {
      first_reader[input] = n;
    }
  }
  using Key = std::tuple<std::string_view, std::vector<int64_t>, std::string, DType, Phase>;
  std::map<Key, size_t> open;
  std::vector<Bucket> buckets;
  for (NodeId n = 0; n < end; ++n) {
    const Node& node = graph.nodes[n];
    if (!can_bucket(node)) {
      continue;
    }
    const Value& value = graph.values[node.inputs[0]];
    const Key key{node.op->name, node.attr_ints("axes"), node.attr_string("combine"), value.dtype,
                  node.phase};
    const int64_t bytes = num_elements(local_shape(value.shape, *value.sharding, mesh)) *
                          static_cast<int64_t>(dtype_size(value.dtype));
    const auto found = open.find(key);
    const bool joins = found != open.end() && buckets[found->second].first_reader > n &&
                       buckets[found->second].bytes + bytes <= limit;
    if (!joins) {
      open[key] = buckets.size();
      buckets.push_back({{}, 0, end});
    }
    Bucket& bucket = buckets[open[key]];
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

Graph bucket_collectives(const Graph& graph, const DeviceMesh& mesh, int64_t bucket_bytes) {
  std::vector<int> bucket_of(graph.nodes.size(), kNone);
  const std::vector<Bucket> buckets = find_buckets(graph, mesh, bucket_bytes);
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].members.size() > 1) {
      for (const NodeId member : buckets[b].members) {
        bucket_of[member] = static_cast<int>(b);
      }
    }
  }
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    if (bucket_of[n] == kNone) {
      rewriter.copy(graph.nodes[n]);
    } else if (n == buckets[bucket_of[n]].members.back()) {
      rewriter.copy(merged(graph, buckets[bucket_of[n]]));
    }
  }
  return rewriter.finish();
}

}  // namespace meshtrain
