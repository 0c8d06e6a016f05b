// Scaled dot-product attention with grouped heads, and rotary positions.
//
//   op              operands                          results
//   attention       q, k, v [, operands]              o, lse
//   attention_grad  q, k, v, o, lse, do [, operands]  dq, dk, dv
//   rotary          x, cosine, sine                   as x
//
// q (B, T, H, D), k (B, S, G, D), v (B, S, G, E), o and do (B, T, H, E); lse (B, H, T) of float64
// where q is, else of float32. G divides H; query head h reads key head h / (H / G).
//
//   score[b,h,i,j] = scale * sum over d of q[b,i,h,d] k[b,j,g,d], or -infinity where not allowed
//   lse[b,h,i]     = log(sum over j of exp(score)), -infinity for a row without an allowed key
//   P[b,h,i,j]     = exp(score - lse), 0 in such a row
//   o[b,i,h,e]     = sum over j of dropout(P)[b,h,i,j] v[b,j,g,e]
//
// Attributes: scale (double), causal (0 or 1), window (int, 0: none), rate (double), seed and
// stream (as dropout), and `operands`: the names, in this order, of the optional operands.
//   step                             int64 scalar; there when rate > 0
//   query_mask (B,T), key_mask (B,S) bool: rows and keys that take part
//   query_segments, key_segments     int32 (B,T), (B,S), both or none: equal numbers attend
//   query_positions, key_positions   int32 (B,T), (B,S), both or none: take the place of the
//                                    global indices i and j in `causal` and `window`
//   mask                             bool (B or 1, H or 1, T, S)
//   lse_cotangent (B,H,T)            of attention_grad: of lse's type
// A pair is allowed where all of these hold: both masks; equal segments; with causal,
// position i >= position j; with window, |position i - position j| < window; mask.
//
// Dropout of P takes the Philox bits of index ((b H + h) T + i) S + j, all global: the mask does
// not depend on the mesh. T. Dao, "FlashAttention-2", 2023, has the gradient from lse.
//
// rotary: x (B, T, H, D), D even, cosine and sine (B or 1, T, D/2), with i < D/2:
//   y[i] = x[i] cosine[i] - x[i + D/2] sine[i],  y[i + D/2] = x[i + D/2] cosine[i] + x[i] sine[i]
// With the attribute inverse = 1, sine is negated: the gradient. No gradient flows to cosine and
// sine, which are functions of positions.
#include "ir/ops/attention.h"

#include <algorithm>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {

namespace {

constexpr std::array<std::string_view, kNumAttentionOperands> kOperandNames = {
    "step",           "query_mask",   "key_mask",
    "query_segments", "key_segments", "query_positions",
    "key_positions",  "mask",         "lse_cotangent"};

}  // namespace

std::string_view attention_operand_name(AttentionOperand operand) {
  return kOperandNames[static_cast<size_t>(operand)];
}

AttentionOperands::AttentionOperands(std::string_view names, size_t first) : size_(first) {
  at_.fill(-1);
  size_t next = 0;  // operands come in order
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    const auto found = std::find(kOperandNames.begin() + static_cast<std::ptrdiff_t>(next),
                                 kOperandNames.end(), name);
    MESHTRAIN_CHECK(found != kOperandNames.end(), "attention has no operand `{}` here", name);
    next = static_cast<size_t>(found - kOperandNames.begin()) + 1;
    at_[next - 1] = static_cast<int>(size_++);
  }
}

namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;
using Operand = AttentionOperand;

AttentionOperands optional_operands(const Node& node, size_t first) {
  return {node.attr_string("operands"), first};
}

struct AttentionSizes {
  int64_t batch, queries, keys, heads, groups, head_size, value_size;
};

template <class T>
AttentionSizes attention_sizes(std::span<const T> operands) {
  const auto shape = [&](size_t i) -> const Shape& {
    if constexpr (std::is_same_v<T, Shape>) {
      return operands[i];
    } else {
      return operands[i].shape;
    }
  };
  const Shape &q = shape(0), &k = shape(1), &v = shape(2);
  return {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
}

DType lse_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? dtype : DType::kFloat32;
}

