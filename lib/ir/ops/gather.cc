// Lookups by index, and their transposes. V rows, ids an int32 tensor of any shape.
//
//   op                operands      attributes                     result
//   gather_rows       table, ids    -                              ids.shape + table.shape[1:]
//   scatter_add_rows  updates, ids  num_rows                       (num_rows,) + feature dimensions
//   one_hot           ids           num_classes, dtype             ids.shape + (num_classes,)
//
// Out of range: gather_rows clamps ids to [0, V); scatter_add_rows drops them; one_hot gives zeros.
//
// On shards, with the vocabulary (or class) dimension split, `start` is where the shard begins:
//   gather_rows       clamp to the global [0, V), subtract start; zero rows where the id is not in
//                     the shard. The result is a partial sum over the axes of the vocabulary.
//   scatter_add_rows  subtract start, drop what is not in the shard; with ids and updates split
//                     the result is a partial sum over their axes.
//   one_hot           1 at class id - start where that is in the shard.
// Rows are added in the order of ids, so that runs repeat bit for bit.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

void check_ids(const Node& node, const ValueType& ids) {
  MESHTRAIN_OP_CHECK(node, ids.dtype == DType::kInt32, "ids are {}", dtype_name(ids.dtype));
}

TensorFactors joined(TensorFactors a, const TensorFactors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

OpDef make_gather_rows() {
  OpDef op;
  op.name = "gather_rows";
  op.is_lookup = true;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 2);
    check_ids(node, operands[1]);
    const Shape& table = operands[0].shape;
    MESHTRAIN_OP_CHECK(node, !table.empty(), "the table is a scalar");
    Shape shape = operands[1].shape;
    shape.insert(shape.end(), table.begin() + 1, table.end());
    return Types{{shape, operands[0].dtype}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape>) {
    RuleBuilder rule;
    TensorFactors rows, features;
    for (int64_t size : operands[1]) {
      rows.push_back({rule.pass(size)});
    }
    for (size_t i = 1; i < operands[0].size(); ++i) {
      features.push_back({rule.pass(operands[0][i])});
    }
    rule.operand(joined({{rule.reduce(operands[0][0])}}, features));
    rule.operand(rows);
    rule.result(joined(rows, features));
    return rule.take();
  };
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  // Ids out of range were clamped, so that the row at the end gets their cotangents.
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const int64_t num_rows = b.shape(node.inputs[0])[0];
    const ValueId ids = b.clamp(node.inputs[1], 0, static_cast<double>(num_rows - 1));
    return Ids{b.scatter_add_rows(g[0], ids, num_rows), kNone};
  };
  return op;
}

OpDef make_scatter_add_rows() {
  OpDef op;
  op.name = "scatter_add_rows";
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 2);
    check_ids(node, operands[1]);
    const Shape& updates = operands[0].shape;
    const Shape& ids = operands[1].shape;
    MESHTRAIN_OP_CHECK(
        node, ids.size() <= updates.size() && std::equal(ids.begin(), ids.end(), updates.begin()),
        "updates {} for ids {}", shape_string(updates), shape_string(ids));
    MESHTRAIN_OP_CHECK(node, node.attr_int("num_rows") >= 1, "num_rows {}",
                       node.attr_int("num_rows"));
    Shape shape = {node.attr_int("num_rows")};
    shape.insert(shape.end(), updates.begin() + static_cast<ptrdiff_t>(ids.size()), updates.end());
    return Types{{shape, operands[0].dtype}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    RuleBuilder rule;
    TensorFactors rows, features;
    for (int64_t size : operands[1]) {
      rows.push_back({rule.reduce(size)});
    }
    for (size_t i = operands[1].size(); i < operands[0].size(); ++i) {
      features.push_back({rule.pass(operands[0][i])});
    }
    rule.operand(joined(rows, features));
    rule.operand(rows);
    rule.result(joined({{rule.pass(results[0][0])}}, features));
    return rule.take();
  };
  op.linearity = [](const Node&) { return Linearity{.any_one = 1}; };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const ValueId ids = node.inputs[1];
    const ValueId rows = b.gather_rows(g[0], ids);
    // Dropped ids got nothing from their updates.
    const ValueId low = b.binary("ge", ids, b.constant(0, DType::kInt32));
    const double last = static_cast<double>(node.attr_int("num_rows") - 1);
    const ValueId high = b.binary("le", ids, b.constant(last, DType::kInt32));
    Shape mask_shape = b.shape(ids);
    mask_shape.resize(b.shape(rows).size(), 1);
    const ValueId mask = b.reshape(b.binary("logical_and", low, high), mask_shape);
    return Ids{b.select(mask, rows, zero_like(b, rows)), kNone};
  };
  op.flops = [](const Node&, std::span<const Shape> operands, std::span<const Shape>) {
    return static_cast<double>(num_elements(operands[0]));
  };
  return op;
}

OpDef make_one_hot() {
  OpDef op;
  op.name = "one_hot";
  op.kind = OpKind::kOneHot;
  op.infer = [](const Node& node, Operands operands) {
    check_num_operands(node, operands, 1);
    check_ids(node, operands[0]);
    Shape shape = operands[0].shape;
    shape.push_back(node.attr_int("num_classes"));
    return Types{{shape, dtype_attr(node)}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    RuleBuilder rule;
    TensorFactors rows;
    for (int64_t size : operands[0]) {
      rows.push_back({rule.pass(size)});
    }
    rule.operand(rows);
    rule.result(joined(rows, {{rule.pass(results[0].back())}}));
    return rule.take();
  };
  return op;
}

}  // namespace

std::vector<OpDef> gather_ops() {
  return {make_gather_rows(), make_scatter_add_rows(), make_one_hot()};
}

}  // namespace meshtrain
