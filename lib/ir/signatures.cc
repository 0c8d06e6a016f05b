#include "ir/signatures.h"

#include <bit>

#include "base/hash.h"

namespace meshtrain {
namespace {

// Cheaper than hash_mix, which finishes it.
uint64_t step(uint64_t hash, uint64_t value) {
  return (std::rotl(hash, 5) ^ value) * 0x9e3779b97f4a7c15u;
}

uint64_t hash_of(const Graph& graph, const Node& node) {
  uint64_t hash = step(node.attrs.hash(), reinterpret_cast<uintptr_t>(node.op));
  const auto add = [&](const ValueList& list) {
    for (const ValueId id : list) {
      const Value& value = graph.values[id];
      hash = step(hash, value.shape.size() << 8 | static_cast<uint64_t>(value.dtype));
      for (const int64_t size : value.shape) {
        hash = step(hash, static_cast<uint64_t>(size));
      }
    }
  };
  add(node.inputs);
  add(node.outputs);
  return hash_mix(hash, node.inputs.size());
}

bool has_types(const Graph& graph, const ValueList& list, const std::vector<ValueType>& types) {
  if (list.size() != types.size()) {
    return false;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    const Value& value = graph.values[list[i]];
    if (value.dtype != types[i].dtype || value.shape != types[i].shape) {
      return false;
    }
  }
  return true;
}

std::vector<ValueType> types_of(const Graph& graph, const ValueList& list) {
  std::vector<ValueType> types;
  types.reserve(list.size());
  for (const ValueId id : list) {
    types.push_back({graph.shape(id), graph.dtype(id)});
  }
  return types;
}

}  // namespace

std::pair<Signature*, bool> Signatures::find(const Graph& graph, const Node& node) {
  const uint64_t hash = hash_of(graph, node);
  const int found = index_.find(hash, [&](int id) {
    const Signature& known = list_[static_cast<size_t>(id)];
    return known.op == node.op && known.attrs == node.attrs &&
           has_types(graph, node.inputs, known.operands) &&
           has_types(graph, node.outputs, known.results);
  });
  if (found != HashIndex::kAbsent) {
    return {&list_[static_cast<size_t>(found)], false};
  }
  const int number = static_cast<int>(list_.size());
  index_.add(hash, number);
  list_.push_back({node.op,
                   node.attrs,
                   types_of(graph, node.inputs),
                   types_of(graph, node.outputs),
                   {},
                   false,
                   number});
  return {&list_.back(), true};
}

const ShardingRule& Signatures::rule_of(Signature& signature, const Graph& graph,
                                        const Node& node) {
  if (!signature.has_rule) {
    signature.rule = sharding_rule(graph, node);
    signature.has_rule = true;
  }
  return signature.rule;
}

}  // namespace meshtrain