void check_optional(const Node& node, Operands operands, size_t first, const AttentionSizes& n) {
  const AttentionOperands at = optional_operands(node, first);
  check_num_operands(node, operands, at.size());
  const auto check = [&](Operand operand, const ValueType& type) {
    const int i = at[operand];
    MESHTRAIN_OP_CHECK(node, i < 0 || operands[static_cast<size_t>(i)] == type, "{} must be {} {}",
                       attention_operand_name(operand), dtype_name(type.dtype),
                       shape_string(type.shape));
  };
  const Shape queries{n.batch, n.queries}, keys{n.batch, n.keys};
  check(Operand::kStep, {{}, DType::kInt64});
  check(Operand::kQueryMask, {queries, DType::kBool});
  check(Operand::kKeyMask, {keys, DType::kBool});
  check(Operand::kQuerySegments, {queries, DType::kInt32});
  check(Operand::kKeySegments, {keys, DType::kInt32});
  check(Operand::kQueryPositions, {queries, DType::kInt32});
  check(Operand::kKeyPositions, {keys, DType::kInt32});
  check(Operand::kLseCotangent, {{n.batch, n.heads, n.queries}, lse_dtype(operands[0].dtype)});
  if (const int i = at[Operand::kMask]; i >= 0) {
    const ValueType& mask = operands[static_cast<size_t>(i)];
    MESHTRAIN_OP_CHECK(node,
                       mask.dtype == DType::kBool && mask.shape.size() == 4 &&
                           (mask.shape[0] == 1 || mask.shape[0] == n.batch) &&
                           (mask.shape[1] == 1 || mask.shape[1] == n.heads) &&
                           mask.shape[2] == n.queries && mask.shape[3] == n.keys,
                       "mask {} {}", dtype_name(mask.dtype), shape_string(mask.shape));
  }
  const auto both = [&](Operand a, Operand b) { return (at[a] < 0) == (at[b] < 0); };
  MESHTRAIN_OP_CHECK(node,
                     both(Operand::kQuerySegments, Operand::kKeySegments) &&
                         both(Operand::kQueryPositions, Operand::kKeyPositions),
                     "segments and positions come in pairs");
  const double rate = node.attr_double("rate");
  MESHTRAIN_OP_CHECK(node, rate >= 0 && rate < 1 && (rate > 0) == (at[Operand::kStep] >= 0),
                     "rate {}", rate);
}

AttentionSizes check_attention(const Node& node, Operands operands, size_t first) {
  MESHTRAIN_OP_CHECK(node, operands.size() >= first, "{} operands", operands.size());
  for (size_t i = 0; i < 3; ++i) {
    MESHTRAIN_OP_CHECK(
        node, operands[i].shape.size() == 4 && operands[i].dtype == operands[0].dtype,
        "operand {} is {} {}", i, dtype_name(operands[i].dtype), shape_string(operands[i].shape));
  }
  const AttentionSizes n = attention_sizes(operands);
  const Shape &k = operands[1].shape, &v = operands[2].shape;
  MESHTRAIN_OP_CHECK(
      node,
      is_floating(operands[0].dtype) && k[0] == n.batch && v[0] == n.batch && v[1] == n.keys &&
          v[2] == n.groups && k[3] == n.head_size && n.groups > 0 && n.heads % n.groups == 0,
      "q {}, k {}, v {}", shape_string(operands[0].shape), shape_string(k), shape_string(v));
  node.attr_double("scale");
  node.attr_int("causal");
  node.attr_int("seed");
  node.attr_int("stream");
  MESHTRAIN_OP_CHECK(node, node.attr_int("window") >= 0, "window {}", node.attr_int("window"));
  check_optional(node, operands, first, n);
  return n;
}

Types attention_types(const Node& node, Operands operands) {
  const AttentionSizes n = check_attention(node, operands, kAttentionInputs);
  const DType dtype = operands[0].dtype;
  return {{{n.batch, n.queries, n.heads, n.value_size}, dtype},
          {{n.batch, n.heads, n.queries}, lse_dtype(dtype)}};
}

