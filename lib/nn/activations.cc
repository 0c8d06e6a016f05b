#include "nn/activations.h"

#include <cmath>
#include <limits>
#include <map>

#include "nn/arguments.h"
#include "nn/compile.h"

namespace meshtrain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ValueId like(Builder& b, ValueId x, double value) {
  return b.constant(value, b.dtype(x));
}
ValueId greater(Builder& b, ValueId x, double value) {
  return b.binary("gt", x, like(b, x, value));
}
ValueId less(Builder& b, ValueId x, double value) {
  return b.binary("lt", x, like(b, x, value));
}

// x where x > 0, else `negative(min(x, 0))`; the inner select keeps what the other branch would
// compute for large x (an overflowing exp) out of the gradient.
template <class F>
ValueId positive_or(Builder& b, ValueId x, F negative) {
  const ValueId is_positive = greater(b, x, 0);
  const ValueId safe = b.select(is_positive, like(b, x, 0), x);
  return b.select(is_positive, x, negative(safe));
}

ValueId sigmoid(Builder& b, ValueId x) {
  return b.unary("sigmoid", x);
}
ValueId softplus(Builder& b, ValueId x) {
  return b.unary("softplus", x);
}

ValueId relu6(Builder& b, ValueId x) {
  return b.select(b.binary("ge", x, like(b, x, 6)), like(b, x, 6), b.unary("relu", x));  // or NaN
}

ValueId gelu(Builder& b, ValueId x, bool approximate) {
  return b.unary(approximate ? "gelu_tanh" : "gelu", x);
}

int axis_of(Builder& b, ValueId x, int64_t axis) {
  return static_cast<int>(normal_axis(axis, b.shape(x).size()));
}

ValueId glu(Builder& b, ValueId x, int64_t axis_given) {
  const int axis = axis_of(b, x, axis_given);
  const int64_t size = b.shape(x)[axis];
  MESHTRAIN_CHECK(size % 2 == 0, "glu of an odd dimension {}", size);
  const ValueId value = b.slice(x, axis, 0, size / 2);
  return b.mul(value, sigmoid(b, b.slice(x, axis, size / 2, size)));
}

// Martins and Astudillo, "From Softmax to Sparsemax" (ICML 2016), algorithm 1: with the row sorted
// downwards, the support is where 1 + k z_k > sum of the first k, tau = (that sum - 1) / k at the
// last such k, and the result is max(z - tau, 0).
ValueId sparsemax(Builder& b, ValueId x, int64_t axis_given) {
  const int axis = axis_of(b, x, axis_given);
  const int last = static_cast<int>(b.shape(x).size()) - 1;
  std::vector<int64_t> swap(last + 1);
  for (int i = 0; i <= last; ++i) {
    swap[i] = i == axis ? last : i == last ? axis : i;
  }
  const ValueId z = axis == last ? x : b.transpose(x, swap);
  const ValueId sorted = b.top_k(z, b.shape(z)[last])[0];
  const ValueId rank = b.add(b.iota(b.shape(z), last, b.dtype(z)), 1.0);
  const ValueId bound = b.sub(b.cumsum(sorted, last), 1.0);
  const ValueId in_support = b.binary("gt", b.mul(rank, sorted), bound);
  const ValueId zero = like(b, z, 0);
  const ValueId count =
      b.reduce_sum(b.select(in_support, like(b, z, 1), zero), {last}, /*keepdims=*/true);
  const ValueId sum = b.reduce_sum(b.select(in_support, sorted, zero), {last}, /*keepdims=*/true);
  const ValueId tau = b.div(b.sub(sum, 1.0), count);
  const ValueId out = b.unary("relu", b.sub(z, tau));
  return axis == last ? out : b.transpose(out, swap);
}

using Args = const ConfigObject&;  // with every argument of the function
using ActivationFunction = ValueId (*)(Builder&, ValueId, Args);

