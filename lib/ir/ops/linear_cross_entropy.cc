// Head and loss of a classifier of tokens: a product without a bias, and sparse categorical
// cross-entropy from its logits. Logits exist for a chunk of tokens at a time.
//
//   op                               operands               results
//   linear_cross_entropy             x, table, ids          loss, hits
//   linear_cross_entropy_grad        x, table, ids, g       loss, hits, dx, dtable
//   linear_cross_entropy_parts       x, table, ids          largest, sum, picked, first
//   linear_cross_entropy_parts_grad  x, table, ids, g, lse  dx, dtable
//
// x (n..., E), table (V, E) or with the attribute transposed = 1 (E, V), ids (n...) of int32. Loss,
// hits, g, lse and the four parts have float64 where x has it, else float32. With the attribute
// `classes` V is that number, and what the table has behind them only fills it up: its gradient is
// 0.
//
//   logit[i,v] = sum over e of x[i,e] table[v,e], in the type of x
//   loss[i]    = log(sum over v of exp(logit[i,v])) - logit[i,ids[i]]; 0 where the id is no class
//   hits[i]    = 1 where ids[i] is the first of the largest logits, else 0
//   dx, dtable = gradients of the sum over i of g[i] loss[i]
//
// The gradient has loss and hits, too: passes/head_loss.h lets it take the place of the forward
// op, so that logits are computed once.
//
// Parts are for a table whose classes are split over devices. The attribute `blocks` cuts the
// classes into so many equal blocks; each part (blocks, n...) is of the logits of a block:
//   largest  the largest logit
//   sum      the sum of exp(logit - largest)
//   picked   the logit of the id where that is in the block, else 0
//   first    1 where the id is the first of the block's largest; -1 where the block lies before
//            the id's; else 0
// Over the blocks whose largest is the largest of all, the sum of `first` is 1 for a hit and at
// most 0 for all others. parts_grad has, with p = exp(logit - lse), terms of dx that devices add
// up.
#include "ir/ops/linear_cross_entropy.h"

#include <algorithm>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

bool is_transposed(const Node& node) {
  return node.attr_int("transposed") != 0;
}

DType loss_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? dtype : DType::kFloat32;
}

int64_t num_classes(const Node& node, const Shape& table) {
  return table[is_transposed(node) ? 1 : 0];
}

void check_operands(const Node& node, Operands operands, size_t expected) {
  check_num_operands(node, operands, expected);
  const ValueType &x = operands[0], &table = operands[1], &ids = operands[2];
  MESHTRAIN_OP_CHECK(node,
                     is_floating(x.dtype) && !x.shape.empty() && table.dtype == x.dtype &&
                         table.shape.size() == 2 &&
                         table.shape[is_transposed(node) ? 0 : 1] == x.shape.back(),
                     "x {} {}, table {} {}", dtype_name(x.dtype), shape_string(x.shape),
                     dtype_name(table.dtype), shape_string(table.shape));
  const int64_t rows = num_classes(node, table.shape);
  const int64_t classes = node.has_attr("classes") ? node.attr_int("classes") : rows;
  MESHTRAIN_OP_CHECK(node, classes > 0 && classes <= rows, "{} classes, table {}", classes,
                     shape_string(table.shape));
  MESHTRAIN_OP_CHECK(
      node, ids.dtype == DType::kInt32 && ids.shape == Shape(x.shape.begin(), x.shape.end() - 1),
      "ids {} {}", dtype_name(ids.dtype), shape_string(ids.shape));
  const ValueType of_tokens{ids.shape, loss_dtype(x.dtype)};
  for (size_t i = 3; i < expected; ++i) {
    MESHTRAIN_OP_CHECK(node, operands[i] == of_tokens, "operand {} is {} {}", i,
                       dtype_name(operands[i].dtype), shape_string(operands[i].shape));
  }
}

// The factors of tokens, features and classes.
class HeadRule {
 public:
  HeadRule(const Node& node, const Shape& x, FactorKind tokens) : node_(node), features_(x.back()) {
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      tokens_.push_back({tokens == FactorKind::kPass ? rule_.pass(x[i]) : rule_.reduce(x[i])});
    }
  }

  RuleBuilder& rule() { return rule_; }
  TensorFactors tokens() const { return tokens_; }
  TensorFactors x() {
    TensorFactors out = tokens_;
    out.push_back({rule_.gather(features_)});
    return out;
  }
  TensorFactors table(FactorList classes) {
    TensorFactors out = {std::move(classes), {rule_.gather(features_)}};
    if (is_transposed(node_)) {
      std::swap(out[0], out[1]);
    }
    return out;
  }
  TensorFactors part(int block) const {
    TensorFactors out = {{block}};
    out.insert(out.end(), tokens_.begin(), tokens_.end());
    return out;
  }

 private:
  RuleBuilder rule_;
  const Node& node_;
  int64_t features_;
  TensorFactors tokens_;
};

