#include "passes/argmax.h"

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/origins.h"
#include "passes/rewrite.h"

namespace meshtrain {
namespace {

class ArgmaxSplitter {
 public:
  explicit ArgmaxSplitter(Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph run() {
    const OpDef* const argmax = &find_op("argmax");
    for (Node& node : graph_.nodes) {
      if (node.op != argmax || !is_split(rewriter_.mapped(node.inputs[0]), axis_of(node))) {
        rewriter_.move(node);
      } else {
        split(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  static size_t axis_of(const Node& node) { return static_cast<size_t>(node.attr_int("axis")); }
  Value& value(ValueId v) { return rewriter_.to().values[v]; }
  bool is_split(ValueId v, size_t axis) { return !value(v).sharding->dims[axis].empty(); }

  // `v` with these dims, for the reasons of the operand.
  ValueId lay_out(ValueId v, DimAxes dims) {
    value(v).sharding_origin = origins_.text(reasons_, dims);
    value(v).sharding = Sharding{std::move(dims), 0, Combine::kSum};
    return v;
  }

  void split(Node& node) {
    const ValueId x = rewriter_.mapped(node.inputs[0]), result = node.outputs[0];
    const size_t axis = axis_of(node);
    const auto axis_number = static_cast<int64_t>(axis);
    reasons_ = origins_.of(value(x));
    const DimAxes dims = value(x).sharding->dims;
    const Shape shape = value(x).shape;
    DimAxes without = dims, only(dims.size());
    without[axis] = {};
    only[axis] = dims[axis];
    Shape line(shape.size(), 1);
    line[axis] = shape[axis];

    Builder b(rewriter_.to());
    b.set_scope_path(node.path);
    b.set_phase(node.phase);
    const ValueId largest = lay_out(b.reduce_max(x, {axis_number}, true), without);
    const ValueId is_equal = lay_out(b.binary("eq", x, largest), dims);
    const ValueId is_nan = lay_out(b.binary("ne", x, x), dims);
    const ValueId is_largest = lay_out(b.binary("logical_or", is_equal, is_nan), dims);
    const ValueId place = lay_out(b.iota(line, static_cast<int>(axis), DType::kInt32), only);
    const ValueId none = b.constant(static_cast<double>(shape[axis]), DType::kInt32);
    lay_out(none, {});
    const ValueId places = lay_out(b.select(is_largest, place, none), dims);
    const ValueId first = b.reduce_min(places, {axis_number});
    value(first).sharding = graph_.values[result].sharding;
    value(first).sharding_origin = graph_.values[result].sharding_origin;
    rewriter_.map(result, first);
  }

  Graph& graph_;
  Rewriter rewriter_;
  Origins origins_;
  Reasons reasons_;  // of the operand
};

}  // namespace

Graph split_argmax(Graph graph) {
  return ArgmaxSplitter(graph).run();
}

}  // namespace meshtrain