const std::map<std::string, ActivationFunction, std::less<>>& activation_table() {
  static const std::map<std::string, ActivationFunction, std::less<>> kTable = {
      {"linear", [](Builder&, ValueId x, Args) { return x; }},
      {"relu",
       [](Builder& b, ValueId x, Args args) {
         return relu(b, x, args.number("negative_slope"), number_or(args, "max_value", kInfinity),
                     args.number("threshold"));
       }},
      {"leakyrelu", [](Builder& b, ValueId x,
                       Args args) { return leaky_relu(b, x, args.number("negative_slope")); }},
      {"relu6", [](Builder& b, ValueId x, Args) { return relu6(b, x); }},
      {"elu", [](Builder& b, ValueId x, Args args) { return elu(b, x, args.number("alpha")); }},
      {"celu",
       [](Builder& b, ValueId x, Args args) {
         const double alpha = args.number("alpha");
         return positive_or(b, x, [&](ValueId safe) {
           return b.mul(b.unary("expm1", b.div(safe, alpha)), alpha);
         });
       }},
      {"selu", [](Builder& b, ValueId x,
                  Args) { return b.mul(elu(b, x, 1.6732632423543772), 1.0507009873554805); }},
      {"softplus", [](Builder& b, ValueId x, Args) { return softplus(b, x); }},
      {"softsign",
       [](Builder& b, ValueId x, Args) { return b.div(x, b.add(b.unary("abs", x), 1.0)); }},
      {"squareplus",
       [](Builder& b, ValueId x, Args args) {
         const ValueId root = b.sqrt(b.add(b.square(x), args.number("b")));
         return b.mul(b.add(x, root), 0.5);
       }},
      {"softshrink",
       [](Builder& b, ValueId x, Args args) {
         const double limit = args.number("threshold");
         return b.select(greater(b, x, limit), b.sub(x, limit),
                         b.select(less(b, x, -limit), b.add(x, limit), like(b, x, 0)));
       }},
      {"hardshrink",
       [](Builder& b, ValueId x, Args args) {
         const double limit = args.number("threshold");
         return b.select(greater(b, b.unary("abs", x), limit), x, like(b, x, 0));
       }},
      {"tanhshrink", [](Builder& b, ValueId x, Args) { return b.sub(x, b.unary("tanh", x)); }},
      {"sparseplus",
       [](Builder& b, ValueId x, Args) {
         const ValueId middle = b.mul(b.square(b.add(x, 1.0)), 0.25);
         return b.select(b.binary("le", x, like(b, x, -1)), like(b, x, 0),
                         b.select(less(b, x, 1), middle, x));
       }},
      {"silu", [](Builder& b, ValueId x, Args) { return b.unary("silu", x); }},
      {"gelu",
       [](Builder& b, ValueId x, Args args) { return gelu(b, x, args.boolean("approximate")); }},
      {"glu", [](Builder& b, ValueId x, Args args) { return glu(b, x, args.integer("axis")); }},
      {"tanh", [](Builder& b, ValueId x, Args) { return b.unary("tanh", x); }},
      {"sigmoid", [](Builder& b, ValueId x, Args) { return sigmoid(b, x); }},
      {"exponential", [](Builder& b, ValueId x, Args) { return b.exp(x); }},
      {"sparsesigmoid",
       [](Builder& b, ValueId x, Args) { return b.clamp(b.mul(b.add(x, 1.0), 0.5), 0, 1); }},
      {"hardsigmoid",
       [](Builder& b, ValueId x, Args) { return b.div(relu6(b, b.add(x, 3.0)), 6.0); }},
      {"hardsilu",
       [](Builder& b, ValueId x, Args) { return b.mul(x, b.div(relu6(b, b.add(x, 3.0)), 6.0)); }},
      {"hardtanh",
       [](Builder& b, ValueId x, Args) {
         return b.select(greater(b, x, 1), like(b, x, 1),
                         b.select(less(b, x, -1), like(b, x, -1), x));
       }},
      {"mish",
       [](Builder& b, ValueId x, Args) { return b.mul(x, b.unary("tanh", softplus(b, x))); }},
      {"logsigmoid", [](Builder& b, ValueId x, Args) { return b.neg(softplus(b, b.neg(x))); }},
      {"softmax",
       [](Builder& b, ValueId x, Args args) { return softmax(b, x, {args.integer("axis")}); }},
      {"logsoftmax",
       [](Builder& b, ValueId x, Args args) { return log_softmax(b, x, {args.integer("axis")}); }},
      {"sparsemax",
       [](Builder& b, ValueId x, Args args) { return sparsemax(b, x, args.integer("axis")); }},
      {"threshold",
       [](Builder& b, ValueId x, Args args) {
         return b.select(greater(b, x, args.number("threshold")), x,
                         like(b, x, args.number("default_value")));
       }},
  };
  return kTable;
}

