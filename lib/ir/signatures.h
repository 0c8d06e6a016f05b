// Signatures: the common properties of equal computations. A deep model has thousands of nodes of a
// few dozen kinds. Inferred types and sharding rules depend only on the op, its attributes and the
// types of its tensors, so they are computed once per kind.
#pragma once

#include <deque>
#include <vector>

#include "base/hash_index.h"
#include "ir/op.h"

namespace meshtrain {

struct Signature {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueType> operands;
  std::vector<ValueType> results;
  ShardingRule rule;
  bool has_rule = false;
  int number = 0;  // 0, 1, ... in the order in which they were found
};

class Signatures {
 public:
  // Returns the signature of a node, the same object for equal nodes, and whether it is new. It
  // lives as long as this table.
  std::pair<Signature*, bool> find(const Graph& graph, const Node& node);

  // The signature of a node with its sharding rule.
  const Signature& with_rule(const Graph& graph, const Node& node) {
    Signature& signature = *find(graph, node).first;
    rule_of(signature, graph, node);
    return signature;
  }
  // The rule of nodes of this signature, of which `node` is one.
  const ShardingRule& rule_of(Signature& signature, const Graph& graph, const Node& node);
  const ShardingRule& rule(const Graph& graph, const Node& node) {
    return with_rule(graph, node).rule;
  }

  size_t size() const { return list_.size(); }

 private:
  std::deque<Signature> list_;  // stable addresses
  HashIndex index_;
};

}  // namespace meshtrain
