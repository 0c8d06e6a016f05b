#include "ir/builder.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "ir/op.h"
#include "ir/ops/window.h"

namespace meshtrain {
namespace {

std::vector<int64_t> normal_axes(std::vector<int64_t> axes, size_t rank) {
  for (int64_t& axis : axes) {
    axis = normal_axis(axis, rank);
  }
  std::sort(axes.begin(), axes.end());
  MESHTRAIN_CHECK(std::adjacent_find(axes.begin(), axes.end()) == axes.end(),
                  "an axis is twice in [{}]", fmt::join(axes, ", "));
  return axes;
}

std::string dtype_text(DType dtype) {
  return std::string(dtype_name(dtype));
}

}  // namespace

Builder::Builder(Graph& graph) : graph_(graph) {
  for (const Node& node : graph.nodes) {
    path_uses_[static_cast<size_t>(path_index(node.path))] = 1;
    if (node.op->kind == OpKind::kParameter) {
      remember_parameter(node.attr_int("variable"), node.outputs[0]);
    }
  }
}

Builder::Scope::Scope(Builder& builder, std::string_view name)
    : builder_(builder), previous_length_(builder.scope_.size()) {
  if (!builder.scope_.empty()) {
    builder.scope_ += '/';
  }
  builder.scope_ += name;
}

Builder::Scope::~Scope() {
  builder_.scope_.resize(previous_length_);
}

std::string Builder::unique_path(std::string_view op) {
  std::string base;
  base.reserve(scope_.size() + op.size() + 4);
  base += scope_;
  base += scope_.empty() ? "" : "/";
  base += op;
  const auto first = static_cast<size_t>(path_index(base));
  while (path_uses_[first]++ > 0) {
    std::string candidate = fmt::format("{}_{}", base, path_uses_[first] - 1);
    const auto other = static_cast<size_t>(path_index(candidate));
    if (path_uses_[other] == 0) {
      path_uses_[other] = 1;
      return candidate;
    }
  }
  return base;
}

int Builder::path_index(std::string_view path) {
  const uint64_t hash = hash_text(path);
  const int known = known_paths_.find(hash, [](int) { return true; });
  if (known != HashIndex::kAbsent) {
    return known;
  }
  const int fresh = static_cast<int>(path_uses_.size());
  known_paths_.add(hash, fresh);
  path_uses_.push_back(0);
  return fresh;
}

void Builder::remember_parameter(int64_t variable, ValueId value) {
  if (variable >= static_cast<int64_t>(parameters_.size())) {
    parameters_.resize(std::max(static_cast<size_t>(variable) + 1, graph_.variables.size()), kNone);
  }
  parameters_[static_cast<size_t>(variable)] = value;
}

ValueList Builder::add_node(std::string_view op, ValueList inputs, Attrs attrs) {
  Node node;
  node.op = &find_op(op);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  node.path = unique_path(op);
  node.phase = phase_;
  if (node.op->random && !node.has_attr("stream")) {
    node.attrs["stream"] = static_cast<int64_t>(hash_text(node.path) & 0xffffffffu);
  }
  operands_.resize(std::max(operands_.size(), node.inputs.size()));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    MESHTRAIN_CHECK(input >= 0 && input < static_cast<ValueId>(graph_.values.size()),
                    "{}: operand %{} does not exist", node.path, input);
    operands_[i].shape = graph_.shape(input);
    operands_[i].dtype = graph_.dtype(input);
  }
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  const std::span<const ValueType> operands(operands_.data(), node.inputs.size());
  for (ValueType& type : node.op->infer(node, operands)) {
    node.outputs.push_back(static_cast<ValueId>(graph_.values.size()));
    Value& value = graph_.values.emplace_back();
    value.shape = std::move(type.shape);
    value.dtype = type.dtype;
    value.producer = id;
    value.result_index = static_cast<int>(node.outputs.size()) - 1;
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

ValueId Builder::apply(std::string_view op, ValueList inputs, Attrs attrs) {
  const ValueList results = add_node(op, std::move(inputs), std::move(attrs));
  MESHTRAIN_CHECK(results.size() == 1, "{} has {} results", op, results.size());
  return results[0];
}

// --- sources
// ---------------------------------------------------------------------------------------

ValueId Builder::input(std::string_view name, Shape shape, DType dtype, bool batch) {
  return apply("input", {},
               {{"name", std::string(name)},
                {"batch", int64_t{batch}},
                {"shape", std::move(shape)},
                {"dtype", dtype_text(dtype)}});
}

int Builder::add_variable(Variable variable) {
  graph_.variables.push_back(std::move(variable));
  return static_cast<int>(graph_.variables.size()) - 1;
}

ValueId Builder::parameter(int variable) {
  MESHTRAIN_CHECK(variable >= 0 && variable < static_cast<int>(graph_.variables.size()),
                  "there is no variable {}", variable);
  const auto index = static_cast<size_t>(variable);
  if (index < parameters_.size() && parameters_[index] != kNone) {
    return parameters_[index];
  }
  const Variable& v = graph_.variables[variable];
  const ValueId value =
      apply("parameter", {},
            {{"variable", int64_t{variable}}, {"shape", v.shape}, {"dtype", dtype_text(v.dtype)}});
  remember_parameter(variable, value);
  return value;
}

ValueId Builder::variable_use(ValueId param) {
  return apply("var_use", {param});
}

ValueId Builder::constant(double value, DType dtype, Shape shape) {
  return apply("constant", {},
               {{"value", value}, {"shape", std::move(shape)}, {"dtype", dtype_text(dtype)}});
}

ValueId Builder::iota(Shape shape, int axis, DType dtype) {
  const int64_t normal = normal_axis(axis, shape.size());
  return apply("iota", {},
               {{"axis", normal}, {"shape", std::move(shape)}, {"dtype", dtype_text(dtype)}});
}

ValueId Builder::random_bits(Shape shape, ValueId step, int64_t seed) {
  return apply("random_bits", {step}, {{"shape", std::move(shape)}, {"seed", seed}});
}

// --- elementwise
// -----------------------------------------------------------------------------------

ValueId Builder::cast(ValueId x, DType to) {
  return dtype(x) == to ? x : apply("cast", {x}, {{"dtype", dtype_text(to)}});
}

ValueId Builder::clamp(ValueId x, double low, double high) {
  return apply("clamp", {x}, {{"low", low}, {"high", high}});
}

// --- shapes
// ----------------------------------------------------------------------------------------

ValueId Builder::broadcast_to(ValueId x, Shape to) {
  return shape(x) == to ? x : apply("broadcast", {x}, {{"shape", std::move(to)}});
}

ValueId Builder::transpose(ValueId x, std::vector<int64_t> permutation) {
  for (int64_t& axis : permutation) {
    axis = normal_axis(axis, shape(x).size());
  }
  return apply("transpose", {x}, {{"permutation", std::move(permutation)}});
}

ValueId Builder::reshape(ValueId x, Shape to) {
  return shape(x) == to ? x : apply("reshape", {x}, {{"shape", std::move(to)}});
}

ValueId Builder::expand_dims(ValueId x, int axis) {
  Shape to = shape(x);
  to.insert(to.begin() + normal_axis(axis, to.size() + 1), 1);
  return reshape(x, to);
}

ValueId Builder::squeeze(ValueId x, int axis) {
  Shape to = shape(x);
  const int64_t normal = normal_axis(axis, to.size());
  MESHTRAIN_CHECK(to[normal] == 1, "dimension {} of {} is not 1", normal, shape_string(to));
  to.erase(to.begin() + normal);
  return reshape(x, to);
}

ValueId Builder::slice(ValueId x, int axis, int64_t begin, int64_t end, int64_t stride) {
  const int64_t normal = normal_axis(axis, shape(x).size());
  if (begin == 0 && end == shape(x)[normal] && stride == 1) {
    return x;
  }
  return apply("slice", {x},
               {{"axis", normal}, {"begin", begin}, {"end", end}, {"stride", stride}});
}

ValueId Builder::pad(ValueId x, int axis, int64_t before, int64_t after, double value) {
  if (before == 0 && after == 0) {
    return x;
  }
  return apply("pad", {x},
               {{"axis", normal_axis(axis, shape(x).size())},
                {"before", before},
                {"after", after},
                {"value", value}});
}

ValueId Builder::concat(std::vector<ValueId> parts, int axis) {
  MESHTRAIN_CHECK(!parts.empty(), "concat of nothing");
  const int64_t normal = normal_axis(axis, shape(parts[0]).size());
  return parts.size() == 1 ? parts[0] : apply("concat", std::move(parts), {{"axis", normal}});
}

ValueId Builder::stop_gradient(ValueId x) {
  return apply("stop_gradient", {x});
}

ValueId Builder::reverse(ValueId x, int axis) {
  return apply("reverse", {x}, {{"axis", normal_axis(axis, shape(x).size())}});
}

// --- reductions
// ------------------------------------------------------------------------------------

namespace {

ValueId reduction(Builder& b, std::string_view op, ValueId x, std::vector<int64_t> axes,
                  bool keepdims) {
  axes = normal_axes(std::move(axes), b.shape(x).size());
  return axes.empty()
             ? x
             : b.apply(op, {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keepdims}}});
}

}  // namespace

