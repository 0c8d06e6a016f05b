// Builder: appends nodes to a Graph. Every function infers and checks shapes (InternalError when
// they do not fit: layers check the user's shapes first), so a Graph is well-formed at any time.
//
// Elementwise ops broadcast as NumPy does; operands must have one dtype (cast explicitly). Axes
// count from 0; negative ones from the end.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash_index.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace meshtrain {

// Windows over the spatial dimensions (1 to 3) of x (N, spatial..., C), channels last; one entry
// per spatial dimension, pads not negative. ops/window.h says which cells a window has.
struct Window {
  std::vector<int64_t> strides, dilations, pads_before, pads_after;
};

class Builder {
 public:
  explicit Builder(Graph& graph);  // paths of the nodes already there are not given again
  Graph& graph() { return graph_; }
  const Shape& shape(ValueId v) const { return graph_.values[v].shape; }
  DType dtype(ValueId v) const { return graph_.values[v].dtype; }

  // Name scopes of the nodes that follow: Scope(builder, "d1") gives paths "d1/einsum".
  class Scope {
   public:
    Scope(Builder& builder, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    Builder& builder_;
    size_t previous_length_;
  };
  [[nodiscard]] Scope scope(std::string_view name) { return Scope(*this, name); }
  const std::string& scope_path() const { return scope_; }
  void set_scope_path(std::string path) { scope_ = std::move(path); }
  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }

  // The general form: every function below ends here.
  ValueList add_node(std::string_view op, ValueList inputs, Attrs attrs = {});
  ValueId apply(std::string_view op, ValueList inputs, Attrs attrs = {});  // one result

  // --- sources -------------------------------------------------------------------------------
  // Fed by the host every step; `batch`: dimension 0 is the batch.
  ValueId input(std::string_view name, Shape shape, DType dtype, bool batch);
  int add_variable(Variable variable);  // its index; does not read it
  ValueId parameter(int variable);      // the stored value, in the storage layout; one per variable
  ValueId variable_use(ValueId param);  // "var_use": storage -> compute layout, once per use
  ValueId constant(double value, DType dtype, Shape shape = {});  // every element `value`
  ValueId iota(Shape shape, int axis, DType dtype);               // the index along `axis`
  // uint32 Philox bits of every element: key `seed`, stream from the node's path, `step` an int64
  // scalar.
  ValueId random_bits(Shape shape, ValueId step, int64_t seed);

  // --- elementwise, one operand ----------------------------------------------------------------
  // neg exp log log1p expm1 tanh sigmoid softplus sqrt rsqrt square abs sign erf sin cos floor
  // round reciprocal relu logical_not is_finite; relu's gradient at 0 is 0, round takes halves to
  // even
  ValueId unary(std::string_view op, ValueId x) { return apply(op, {x}); }
  ValueId cast(ValueId x, DType dtype);  // x itself when it already has the dtype

  // --- elementwise, two operands, broadcasting -------------------------------------------------
  // add sub mul div max min pow; eq ne lt le gt ge -> bool; logical_and logical_or on bool
  ValueId binary(std::string_view op, ValueId a, ValueId b) { return apply(op, {a, b}); }
  ValueId add(ValueId a, ValueId b) { return binary("add", a, b); }
  ValueId sub(ValueId a, ValueId b) { return binary("sub", a, b); }
  ValueId mul(ValueId a, ValueId b) { return binary("mul", a, b); }
  ValueId div(ValueId a, ValueId b) { return binary("div", a, b); }
  ValueId maximum(ValueId a, ValueId b) { return binary("max", a, b); }
  ValueId minimum(ValueId a, ValueId b) { return binary("min", a, b); }
  // With a scalar constant of x's dtype.
  ValueId add(ValueId x, double c) { return add(x, constant(c, dtype(x))); }
  ValueId sub(ValueId x, double c) { return sub(x, constant(c, dtype(x))); }
  ValueId mul(ValueId x, double c) { return mul(x, constant(c, dtype(x))); }
  ValueId div(ValueId x, double c) { return div(x, constant(c, dtype(x))); }
  ValueId maximum(ValueId x, double c) { return maximum(x, constant(c, dtype(x))); }
  ValueId minimum(ValueId x, double c) { return minimum(x, constant(c, dtype(x))); }
  ValueId neg(ValueId x) { return unary("neg", x); }
  ValueId exp(ValueId x) { return unary("exp", x); }
  ValueId log(ValueId x) { return unary("log", x); }
  ValueId square(ValueId x) { return unary("square", x); }
  ValueId sqrt(ValueId x) { return unary("sqrt", x); }
  // cond ? a : b, cond bool; all three broadcast.
  ValueId select(ValueId cond, ValueId a, ValueId b) { return apply("select", {cond, a, b}); }
  ValueId clamp(ValueId x, double low, double high);  // gradient 1 inside and at the ends

  // --- shapes ------------------------------------------------------------------------------------
  ValueId broadcast_to(ValueId x, Shape shape);  // NumPy rules; x itself when equal
  ValueId transpose(ValueId x, std::vector<int64_t> permutation);  // result dim i is x's dim p[i]
  ValueId reshape(ValueId x, Shape shape);
  ValueId expand_dims(ValueId x, int axis);
  ValueId squeeze(ValueId x, int axis);
  ValueId slice(ValueId x, int axis, int64_t begin, int64_t end, int64_t stride = 1);
  ValueId pad(ValueId x, int axis, int64_t before, int64_t after, double value = 0);
  ValueId concat(std::vector<ValueId> parts, int axis);
  ValueId reverse(ValueId x, int axis);
  ValueId stop_gradient(ValueId x);  // x as a constant: no derivative goes through it

