#include "nn/head_loss.h"

#include <algorithm>

#include "ir/ops/einsum.h"
#include "nn/arguments.h"
#include "nn/loss_functions.h"
#include "nn/metric.h"

namespace meshtrain {
namespace {

constexpr std::string_view kOp = "linear_cross_entropy";

struct HeadProduct {
  ValueId x = kNone, table = kNone;
  bool transposed = false;  // the table is (features, classes)
  int64_t classes = 0;      // of a table that zeros fill up; 0: all of it
};

// From the logits along the last axis.
bool is_from_logits(const ConfigObject& object) {
  return boolean_or(object, "from_logits", false) && integer_or(object, "axis", -1) == -1;
}

// The product that the predictions are, or are widened from. `chain`: values on the way to it.
std::optional<HeadProduct> head_product(const Graph& graph, ValueId predictions,
                                        std::vector<ValueId>* chain = nullptr) {
  ValueId value = predictions;
  const auto visit = [&](ValueId v) {
    if (chain != nullptr) {
      chain->push_back(v);
    }
  };
  visit(value);
  // A pin says how logits would be laid out, and there are none.
  const auto passes_on = [&](OpKind kind) { return kind == OpKind::kCast || kind == OpKind::kPin; };
  while (passes_on(graph.producer(value).op->kind)) {
    const ValueId from = graph.producer(value).inputs[0];
    if (dtype_size(graph.dtype(from)) > dtype_size(graph.dtype(value)) ||
        !is_floating(graph.dtype(from))) {
      return std::nullopt;
    }
    value = from;
    visit(value);
  }
  int64_t classes_of_table = 0;
  if (const Node& cut = graph.producer(value); cut.op == &find_op("slice")) {
    const bool is_of_classes =
        cut.attr_int("axis") + 1 == static_cast<int64_t>(graph.shape(value).size()) &&
        cut.attr_int("begin") == 0 && cut.attr_int("stride") == 1;
    if (!is_of_classes)
      return std::nullopt;
    classes_of_table = cut.attr_int("end");
    value = cut.inputs[0];
    visit(value);
  }
  const Node& node = graph.producer(value);
  if (node.op != &find_op("einsum") || node.inputs.size() != 2) {
    return std::nullopt;
  }
  const EinsumEquation equation = parse_einsum(node.attr_string("equation"));
  const std::string &x = equation.operands[0], &table = equation.operands[1];
  if (x.size() < 2 || table.size() != 2) {
    return std::nullopt;
  }
  const std::string tokens = x.substr(0, x.size() - 1);
  const char feature = x.back(), last = equation.result.back();
  const bool transposed = table[0] == feature;
  const char classes = table[transposed ? 1 : 0];
  if (table[transposed ? 0 : 1] != feature || classes != last || equation.result != tokens + last ||
      tokens.find(classes) != std::string::npos) {
    return std::nullopt;
  }
  return HeadProduct{node.inputs[0], node.inputs[1], transposed, classes_of_table};
}

}  // namespace

bool is_token_loss(const ConfigObject& loss) {
  return loss.class_name == "SparseCategoricalCrossentropy" && is_from_logits(loss);
}

bool is_token_metric(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred) {
  const std::string name = metric_class(metric, y_true, y_pred);
  return name == "SparseCategoricalAccuracy" || ((name == "SparseCategoricalCrossentropy" ||
                                                  name == "Perplexity" || name == "BitsPerByte") &&
                                                 is_from_logits(metric));
}

bool add_token_losses(Builder& b, ValueId y, ValueId predictions) {
  std::vector<ValueId> chain;
  const auto product = head_product(b.graph(), predictions, &chain);
  if (!product || is_floating(b.dtype(y))) {
    return false;
  }
  const std::vector<int> uses = b.graph().use_counts();
  const bool is_read =
      uses[predictions] != 0 ||
      std::any_of(chain.begin() + 1, chain.end(), [&](ValueId value) { return uses[value] != 1; });
  const DType dtype = b.dtype(product->x) == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const ValueId ids = b.cast(squeezed_ids(b, y, predictions), DType::kInt32);
  const Shape& x = b.shape(product->x);
  if (is_read || dtype != b.dtype(predictions) || b.shape(ids) != Shape(x.begin(), x.end() - 1)) {
    return false;
  }
  Attrs attrs = {{"transposed", int64_t{product->transposed}}};
  if (product->classes > 0)
    attrs["classes"] = product->classes;
  b.add_node(kOp, {product->x, product->table, ids}, std::move(attrs));
  return true;
}

std::optional<TokenLosses> token_losses(Builder& b, ValueId predictions) {
  const Graph& graph = b.graph();
  const auto product = head_product(graph, predictions);
  if (!product) {
    return std::nullopt;
  }
  const OpDef& op = find_op(kOp);
  for (const Node& node : graph.nodes) {
    const int64_t classes =
        node.op == &op && node.has_attr("classes") ? node.attr_int("classes") : 0;
    if (node.op == &op && node.inputs[0] == product->x && node.inputs[1] == product->table &&
        classes == product->classes) {
      return TokenLosses{node.outputs[0], node.outputs[1]};
    }
  }
  return std::nullopt;
}

}  // namespace meshtrain