ValueId Builder::reduce_sum(ValueId x, std::vector<int64_t> axes, bool keepdims) {
  return reduction(*this, "reduce_sum", x, std::move(axes), keepdims);
}

ValueId Builder::reduce_max(ValueId x, std::vector<int64_t> axes, bool keepdims) {
  return reduction(*this, "reduce_max", x, std::move(axes), keepdims);
}

ValueId Builder::reduce_min(ValueId x, std::vector<int64_t> axes, bool keepdims) {
  return reduction(*this, "reduce_min", x, std::move(axes), keepdims);
}

ValueId Builder::reduce_mean(ValueId x, std::vector<int64_t> axes, bool keepdims) {
  axes = normal_axes(std::move(axes), shape(x).size());
  double count = 1;
  for (int64_t axis : axes) {
    count *= static_cast<double>(shape(x)[axis]);
  }
  const DType own = dtype(x);
  if (own != DType::kFloat16 && own != DType::kBFloat16) {
    return div(reduce_sum(x, axes, keepdims), count);
  }
  // The count is not exact in 16 bits. A sum in float16 would soon be infinite; one in bfloat16 is
  // not, and a copy of x in float32 would take memory.
  const ValueId terms = own == DType::kFloat16 ? cast(x, DType::kFloat32) : x;
  return cast(div(cast(reduce_sum(terms, axes, keepdims), DType::kFloat32), count), own);
}