Types attention_grad_types(const Node& node, Operands operands) {
  const AttentionSizes n = check_attention(node, operands, kAttentionGradInputs);
  const DType dtype = operands[0].dtype;
  const ValueType o{{n.batch, n.queries, n.heads, n.value_size}, dtype};
  const ValueType lse{{n.batch, n.heads, n.queries}, lse_dtype(dtype)};
  MESHTRAIN_OP_CHECK(node, operands[3] == o && operands[4] == lse && operands[5] == o,
                     "o {}, lse {}, do {}", shape_string(operands[3].shape),
                     shape_string(operands[4].shape), shape_string(operands[5].shape));
  return {operands[0], operands[1], operands[2]};
}

// The factors of an attention. Keys and features are whole: with v's features split, every device
// would compute all scores. Query heads are pairs of a key head and its r-th reader. In the
// gradient, dk and dv are sums over queries and readers: their shards are partial.
class AttentionRule {
 public:
  AttentionRule(const AttentionSizes& n, bool is_grad)
      : n_(n),
        batch_(rule_.pass(n.batch)),
        query_(is_grad ? rule_.reduce(n.queries) : rule_.pass(n.queries)),
        group_(rule_.pass(n.groups)),
        reader_(is_grad ? rule_.reduce(n.heads / n.groups) : rule_.pass(n.heads / n.groups)) {}

  TensorFactors q() { return {{batch_}, {query_}, heads(), {rule_.gather(n_.head_size)}}; }
  TensorFactors k() {
    return {{batch_}, {rule_.gather(n_.keys)}, {group_}, {rule_.gather(n_.head_size)}};
  }
  TensorFactors v() {
    return {{batch_}, {rule_.gather(n_.keys)}, {group_}, {rule_.gather(n_.value_size)}};
  }
  TensorFactors o() { return {{batch_}, {query_}, heads(), {rule_.gather(n_.value_size)}}; }
  TensorFactors lse() const { return {{batch_}, heads(), {query_}}; }
  TensorFactors optional(Operand operand, const Shape& shape) {
    switch (operand) {
      case Operand::kStep:
        return {};
      case Operand::kQueryMask:
      case Operand::kQuerySegments:
      case Operand::kQueryPositions:
        return {{batch_}, {query_}};
      case Operand::kMask:
        return {shape[0] == n_.batch ? FactorList{batch_} : FactorList{},
                shape[1] == n_.heads ? heads() : FactorList{},
                {query_},
                {rule_.gather(n_.keys)}};
      case Operand::kLseCotangent:
        return lse();
      default:
        return {{batch_}, {rule_.gather(n_.keys)}};
    }
  }
  RuleBuilder& rule() { return rule_; }

 private:
  FactorList heads() const { return {group_, reader_}; }

  RuleBuilder rule_;
  AttentionSizes n_;
  int batch_, query_, group_, reader_;
};

ShardingRule attention_rule(const Node& node, std::span<const Shape> operands, size_t first) {
  const AttentionOperands at = optional_operands(node, first);
  const bool is_grad = first == kAttentionGradInputs;
  AttentionRule factors(attention_sizes(operands), is_grad);
  RuleBuilder& rule = factors.rule();
  rule.operand(factors.q());
  rule.operand(factors.k());
  rule.operand(factors.v());
  if (is_grad) {
    rule.operand(factors.o());
    rule.operand(factors.lse());
    rule.operand(factors.o());
  }
  for (size_t i = 0; i < kNumAttentionOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (at[operand] >= 0) {
      rule.operand(factors.optional(operand, operands[static_cast<size_t>(at[operand])]));
    }
  }
  if (is_grad) {
    rule.result(factors.q());
    rule.result(factors.k());
    rule.result(factors.v());
  } else {
    rule.result(factors.o());
    rule.result(factors.lse());
  }
  return rule.take();
}

// Multiply-adds count two; a causal mask leaves half of the pairs.
double pair_flops(const Node& node, std::span<const Shape> operands, double per_pair) {
  const AttentionSizes n = attention_sizes(operands);
  const double pairs = static_cast<double>(n.batch * n.heads) * static_cast<double>(n.queries) *
                       static_cast<double>(n.keys);
  return pairs * per_pair * (node.attr_int("causal") != 0 ? 0.5 : 1);
}

