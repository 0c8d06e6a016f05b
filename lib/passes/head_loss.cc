#include "passes/head_loss.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

// A head, its gradient (kNone without one), and how many devices share its classes.
struct Head {
  NodeId forward = kNone, gradient = kNone;
  int64_t blocks = 1;
};

// Shards of the classes of the table, which is a variable as it is used, perhaps cast.
int64_t blocks_of(const Graph& graph, const Node& head, const DeviceMesh& mesh) {
  ValueId table = head.inputs[1];
  while (graph.producer(table).op->kind == OpKind::kCast) {
    table = graph.producer(table).inputs[0];
  }
  const Node& use = graph.producer(table);
  if (use.op->kind != OpKind::kVarUse) {
    return 1;
  }
  const int64_t variable = graph.producer(use.inputs[0]).attr_int("variable");
  const DimAxes& dims = graph.variables[static_cast<size_t>(variable)].layout.compute.dims;
  const size_t dim = head.attr_int("transposed") != 0 ? 1 : 0;
  int64_t blocks = 1;
  for (size_t i = 0; dim < dims.size() && i < dims[dim].size(); ++i) {
    blocks *= mesh.axis_size(dims[dim][i]);
  }
  return blocks;
}

std::vector<Head> find_heads(const Graph& graph, const DeviceMesh& mesh) {
  const OpDef *forward = &find_op("linear_cross_entropy"),
              *gradient = &find_op("linear_cross_entropy_grad");
  std::vector<Head> heads;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op == forward) {
      heads.push_back({n, kNone, blocks_of(graph, node, mesh)});
    } else if (node.op == gradient) {
      for (Head& head : heads) {
        const ValueList& inputs = graph.nodes[head.forward].inputs;
        if (std::equal(inputs.begin(), inputs.end(), node.inputs.begin())) {
          head.gradient = n;
        }
      }
    }
  }
  return heads;
}

class HeadPlacer {
 public:
  HeadPlacer(Graph& graph, std::vector<Head> heads)
      : graph_(graph),
        heads_(std::move(heads)),
        head_of_(graph.nodes.size(), nullptr),
        is_placed_(graph.nodes.size(), false),
        rewriter_(graph) {
    for (const Value& value : graph.values) {
      producers_.push_back(value.producer);
    }
    for (Head& head : heads_) {
      head_of_[head.forward] = &head;
      if (head.gradient != kNone && head.blocks > 1) {
        head_of_[head.gradient] = &head;
      }
    }
  }

  Graph run() {
    for (NodeId n = 0; n < static_cast<NodeId>(is_placed_.size()); ++n) {
      if (is_placed_[n]) {
        continue;
      }
      const Head* head = head_of_[n];
      if (head == nullptr) {
        move(n);
      } else if (head->blocks == 1) {
        if (head->gradient == kNone || !place_gradient_first(*head)) {
          move(n);
        }
      } else if (n == head->forward) {
        place_parts(*head);
      } else {
        place_parts_gradient(*head);
      }
    }
    return rewriter_.finish();
  }

 private:
  void move(NodeId n) {
    rewriter_.move(graph_.nodes[n]);
    is_placed_[n] = true;
  }

  // The nodes behind `head` that the weights of its gradient depend on, in order; nothing when they
  // depend on the head itself.
  std::optional<std::vector<NodeId>> needed_by_weights(const Head& head) {
    std::vector<NodeId> needed;
    std::vector<NodeId> next = {producers_[graph_.nodes[head.gradient].inputs[3]]};
    std::vector<bool> seen(is_placed_.size(), false);
    while (!next.empty()) {
      const NodeId n = next.back();
      next.pop_back();
      if (is_placed_[n] || seen[n]) {
        continue;
      }
      if (n == head.forward) {
        return std::nullopt;
      }
      seen[n] = true;
      needed.push_back(n);
      for (const ValueId input : graph_.nodes[n].inputs) {
        next.push_back(producers_[input]);
      }
    }
    std::sort(needed.begin(), needed.end());
    return needed;
  }

