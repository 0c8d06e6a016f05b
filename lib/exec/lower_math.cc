// Reductions, sums of products, and scans along a dimension.
#include <algorithm>

#include "exec/lower.h"
#include "ir/ops/einsum.h"

namespace meshtrain {
namespace {

std::vector<int> all_axes(const StepContext& context) {
  std::vector<int> axes = context.axes();
  axes.insert(axes.end(), context.summed_axes().begin(), context.summed_axes().end());
  return axes;
}

void add_reduce(StepContext& context, Reduction reduction) {
  const Buffer& in = context.input(0);
  const std::vector<int> axes = all_axes(context);
  const View x = context.view_over(axes, in, context.input_base(0), in.shape.size());
  std::vector<bool> reduced(x.rank(), false);
  for (size_t d = context.num_axes(); d < axes.size(); ++d)
    reduced[d] = true;
  for (int64_t axis : context.attr_ints("axes")) {
    reduced[axes.size() + static_cast<size_t>(axis)] = true;
  }
  context.add(ReduceSpec{reduction, x, reduced, context.output_view(0)});
}

constexpr int kAxisLabel = 1000;  // labels below are letters

// Only those of `axes` that a buffer is split (or partial) over are dimensions of it here.
LabelledView labelled(const StepContext& context, const std::vector<int>& axes,
                      const Buffer& buffer, std::byte* base, std::string_view letters) {
  const View all = context.view_over(axes, buffer, base, buffer.shape.size());
  LabelledView out;
  out.view.data = base;
  out.view.dtype = buffer.dtype;
  for (size_t d = 0; d < all.rank(); ++d) {
    const bool is_axis = d < axes.size();
    if (is_axis && (buffer.axes >> axes[d] & 1u) == 0)
      continue;
    out.labels.push_back(is_axis ? kAxisLabel + axes[d] : letters[d - axes.size()]);
    out.view.shape.push_back(all.shape[d]);
    out.view.strides.push_back(all.strides[d]);
  }
  return out;
}

// x as (outer, size, inner); all shards at once when they are laid out as the results.
ScanShape scan_shape(const StepContext& context, size_t axis) {
  const Buffer& x = context.input(0);
  ScanShape shape;
  shape.dtype = x.dtype;
  shape.size = x.shape[axis];
  for (size_t d = 0; d < axis; ++d)
    shape.outer *= x.shape[d];
  for (size_t d = axis + 1; d < x.shape.size(); ++d)
    shape.inner *= x.shape[d];
  if (context.is_uniform())
    shape.outer *= context.num_shards();
  return shape;
}

template <class Make>
void add_scan(StepContext& context, Make&& make) {
  const int64_t shards = context.is_uniform() ? 1 : context.num_shards();
  context.add(BeginGroup{});
  for (int64_t p = 0; p < shards; ++p)
    make(p);
  context.add(EndGroup{});
}

void lower_argmax(StepContext& context) {
  const ScanShape shape = scan_shape(context, static_cast<size_t>(context.attr_int("axis")));
  add_scan(context, [&](int64_t p) {
    context.add(ArgmaxSpec{shape, context.input_shard(0, p), context.output_shard(0, p)});
  });
}

void lower_cumsum(StepContext& context) {
  const ScanShape shape = scan_shape(context, static_cast<size_t>(context.attr_int("axis")));
  add_scan(context, [&](int64_t p) {
    context.add(CumsumSpec{shape, context.input_shard(0, p), context.output_shard(0, p)});
  });
}

void lower_top_k(StepContext& context) {
  const ScanShape shape = scan_shape(context, context.input(0).shape.size() - 1);
  add_scan(context, [&](int64_t p) {
    context.add(TopKSpec{shape, context.attr_int("k"), context.input_shard(0, p),
                         context.output_shard(0, p), context.output_shard(1, p)});
  });
}

void lower_reduce_max(StepContext& context) {
  add_reduce(context, Reduction::kMax);
}

void lower_reduce_min(StepContext& context) {
  add_reduce(context, Reduction::kMin);
}

}  // namespace

void lower_einsum(StepContext& context) {
  const EinsumEquation equation = parse_einsum(context.attr_string("equation"));
  const std::vector<int> axes = all_axes(context);
  std::vector<LabelledView> operands;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    operands.push_back(
        labelled(context, axes, context.input(i), context.input_base(i), equation.operands[i]));
  }
  lower_products(
      operands,
      labelled(context, context.axes(), context.output(0), context.output_base(0), equation.result),
      context.specs);
}

void lower_reduce_sum(StepContext& context) {
  add_reduce(context, Reduction::kSum);
}

std::vector<OpLowering> math_lowerings() {
  return {
      {"argmax", lower_argmax},         {"cumsum", lower_cumsum},
      {"einsum", lower_einsum},         {"reduce_max", lower_reduce_max},
      {"reduce_min", lower_reduce_min}, {"reduce_sum", lower_reduce_sum},
      {"top_k", lower_top_k},
  };
}

}  // namespace meshtrain
