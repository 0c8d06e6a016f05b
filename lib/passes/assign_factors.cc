#include "passes/assign_factors.h"

#include <algorithm>

namespace meshtrain {
namespace {

// Factor `factor` split by `axes`, as some tensor of the node has it.
struct Candidate {
  int factor;
  AxisList axes;
  bool from_weight;
  int64_t bytes;  // of the tensors that have it so
};
using Candidates = SmallVector<Candidate, 8>;

Candidates candidates(const Graph& graph, const Node& node, const ShardingRule& rule,
                      const std::vector<bool>& is_weight, const DeviceMesh& mesh) {
  Candidates out;
  const auto add = [&](ValueId value, const TensorFactors& factors) {
    const Value& v = graph.values[value];
    if (v.sharding->is_replicated()) {
      return;
    }
    const Projection projection = project(factors, v.sharding->dims, rule, mesh);
    const int64_t bytes = num_elements(v.shape) * static_cast<int64_t>(dtype_size(v.dtype));
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (projection.axes[f].empty() || rule.factors[f].kind == FactorKind::kGather) {
        continue;
      }
      const auto same = std::find_if(out.begin(), out.end(), [&](const Candidate& c) {
        return c.factor == static_cast<int>(f) && c.axes == projection.axes[f];
      });
      if (same == out.end()) {
        out.push_back({static_cast<int>(f), projection.axes[f], is_weight[value], bytes});
      } else {
        same->from_weight = same->from_weight || is_weight[value];
        same->bytes += bytes;
      }
    }
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    add(node.inputs[i], rule.operands[i]);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    add(node.outputs[i], rule.results[i]);
  }
  return out;
}

// A factor behind one that is not full, in any tensor, cannot be split: its data would interleave.
void drop_interleaved(const ShardingRule& rule, const DeviceMesh& mesh, FactorAxes& axes) {
  bool changed = true;
  const auto check = [&](const std::vector<TensorFactors>& tensors) {
    for (const TensorFactors& tensor : tensors) {
      for (const FactorList& dim : tensor) {
        bool full = true;
        for (const int f : dim) {
          if (!full && !axes[f].empty()) {
            axes[f].clear();
            changed = true;
          }
          full = full && mesh.size_of(axes[f]) == rule.factors[f].size;
        }
      }
    }
  };
  while (changed) {
    changed = false;
    check(rule.operands);
    check(rule.results);
  }
}

}  // namespace

FactorAxes assign_factors(const Graph& graph, const Node& node, const ShardingRule& rule,
                          const std::vector<bool>& is_weight, const DeviceMesh& mesh) {
  Candidates ranked = candidates(graph, node, rule, is_weight, mesh);
  const auto kind = [&](const Candidate& c) { return rule.factors[c.factor].kind; };
  const auto better = [&](const Candidate& a, const Candidate& b) {
    if (a.from_weight != b.from_weight) {
      return a.from_weight;
    }
    if (a.bytes != b.bytes) {
      return a.bytes > b.bytes;
    }
    return kind(a) == FactorKind::kPass && kind(b) != FactorKind::kPass;
  };
  for (auto c = ranked.begin(); c != ranked.end(); ++c) {  // a stable sort of a short list
    std::rotate(std::upper_bound(ranked.begin(), c, *c, better), c, c + 1);
  }
  FactorAxes axes(rule.factors.size());
  AxisMask used = 0;
  for (const Candidate& c : ranked) {
    const int64_t size = rule.factors[c.factor].size;
    if (axes[c.factor].empty() && (mask_of(c.axes) & used) == 0 &&
        size % mesh.size_of(c.axes) == 0) {
      axes[c.factor] = c.axes;
      used |= mask_of(c.axes);
    }
  }
  if (used != 0) {
    drop_interleaved(rule, mesh, axes);
  }
  return axes;
}

}  // namespace meshtrain