ShardingRule forward_rule(const Node& node, std::span<const Shape> operands,
                          std::span<const Shape>) {
  HeadRule head(node, operands[0], FactorKind::kPass);
  RuleBuilder& rule = head.rule();
  rule.operand(head.x());
  rule.operand(head.table({rule.gather(num_classes(node, operands[1]))}));
  rule.operand(head.tokens());
  rule.result(head.tokens());
  rule.result(head.tokens());
  return rule.take();
}

ShardingRule grad_rule(const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
  HeadRule head(node, operands[0], FactorKind::kReduce);
  RuleBuilder& rule = head.rule();
  const auto table = [&] { return head.table({rule.gather(num_classes(node, operands[1]))}); };
  rule.operand(head.x());
  rule.operand(table());
  rule.operand(head.tokens());
  rule.operand(head.tokens());
  rule.result(head.tokens());
  rule.result(head.tokens());
  rule.result(head.x());
  rule.result(table());
  return rule.take();
}

ShardingRule parts_rule(const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
  HeadRule head(node, operands[0], FactorKind::kPass);
  RuleBuilder& rule = head.rule();
  const int64_t blocks = node.attr_int("blocks");
  const int block = rule.pass(blocks);
  rule.operand(head.x());
  rule.operand(head.table({block, rule.gather(num_classes(node, operands[1]) / blocks)}));
  rule.operand(head.tokens());
  for (int i = 0; i < 4; ++i) {
    rule.result(head.part(block));
  }
  return rule.take();
}

ShardingRule parts_grad_rule(const Node& node, std::span<const Shape> operands,
                             std::span<const Shape>) {
  HeadRule head(node, operands[0], FactorKind::kReduce);
  RuleBuilder& rule = head.rule();
  const int classes = rule.reduce(num_classes(node, operands[1]));
  rule.operand(head.x());
  rule.operand(head.table({classes}));
  for (int i = 0; i < 3; ++i) {
    rule.operand(head.tokens());
  }
  rule.result(head.x());
  rule.result(head.table({classes}));
  return rule.take();
}

// `products`: of the size of that of x and the table.
auto product_flops(int products) {
  return [products](const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
    return 2.0 * products * static_cast<double>(num_elements(operands[0])) *
           static_cast<double>(num_classes(node, operands[1]));
  };
}

// `products`: see product_flops().
OpDef product_op(const char* name, decltype(OpDef::rule) rule, int products) {
  OpDef op;
  op.name = name;
  op.rule = std::move(rule);
  op.flops = product_flops(products);
  op.is_product = true;
  return op;
}

OpDef make_forward() {
  OpDef op = product_op("linear_cross_entropy", forward_rule, 1);
  op.infer = [](const Node& node, Operands operands) {
    check_operands(node, operands, 3);
    const ValueType of_tokens{operands[2].shape, loss_dtype(operands[0].dtype)};
    return Types{of_tokens, of_tokens};
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    if (g[0] == kNone) {
      return Ids{kNone, kNone, kNone};
    }
    const Node forward = node;  // the graph grows
    ValueList inputs = forward.inputs;
    inputs.push_back(g[0]);
    const ValueList grads =
        b.add_node("linear_cross_entropy_grad", std::move(inputs), forward.attrs);
    return Ids{grads[2], grads[3], kNone};
  };
  return op;
}

OpDef make_grad() {
  OpDef op = product_op("linear_cross_entropy_grad", grad_rule, 3);
  op.infer = [](const Node& node, Operands operands) {
    check_operands(node, operands, 4);
    return Types{operands[3], operands[3], operands[0], operands[1]};
  };
  return op;
}

OpDef make_parts() {
  OpDef op = product_op("linear_cross_entropy_parts", parts_rule, 1);
  op.infer = [](const Node& node, Operands operands) {
    check_operands(node, operands, 3);
    const int64_t blocks = node.attr_int("blocks"), classes = num_classes(node, operands[1].shape);
    MESHTRAIN_OP_CHECK(node, blocks >= 1 && classes % blocks == 0, "{} blocks of {} classes",
                       blocks, classes);
    Shape shape = {blocks};
    shape.insert(shape.end(), operands[2].shape.begin(), operands[2].shape.end());
    return Types(4, ValueType{shape, loss_dtype(operands[0].dtype)});
  };
  return op;
}

OpDef make_parts_grad() {
  OpDef op = product_op("linear_cross_entropy_parts_grad", parts_grad_rule, 3);
  op.infer = [](const Node& node, Operands operands) {
    check_operands(node, operands, 5);
    return Types{operands[0], operands[1]};
  };
  return op;
}

}  // namespace

int64_t head_chunk(int64_t tokens, int64_t features, int64_t classes, int64_t least) {
  constexpr int64_t kFewLogits = 1 << 20;
  const int64_t most = std::max({least, features, kFewLogits / std::max<int64_t>(classes, 1)});
  const int64_t chunks = std::max<int64_t>((tokens + most - 1) / most, 1);
  return (tokens + chunks - 1) / chunks;
}

std::vector<OpDef> linear_cross_entropy_ops() {
  return {make_forward(), make_grad(), make_parts(), make_parts_grad()};
}

}  // namespace meshtrain