Ids attention_vjp(Builder& b, const Node& node, std::span<const ValueId> g) {
  const Node forward = node;  // the graph grows
  const ValueId lse_cotangent = g[1];
  ValueId o_cotangent = g[0];
  if (o_cotangent == kNone) {
    const ValueId o = forward.outputs[0];
    o_cotangent = b.constant(0, b.dtype(o), b.shape(o));
  }
  ValueList inputs = {forward.inputs[0],  forward.inputs[1],  forward.inputs[2],
                      forward.outputs[0], forward.outputs[1], o_cotangent};
  for (size_t i = kAttentionInputs; i < forward.inputs.size(); ++i) {
    inputs.push_back(forward.inputs[i]);
  }
  Attrs attrs = forward.attrs;
  if (lse_cotangent != kNone) {
    inputs.push_back(lse_cotangent);
    std::string names = forward.attr_string("operands");
    names += names.empty() ? "" : " ";
    attrs["operands"] = names + std::string(attention_operand_name(Operand::kLseCotangent));
  }
  const ValueList grads = b.add_node("attention_grad", std::move(inputs), std::move(attrs));
  Ids out(forward.inputs.size(), kNone);
  std::copy(grads.begin(), grads.end(), out.begin());
  return out;
}

OpDef make_attention() {
  OpDef op;
  op.name = "attention";
  op.infer = attention_types;
  op.rule = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    return attention_rule(node, operands, kAttentionInputs);
  };
  op.vjp = attention_vjp;
  op.flops = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    const AttentionSizes n = attention_sizes(operands);
    return pair_flops(node, operands, 2 * static_cast<double>(n.head_size + n.value_size));
  };
  op.random = true;
  op.is_product = true;
  return op;
}

OpDef make_attention_grad() {
  OpDef op;
  op.name = "attention_grad";
  op.infer = attention_grad_types;
  op.rule = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    return attention_rule(node, operands, kAttentionGradInputs);
  };
  op.flops = [](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    const AttentionSizes n = attention_sizes(operands);
    return pair_flops(node, operands, 2 * static_cast<double>(3 * n.head_size + 2 * n.value_size));
  };
  op.random = true;
  op.is_product = true;
  return op;
}

OpDef make_rotary() {
  OpDef op;
  op.name = "rotary";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 3);
    const ValueType &x = operands[0], &cosine = operands[1];
    const Shape& shape = x.shape;
    MESHTRAIN_OP_CHECK(node, is_floating(x.dtype) && shape.size() == 4 && shape[3] % 2 == 0,
                       "x is {} {}", dtype_name(x.dtype), shape_string(shape));
    const Shape& angles = cosine.shape;
    MESHTRAIN_OP_CHECK(node,
                       cosine.dtype == x.dtype && operands[2] == cosine && angles.size() == 3 &&
                           (angles[0] == 1 || angles[0] == shape[0]) && angles[1] == shape[1] &&
                           angles[2] == shape[3] / 2,
                       "cosine {} {} for x {}", dtype_name(cosine.dtype), shape_string(angles),
                       shape_string(shape));
    node.attr_int("inverse");
    return Types{x};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape>) {
    RuleBuilder rule;
    const Shape& shape = operands[0];
    const int batch = rule.pass(shape[0]), step = rule.pass(shape[1]), head = rule.pass(shape[2]);
    const auto x = [&] { return TensorFactors{{batch}, {step}, {head}, {rule.gather(shape[3])}}; };
    rule.operand(x());
    for (size_t i = 1; i < 3; ++i) {
      rule.operand({operands[i][0] == shape[0] ? FactorList{batch} : FactorList{},
                    {step},
                    {rule.gather(operands[i][2])}});
    }
    rule.result(x());
    return rule.take();
  };
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const int64_t inverse = 1 - node.attr_int("inverse");
    const ValueList inputs = {g[0], node.inputs[1], node.inputs[2]};
    return Ids{b.apply("rotary", inputs, {{"inverse", inverse}}), kNone, kNone};
  };
  op.flops = [](const Node&, std::span<const Shape>, std::span<const Shape> results) {
    return 3 * static_cast<double>(num_elements(results[0]));
  };
  return op;
}

}  // namespace

std::vector<OpDef> attention_ops() {
  return {make_attention(), make_attention_grad(), make_rotary()};
}

}  // namespace meshtrain