  // The gradient has the results of the forward op: it takes its place.
  bool place_gradient_first(const Head& head) {
    const auto needed = needed_by_weights(head);
    if (!needed) {
      return false;
    }
    for (const NodeId n : *needed) {
      for (const ValueId output : graph_.nodes[n].outputs) {
        graph_.values[output].cotangent_of = kNone;  // that value is now behind it
      }
      move(n);
    }
    Node& forward = graph_.nodes[head.forward];
    Node& gradient = graph_.nodes[head.gradient];
    gradient.path = forward.path;
    gradient.phase = forward.phase;
    const ValueList results = gradient.outputs;
    move(head.gradient);
    for (size_t r = 0; r < forward.outputs.size(); ++r) {
      rewriter_.map(forward.outputs[r], rewriter_.mapped(results[r]));
    }
    is_placed_[head.forward] = true;
    return true;
  }

  ValueList mapped(const ValueList& values) const {
    ValueList out;
    for (const ValueId value : values) {
      out.push_back(rewriter_.mapped(value));
    }
    return out;
  }

  // The loss from what each block of classes has.
  void place_parts(const Head& head) {
    const Node& node = graph_.nodes[head.forward];
    Builder b(rewriter_.to());
    b.set_scope_path(node.path);
    const ValueList inputs = mapped(node.inputs);
    Attrs attrs = node.attrs;
    attrs["blocks"] = head.blocks;
    const ValueList parts = b.add_node("linear_cross_entropy_parts", inputs, std::move(attrs));
    const ValueId largest = b.reduce_max(parts[0], {0});
    const DType dtype = b.dtype(largest);
    const ValueId scaled = b.mul(parts[1], b.exp(b.sub(parts[0], largest)));
    const ValueId first = b.mul(parts[3], b.cast(b.binary("eq", parts[0], largest), dtype));
    const ValueId all = b.reduce_sum(
        b.concat({b.expand_dims(scaled, 1), b.expand_dims(parts[2], 1), b.expand_dims(first, 1)},
                 1),
        {0});
    const auto sum = [&](int64_t i) { return b.squeeze(b.slice(all, 0, i, i + 1), 0); };
    const ValueId log_sum = b.log(sum(0));
    const ValueId ids = inputs[2];
    const int64_t classes = node.has_attr("classes")
                                ? node.attr_int("classes")
                                : b.shape(inputs[1])[node.attr_int("transposed") != 0 ? 1 : 0];
    const ValueId is_class =
        b.binary("logical_and", b.binary("ge", ids, b.constant(0, DType::kInt32)),
                 b.binary("lt", ids, b.constant(static_cast<double>(classes), DType::kInt32)));
    const ValueId loss = b.sub(log_sum, b.sub(sum(1), largest));
    rewriter_.map(node.outputs[0], b.select(is_class, loss, b.constant(0, dtype)));
    rewriter_.map(node.outputs[1], b.cast(b.binary("eq", sum(2), b.constant(1, dtype)), dtype));
    lse_.emplace_back(&head, b.add(largest, log_sum));
    is_placed_[head.forward] = true;
  }

  void place_parts_gradient(const Head& head) {
    const Node& node = graph_.nodes[head.gradient];
    Builder b(rewriter_.to());
    b.set_scope_path(node.path);
    b.set_phase(node.phase);
    ValueList inputs = mapped(node.inputs);
    const auto lse = std::find_if(lse_.begin(), lse_.end(),
                                  [&](const auto& entry) { return entry.first == &head; });
    inputs.push_back(lse->second);
    const ValueList results =
        b.add_node("linear_cross_entropy_parts_grad", std::move(inputs), node.attrs);
    const ValueList& forward = graph_.nodes[head.forward].outputs;
    for (size_t r = 0; r < 2; ++r) {
      rewriter_.map(node.outputs[r], rewriter_.mapped(forward[r]));
      const ValueId old_value = node.outputs[2 + r];
      rewriter_.to().values[results[r]].cotangent_of = graph_.values[old_value].cotangent_of;
      rewriter_.map(old_value, results[r]);
    }
    is_placed_[head.gradient] = true;
  }

  Graph& graph_;
  std::vector<Head> heads_;
  std::vector<const Head*> head_of_;  // by node
  std::vector<NodeId> producers_;     // by value, which moving empties
  std::vector<bool> is_placed_;
  Rewriter rewriter_;
  std::vector<std::pair<const Head*, ValueId>> lse_;  // in the new graph
};

}  // namespace

Graph place_head_losses(Graph graph, const DeviceMesh& mesh) {
  std::vector<Head> heads = find_heads(graph, mesh);
  if (heads.empty()) {
    return graph;
  }
  Graph placed = HeadPlacer(graph, std::move(heads)).run();
  remove_dead(placed);  // hits, where nothing asks for them
  return placed;
}

}  // namespace meshtrain
