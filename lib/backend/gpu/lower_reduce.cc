// Sums, maxima and minima over any dimensions of any view.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

// The dimensions of one kind; largest steps of x first, so that neighbours in memory come last
// whatever the order of the dimensions is.
StridedLoop loop_over(const View& x, const std::vector<bool>& reduced, bool wanted) {
  std::vector<int64_t> results(x.rank(), 0);  // steps in the result
  int64_t step = 1;
  for (size_t d = x.rank(); d-- > 0;) {
    if (!reduced[d]) {
      results[d] = step;
      step *= x.shape[d];
    }
  }
  std::vector<size_t> order(x.rank());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(x.strides[a]) > std::abs(x.strides[b]);
  });
  StridedLoop loop;
  loop.strides.resize(2);
  for (size_t d : order) {
    if (reduced[d] != wanted)
      continue;
    loop.sizes.push_back(x.shape[d]);
    loop.strides[0].push_back(x.strides[d]);
    loop.strides[1].push_back(results[d]);
  }
  coalesce(loop);
  return loop;
}

// Whether the smallest step that leads to other memory is one of `a`.
bool is_closer(const StridedLoop& a, const StridedLoop& b) {
  const auto closest = [](const StridedLoop& loop) {
    int64_t step = std::numeric_limits<int64_t>::max();
    for (size_t d = 0; d < loop.rank(); ++d) {
      const int64_t size = std::abs(loop.strides[0][d]);
      if (size != 0 && loop.sizes[d] > 1)
        step = std::min(step, size);
    }
    return step;
  };
  return closest(a) < closest(b);
}

}  // namespace

void GpuLowering::make(const ReduceSpec& spec) {
  const auto& [reduction, x, reduced, out] = spec;
  const int64_t outputs = num_elements(out.shape);
  if (outputs == 0)
    return;
  if (row_calls_) {
    row_calls_->push_back(
        {RowCall::Kind::kReduce, path_, x.shape, {x}, {}, {{0, out}}, reduction, reduced});
    return;
  }
  if (num_elements(x.shape) == 0) {
    make(FillSpec{contiguous_view(out.data, out.dtype, {outputs}), neutral(reduction)});
    return;
  }
  const StridedLoop kept = loop_over(x, reduced, false), gone = loop_over(x, reduced, true);
  ReductionBody body;
  body.kind = reduction == Reduction::kSum ? "sum" : "extreme";
  body.device = "reduce";
  body.function = "reduce_view";
  body.outputs = outputs;
  body.terms = num_elements(gone.sizes);
  body.terms_adjacent = is_closer(gone, kept);
  const ReductionPlan plan = plan_reduction(body.outputs, body.terms, body.terms_adjacent, true);
  const DType between = compute_dtype(x.dtype);
  body.value_bytes = static_cast<int64_t>(dtype_size(between));
  View to = out;
  if (plan.parts > 1) {
    to = contiguous_view(scratch(plan.parts * outputs * body.value_bytes), between,
                         {plan.parts, outputs});
  }

  const std::string index =
      index_type(reduction_reach(outputs, body.terms) + reach_of(kept.sizes, kept.strides[0]) +
                 reach_of(gone.sizes, gone.strides[0]) + plan.parts * outputs);
  body.of =
      fmt::format("{}, {}, {}, {},\n{},\n{},\n{}", index, type_name(x.dtype), type_name(to.dtype),
                  reduction_name(reduction), loop_text(kept.sizes, kept.strides[0]),
                  loop_text(gone.sizes, gone.strides[0]), loop_text(kept.sizes, kept.strides[1]));
  Launch launch;
  launch.body = reduction_body(body, plan);
  launch.blocks = plan.blocks();
  launch.args = {address(x.data), address(to.data)};
  launch.work = outputs * body.terms + outputs;
  add(std::move(launch), std::vector<Access>{whole_access(x, false), whole_access(to, true)});
  if (plan.parts > 1)
    make(ReduceSpec{reduction, to, {true, false}, contiguous_view(out.data, out.dtype, {outputs})});
}

}  // namespace meshtrain::gpu
