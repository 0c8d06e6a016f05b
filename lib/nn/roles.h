// What the inputs of an attention layer are, and attention as layers add it to a graph.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "ir/ops/attention.h"
#include "nn/model.h"

namespace meshtrain {

// Indices of the inputs of an attention layer.
struct AttentionInputs {
  size_t query = 0, value = 0, key = 0;
  std::optional<size_t> query_mask, value_mask, key_mask, attention_mask, positions, segments;
};

// The roles of `count` inputs: of a list query, value, key in this order, of which one or two may
// be left out (one input is all three); of a map its keys. Nothing, with the reason in `problem`,
// where they do not fit.
std::optional<AttentionInputs> try_inputs(const LayerUse& use, size_t count, std::string& problem);
// After try_inputs() succeeded.
AttentionInputs inputs_of(const LayerUse& use, size_t count);

// The attributes and optional operands of an attention node.
struct AttentionCall {
  double scale = 1;
  bool causal = false;
  int64_t window = 0;
  double rate = 0;
  int64_t seed = 0;
  std::array<ValueId, kNumAttentionOperands> operands = [] {
    std::array<ValueId, kNumAttentionOperands> none;
    none.fill(kNone);
    return none;
  }();

  void set(AttentionOperand operand, ValueId value) {
    operands[static_cast<size_t>(operand)] = value;
  }
};

// o of q (B, T, H, D), k (B, S, G, D), v (B, S, G, E).
ValueId add_attention(Builder& builder, ValueId q, ValueId k, ValueId v, const AttentionCall& call);
// a AND b, of which either may be kNone.
ValueId both_masks(Builder& builder, ValueId a, ValueId b);

// Softmax over the last dimension of `scores` where `allowed` holds (kNone: everywhere), in at
// least float32; rows with nothing allowed are zeros.
ValueId masked_softmax(Builder& builder, ValueId scores, ValueId allowed);
// `weights` after dropout of a training step.
ValueId dropped_weights(Builder& builder, ValueId weights, double rate, ValueId step, int64_t seed);
// What add_attention() weighs values with, before dropout: (B, H, T, S), in q's dtype.
ValueId attention_weights(Builder& builder, ValueId q, ValueId k, const AttentionCall& call);
// o of add_attention(), from these weights.
ValueId weigh_values(Builder& builder, ValueId weights, ValueId v, const AttentionCall& call);

}  // namespace meshtrain
