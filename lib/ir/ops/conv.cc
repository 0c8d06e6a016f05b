// Convolution (cross-correlation, as deep learning has it) over 1 to 3 spatial dimensions, and its
// two transposes. Tensors have channels last; G = C / c groups; windows as in window.h.
//
//   op          operands                                        result
//   conv        x (N, s..., C), kernel (k..., c, F)             y (N, o..., F)
//   conv_dgrad  dy (N, o..., F), kernel (k..., c, F)            `shape` (N, s..., C)
//   conv_wgrad  x (N, s..., C), dy (N, o..., F)                 `shape` (k..., c, F)
//
//   y[n, i, g f + q] = sum over j, p of x[n, cell(i, j), g c + p] * kernel[j, p, g f + q]
//
// with g < G, p < c, q < f = F / G, and cells outside of x zero. Each op is linear in both operands
// and differentiates to the other two. The groups are the major factor of the channel dimensions
// C and F; how many of them a shard has follows from its shapes, so that nothing of the global
// tensor is needed to compute it.
#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"
#include "ir/ops/window.h"

namespace meshtrain {
namespace {

using Types = std::vector<ValueType>;
using Operands = std::span<const ValueType>;
using Ids = std::vector<ValueId>;

// --- shapes --------------------------------------------------------------------------------------

void check_window(const Node& node, const Window& window, size_t num_spatial) {
  MESHTRAIN_OP_CHECK(node, num_spatial >= 1 && num_spatial <= 3, "{} spatial dimensions",
                     num_spatial);
  for (const auto* list :
       {&window.strides, &window.dilations, &window.pads_before, &window.pads_after}) {
    MESHTRAIN_OP_CHECK(node, list->size() == num_spatial, "[{}] for {} spatial dimensions",
                       fmt::join(*list, ", "), num_spatial);
    const bool is_pad = list == &window.pads_before || list == &window.pads_after;
    for (int64_t value : *list) {
      MESHTRAIN_OP_CHECK(node, value >= (is_pad ? 0 : 1), "{} in [{}]", value,
                         fmt::join(*list, ", "));
    }
  }
}

// The shape of y for those of x and the kernel, which are checked.
Shape conv_shape(const Node& node, const Shape& x, const Shape& kernel) {
  MESHTRAIN_OP_CHECK(node, x.size() >= 3 && kernel.size() == x.size(), "x {}, kernel {}",
                     shape_string(x), shape_string(kernel));
  const size_t num_spatial = x.size() - 2;
  const Window window = window_of(node.attrs);
  check_window(node, window, num_spatial);
  const int64_t channels = kernel[num_spatial], filters = kernel[num_spatial + 1];
  MESHTRAIN_OP_CHECK(node, channels >= 1 && x.back() >= 1 && x.back() % channels == 0,
                     "{} channels for a kernel of {}", x.back(), channels);
  MESHTRAIN_OP_CHECK(node, filters >= 1 && filters % (x.back() / channels) == 0,
                     "{} filters for {} groups", filters, x.back() / channels);
  Shape y = {x[0]};
  for (size_t d = 0; d < num_spatial; ++d) {
    const int64_t outputs = window_outputs(window, d, x[d + 1], kernel[d]);
    MESHTRAIN_OP_CHECK(node, kernel[d] >= 1 && outputs >= 1, "kernel {} does not fit into {}",
                       shape_string(kernel), shape_string(x));
    y.push_back(outputs);
  }
  y.push_back(filters);
  return y;
}

void check_floats(const Node& node, Operands operands) {
  check_num_operands(node, operands, 2);
  MESHTRAIN_OP_CHECK(node, is_floating(operands[0].dtype) && operands[0].dtype == operands[1].dtype,
                     "operands of {} and {}", dtype_name(operands[0].dtype),
                     dtype_name(operands[1].dtype));
}

void check_equal(const Node& node, const Shape& found, const Shape& expected) {
  MESHTRAIN_OP_CHECK(node, found == expected, "dy is {}, for y {}", shape_string(found),
                     shape_string(expected));
}

// --- sharding ------------------------------------------------------------------------------------

// The factors of x, kernel and y; the ops differ in which of them is the result, so in which of
// batch, channels and filters is summed.
struct ConvFactors {
  TensorFactors x, kernel, y;
};

enum class Summed { kChannels, kFilters, kBatch };

ConvFactors conv_factors(RuleBuilder& rule, const Shape& x, const Shape& kernel, const Shape& y,
                         Summed summed) {
  const auto factor = [&](int64_t size, Summed own) {
    return own == summed ? rule.reduce(size) : rule.pass(size);
  };
  const size_t num_spatial = x.size() - 2;
  const int64_t channels = kernel[num_spatial];
  const int64_t groups = x.back() / channels;
  const int64_t filters = y.back() / groups;
  const int batch = factor(x[0], Summed::kBatch);
  ConvFactors out{{{batch}}, {}, {{batch}}};
  for (size_t d = 0; d < num_spatial; ++d) {
    out.x.push_back({rule.gather(x[d + 1])});
    out.kernel.push_back({rule.gather(kernel[d])});
    out.y.push_back({rule.gather(y[d + 1])});
  }
  FactorList c_list, f_list, in, group_list;
  if (groups > 1) {
    group_list = {rule.pass(groups)};
  }
  if (groups == 1 || channels > 1) {
    c_list = {factor(channels, Summed::kChannels)};
  }
  if (groups == 1 || filters > 1) {
    f_list = {factor(filters, Summed::kFilters)};
  }
  const auto grouped = [&](const FactorList& list) {
    FactorList all = group_list;
    all.insert(all.end(), list.begin(), list.end());
    return all;
  };
  out.x.push_back(grouped(c_list));
  out.kernel.push_back(c_list);
  out.kernel.push_back(grouped(f_list));
  out.y.push_back(grouped(f_list));
  return out;
}

// Twice the products: every element of y takes part in as many as the kernel has per filter.
double conv_flops(const Shape& kernel, const Shape& y) {
  return 2 * static_cast<double>(num_elements(y)) * static_cast<double>(num_elements(kernel)) /
         static_cast<double>(kernel.back());
}

// --- ops -----------------------------------------------------------------------------------------

OpDef bilinear(std::string_view name) {
  OpDef op;
  op.name = name;
  op.is_product = true;
  op.linearity = [](const Node&) { return Linearity{.any_one = 0b11}; };
  return op;
}

OpDef make_conv() {
  OpDef op = bilinear("conv");
  op.infer = [](const Node& node, Operands operands) {
    check_floats(node, operands);
    return Types{{conv_shape(node, operands[0].shape, operands[1].shape), operands[0].dtype}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    RuleBuilder rule;
    ConvFactors f = conv_factors(rule, operands[0], operands[1], results[0], Summed::kChannels);
    rule.operand(std::move(f.x));
    rule.operand(std::move(f.kernel));
    rule.result(std::move(f.y));
    return rule.take();
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const Window window = window_of(node.attrs);
    const ValueId x = node.inputs[0], kernel = node.inputs[1];
    const Shape x_shape = b.shape(x), kernel_shape = b.shape(kernel);
    return Ids{b.conv_dgrad(g[0], kernel, window, x_shape),
               b.conv_wgrad(x, g[0], window, kernel_shape)};
  };
  op.flops = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    return conv_flops(operands[1], results[0]);
  };
  return op;
}

OpDef make_dgrad() {
  OpDef op = bilinear("conv_dgrad");
  op.infer = [](const Node& node, Operands operands) {
    check_floats(node, operands);
    const Shape& x = node.attr_ints("shape");
    check_equal(node, operands[0].shape, conv_shape(node, x, operands[1].shape));
    return Types{{x, operands[0].dtype}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    RuleBuilder rule;
    ConvFactors f = conv_factors(rule, results[0], operands[1], operands[0], Summed::kFilters);
    rule.operand(std::move(f.y));
    rule.operand(std::move(f.kernel));
    rule.result(std::move(f.x));
    return rule.take();
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const Window window = window_of(node.attrs);
    const ValueId dy = node.inputs[0], kernel = node.inputs[1];
    const Shape kernel_shape = b.shape(kernel);
    return Ids{b.conv(g[0], kernel, window), b.conv_wgrad(g[0], dy, window, kernel_shape)};
  };
  op.flops = [](const Node&, std::span<const Shape> operands, std::span<const Shape>) {
    return conv_flops(operands[1], operands[0]);
  };
  return op;
}

OpDef make_wgrad() {
  OpDef op = bilinear("conv_wgrad");
  op.sums_over_shards = true;
  op.infer = [](const Node& node, Operands operands) {
    check_floats(node, operands);
    const Shape& kernel = node.attr_ints("shape");
    check_equal(node, operands[1].shape, conv_shape(node, operands[0].shape, kernel));
    return Types{{kernel, operands[0].dtype}};
  };
  op.rule = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    RuleBuilder rule;
    ConvFactors f = conv_factors(rule, operands[0], results[0], operands[1], Summed::kBatch);
    rule.operand(std::move(f.x));
    rule.operand(std::move(f.y));
    rule.result(std::move(f.kernel));
    return rule.take();
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const Window window = window_of(node.attrs);
    const ValueId x = node.inputs[0], dy = node.inputs[1];
    const Shape x_shape = b.shape(x);
    return Ids{b.conv_dgrad(dy, g[0], window, x_shape), b.conv(x, g[0], window)};
  };
  op.flops = [](const Node&, std::span<const Shape> operands, std::span<const Shape> results) {
    return conv_flops(results[0], operands[1]);
  };
  return op;
}

}  // namespace

std::vector<OpDef> conv_ops() {
  return {make_conv(), make_dgrad(), make_wgrad()};
}

}  // namespace meshtrain