ValueId Builder::reduce_sum_all(ValueId x) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < shape(x).size(); ++i) {
    axes.push_back(static_cast<int64_t>(i));
  }
  return reduce_sum(x, axes);
}

ValueId Builder::argmax(ValueId x, int axis) {
  return apply("argmax", {x}, {{"axis", normal_axis(axis, shape(x).size())}});
}

ValueId Builder::cumsum(ValueId x, int axis) {
  return apply("cumsum", {x}, {{"axis", normal_axis(axis, shape(x).size())}});
}

std::vector<ValueId> Builder::top_k(ValueId x, int64_t k) {
  return add_node("top_k", {x}, {{"k", k}});
}

// --- products and lookups
// ----------------------------------------------------------------------------

ValueId Builder::einsum(std::string_view equation, std::vector<ValueId> inputs) {
  std::string compact;
  std::copy_if(equation.begin(), equation.end(), std::back_inserter(compact),
               [](char c) { return c != ' '; });
  return apply("einsum", std::move(inputs), {{"equation", std::move(compact)}});
}

ValueId Builder::gather_rows(ValueId table, ValueId ids) {
  return apply("gather_rows", {table, ids});
}

ValueId Builder::scatter_add_rows(ValueId updates, ValueId ids, int64_t num_rows) {
  return apply("scatter_add_rows", {updates, ids}, {{"num_rows", num_rows}});
}

ValueId Builder::one_hot(ValueId ids, int64_t num_classes, DType dtype) {
  return apply("one_hot", {ids}, {{"num_classes", num_classes}, {"dtype", dtype_text(dtype)}});
}

// --- convolutions and pools
// ----------------------------------------------------------------------------

namespace {

Attrs window_attrs(const Window& window) {
  Attrs attrs;
  set_window(attrs, window);
  return attrs;
}

ValueId windowed(Builder& b, std::string_view op, std::vector<ValueId> inputs, const Window& window,
                 std::string_view list_name, std::vector<int64_t> list) {
  Attrs attrs = window_attrs(window);
  attrs.emplace(list_name, std::move(list));
  return b.apply(op, std::move(inputs), std::move(attrs));
}

}  // namespace

ValueId Builder::conv(ValueId x, ValueId kernel, const Window& window) {
  return apply("conv", {x, kernel}, window_attrs(window));
}

ValueId Builder::conv_dgrad(ValueId dy, ValueId kernel, const Window& window, Shape shape) {
  return windowed(*this, "conv_dgrad", {dy, kernel}, window, "shape", std::move(shape));
}

ValueId Builder::conv_wgrad(ValueId x, ValueId dy, const Window& window, Shape shape) {
  return windowed(*this, "conv_wgrad", {x, dy}, window, "shape", std::move(shape));
}

ValueId Builder::max_pool(ValueId x, std::vector<int64_t> size, const Window& window) {
  return windowed(*this, "max_pool", {x}, window, "size", std::move(size));
}

ValueId Builder::avg_pool(ValueId x, std::vector<int64_t> size, const Window& window) {
  return windowed(*this, "avg_pool", {x}, window, "size", std::move(size));
}

ValueId Builder::moments(ValueId x) {
  return apply("moments", {x});
}

ValueId Builder::channel_sums(ValueId u, ValueId v) {
  return apply("channel_sums", {u, v});
}

ValueId Builder::channel_affine(ValueId x, ValueId a, ValueId b) {
  return apply("channel_affine", {x, a, b});
}

// --- training
// ----------------------------------------------------------------------------------------

ValueId Builder::dropout(ValueId x, double rate, ValueId step, int64_t seed, Shape noise_shape) {
  if (noise_shape.empty()) {
    noise_shape = shape(x);
  }
  return apply("dropout", {x, step},
               {{"rate", rate}, {"seed", seed}, {"noise_shape", std::move(noise_shape)}});
}

std::vector<ValueId> Builder::optimizer_update(std::string_view kind, std::vector<ValueId> inputs,
                                               Attrs attrs) {
  attrs["kind"] = std::string(kind);
  return add_node("optimizer_update", std::move(inputs), std::move(attrs));
}

ValueId Builder::pin(ValueId x, std::string_view key) {
  return apply("pin", {x}, {{"key", std::string(key)}});
}

void Builder::output(std::string_view name, ValueId value) {
  graph_.outputs.push_back({std::string(name), value});
}

void Builder::update(int variable, ValueId value) {
  graph_.updates.push_back({variable, value});
}

}  // namespace meshtrain