std::vector<int64_t> normal_axes(Builder& b, ValueId x, const std::vector<int64_t>& axes) {
  std::vector<int64_t> out;
  for (const int64_t axis : axes) {
    out.push_back(axis_of(b, x, axis));
  }
  return out;
}

// x less the whole part of its maximum over `axes`: exp() of it cannot overflow. The shift cancels
// in the result, and floor() passes no gradient, so none is computed for it. In float16 it is the
// next whole number, so that sums of 24,000 classes and more do not overflow either.
ValueId shifted(Builder& b, ValueId x, const std::vector<int64_t>& axes) {
  const ValueId top = b.reduce_max(x, axes, /*keepdims=*/true);
  const bool is_half = b.dtype(x) == DType::kFloat16;
  return b.sub(x, is_half ? b.neg(b.unary("floor", b.neg(top))) : b.unary("floor", top));
}

}  // namespace

ValueId relu(Builder& b, ValueId x, double negative_slope, double max_value, double threshold) {
  if (negative_slope != 0 && max_value == kInfinity && threshold == 0) {
    return leaky_relu(b, x, negative_slope);
  }
  ValueId out;
  if (threshold != 0) {
    out = b.select(greater(b, x, threshold), x, like(b, x, 0));
  } else {
    out = b.unary("relu", x);
  }
  if (max_value == 6 && threshold == 0) {
    out = relu6(b, x);  // which has no derivative at 6, where others have a half
  } else if (max_value != kInfinity) {
    out = b.clamp(out, 0, max_value);
  }
  if (negative_slope != 0) {
    const ValueId below = b.unary("relu", b.add(b.neg(x), threshold));
    out = b.sub(out, b.mul(below, negative_slope));
  }
  return out;
}

ValueId leaky_relu(Builder& b, ValueId x, double negative_slope) {
  return b.select(b.binary("ge", x, like(b, x, 0)), x, b.mul(x, negative_slope));
}

ValueId elu(Builder& b, ValueId x, double alpha) {
  return positive_or(b, x, [&](ValueId safe) { return b.mul(b.unary("expm1", safe), alpha); });
}

ValueId softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes_given) {
  const std::vector<int64_t> axes = normal_axes(b, x, axes_given);
  const ValueId e = b.exp(shifted(b, x, axes));
  return b.div(e, b.reduce_sum(e, axes, /*keepdims=*/true));
}

ValueId log_softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes_given) {
  const std::vector<int64_t> axes = normal_axes(b, x, axes_given);
  const ValueId shift = shifted(b, x, axes);
  return b.sub(shift, b.log(b.reduce_sum(b.exp(shift), axes, /*keepdims=*/true)));
}

Shape activation_shape(const ConfigValue& activation, Shape shape, std::string& problem) {
  const NamedValue name = named_value(activation);
  const bool has_axis = name.key == "glu" || name.key == "softmax" || name.key == "logsoftmax" ||
                        name.key == "sparsemax";
  if (!has_axis) {
    return shape;
  }
  const int64_t axis = all_arguments(Category::kActivation, name.key, name.object).integer("axis");
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis < -rank || axis >= rank) {
    problem = fmt::format("`{}` finds no axis {} in its input", name.spelled, axis);
  } else if (name.key == "glu") {
    int64_t& size = shape[static_cast<size_t>(normal_axis(axis, shape.size()))];
    if (size != kUnknownDim && size % 2 != 0) {
      problem = fmt::format("`glu` needs an even size to split, not {}", size);
    }
    size = size == kUnknownDim ? size : size / 2;
  }
  return shape;
}

ValueId add_activation(Builder& builder, const ConfigValue& activation, ValueId x) {
  const NamedValue name = named_value(activation);
  if (name.key.empty() || name.key == "none") {
    return x;
  }
  const ClassSpec* const spec = class_of_key(Category::kActivation, name.key);
  const auto found = activation_table().find(spec == nullptr ? name.key : name_key(spec->name));
  if (found == activation_table().end()) {
    throw ConfigError("E122", activation.loc, fmt::format("unknown activation `{}`", name.spelled));
  }
  return found->second(builder, x, all_arguments(Category::kActivation, found->first, name.object));
}

}  // namespace meshtrain