  // --- reductions
  // ----------------------------------------------------------------------------------
  ValueId reduce_sum(ValueId x, std::vector<int64_t> axes, bool keepdims = false);
  ValueId reduce_max(ValueId x, std::vector<int64_t> axes, bool keepdims = false);
  ValueId reduce_min(ValueId x, std::vector<int64_t> axes, bool keepdims = false);
  ValueId reduce_mean(ValueId x, std::vector<int64_t> axes, bool keepdims = false);
  ValueId reduce_sum_all(ValueId x);    // to a scalar
  ValueId argmax(ValueId x, int axis);  // int32, the first of equals; no gradient
  ValueId cumsum(ValueId x, int axis);
  std::vector<ValueId> top_k(ValueId x,
                             int64_t k);  // values and int32 indices, last axis, largest first

  // --- products and lookups ----------------------------------------------------------------------
  // Letters name dimensions; one or two operands; a letter in no result is summed. No repeated
  // letter in one operand, no ellipsis (expand it first).
  ValueId einsum(std::string_view equation, std::vector<ValueId> inputs);
  // Rows of table (V, D...) at int32 ids of any shape: ids.shape + D...; ids outside [0, V) give
  // row 0 or V-1, as JAX clamps.
  ValueId gather_rows(ValueId table, ValueId ids);
  // The transpose: zeros (num_rows, D...) with updates added at ids; ids outside are dropped.
  ValueId scatter_add_rows(ValueId updates, ValueId ids, int64_t num_rows);
  // ids (...) int32 -> (..., num_classes) of `dtype`; ids outside give a row of zeros.
  ValueId one_hot(ValueId ids, int64_t num_classes, DType dtype);

  // --- convolutions and pools, channels last ---------------------------------------------------
  // kernel (k..., C / groups, F), groups = C / kernel's C; cross-correlation; -> (N, out..., F).
  ValueId conv(ValueId x, ValueId kernel, const Window& window);
  // The transpose of conv in x: dy (N, out..., F), kernel (k..., C / groups, F) -> `shape`
  // (N, spatial..., C).
  ValueId conv_dgrad(ValueId dy, ValueId kernel, const Window& window, Shape shape);
  // The transpose in the kernel -> `shape` (k..., C / groups, F).
  ValueId conv_wgrad(ValueId x, ValueId dy, const Window& window, Shape shape);
  // size: cells of a window per spatial dimension. Padding is never the largest; the gradient goes
  // to the first largest of a window. Means are over the cells inside of x.
  ValueId max_pool(ValueId x, std::vector<int64_t> size, const Window& window);
  ValueId avg_pool(ValueId x, std::vector<int64_t> size, const Window& window);
  // x (..., C) -> float64 (2, C): the sums of x and of x^2 over all dimensions but the last,
  // accumulated in float64.
  ValueId moments(ValueId x);
  // u, v (..., C) -> float64 (2, C): the sums of u and of u * v.
  ValueId channel_sums(ValueId u, ValueId v);
  // x (..., C), a (C), b (C), one dtype -> x * a + b. To be preferred to mul and add where a and b
  // depend on parameters, as in BatchNormalization: both their gradients take one pass.
  ValueId channel_affine(ValueId x, ValueId a, ValueId b);

  // --- training
  // ------------------------------------------------------------------------------------ x with
  // elements zeroed with probability `rate` and the rest scaled by 1/(1-rate). The mask is Philox
  // over the global index of `noise_shape` (default: x's shape; 1 = shared). `step` int64 scalar.
  ValueId dropout(ValueId x, double rate, ValueId step, int64_t seed, Shape noise_shape = {});
  // One optimizer step on one variable, elementwise: kind "sgd", "momentum", "nesterov", "rmsprop",
  // "adam", ...; see ir/ops/optimizer.cc for operands and attributes. Results: new parameter, new
  // slots.
  std::vector<ValueId> optimizer_update(std::string_view kind, std::vector<ValueId> inputs,
                                        Attrs attrs);
  // Stands for a user's pin "<layer>/output": identity; propagate and partition obey the sharding.
  ValueId pin(ValueId x, std::string_view key);

  void output(std::string_view name, ValueId value);
  // Values that expressions of the config may name: outputs of the model.
  void name_value(std::string name, ValueId value) {
    named_values_.emplace_back(std::move(name), value);
  }
  const std::vector<std::pair<std::string, ValueId>>& named_values() const { return named_values_; }
  void update(int variable, ValueId value);

 private:
  friend class Scope;
  std::string unique_path(std::string_view op);
  int path_index(std::string_view path);  // in path_uses_; 0 uses when it is new
  void remember_parameter(int64_t variable, ValueId value);

  Graph& graph_;
  std::string scope_;
  Phase phase_ = Phase::kForward;
  // By the hash of a path, without the path itself: two paths of one hash would only give one of
  // them a number that it did not need.
  HashIndex known_paths_;
  std::vector<int> path_uses_;       // of each known path
  std::vector<ValueId> parameters_;  // by variable; kNone where none is read yet
  std::vector<ValueType> operands_;  // of the node being added: kept for its memory
  std::vector<std::pair<std::string, ValueId>> named_values_;
};

// Reverse-mode differentiation on the global graph: appends nodes in Phase::kBackward that compute
// d loss / d value for each of `wrt` (kNone where the loss does not depend on it). `loss` is a
// scalar. Cotangents are tied to their values (Value::cotangent_of).
std::vector<ValueId> gradients(Builder& builder, ValueId loss, std::span<const ValueId> wrt);

}  // namespace meshtrain
