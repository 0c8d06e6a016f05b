// Ops that move elements: copies between views of the same memory layout rules.
#include "exec/lower.h"

namespace meshtrain {
namespace {

// All elements of each shard as one dimension behind the axes.
View flat_view(const StepContext& context, const Buffer& buffer, std::byte* base) {
  View view = context.view(buffer, base, buffer.shape.size());
  view.shape.resize(context.num_axes());
  view.strides.resize(context.num_axes());
  view.shape.push_back(num_elements(buffer.shape));
  view.strides.push_back(1);
  return view;
}

size_t axis_dim(const StepContext& context) {
  return context.num_axes() + static_cast<size_t>(context.attr_int("axis"));
}

// `view` begins `count` elements later along dimension d.
void advance(View& view, size_t d, int64_t count) {
  view.data += count * view.strides[d] * view.item_size();
}

// The part of the result that begins at `begin` along d and has this operand's size.
View part_of_result(const StepContext& context, size_t d, int64_t begin, int64_t size) {
  View to = context.output_view(0);
  advance(to, d, begin);
  to.shape[d] = size;
  return to;
}

void lower_broadcast(StepContext& context) {
  const View to = context.output_view(0);
  View from = context.view(context.input(0), context.input_base(0), context.output(0).shape.size());
  from.shape = to.shape;  // strides are 0 where it is repeated
  context.add(CopySpec{from, to});
}

void lower_transpose(StepContext& context) {
  const View x = context.input_view(0);
  View from = x;
  const std::vector<int64_t>& permutation = context.attr_ints("permutation");
  const size_t first = context.num_axes();
  for (size_t d = 0; d < permutation.size(); ++d) {
    from.shape[first + d] = x.shape[first + static_cast<size_t>(permutation[d])];
    from.strides[first + d] = x.strides[first + static_cast<size_t>(permutation[d])];
  }
  context.add(CopySpec{from, context.output_view(0)});
}

void lower_slice(StepContext& context) {
  const View to = context.output_view(0);
  const size_t d = axis_dim(context);
  View from = context.input_view(0);
  advance(from, d, context.attr_int("begin"));
  from.strides[d] *= context.attr_int("stride");
  from.shape = to.shape;
  context.add(CopySpec{from, to});
}

void lower_reverse(StepContext& context) {
  const size_t d = axis_dim(context);
  View from = context.input_view(0);
  advance(from, d, from.shape[d] - 1);
  from.strides[d] = -from.strides[d];
  context.add(CopySpec{from, context.output_view(0)});
}

void lower_pad(StepContext& context) {
  const size_t d = axis_dim(context);
  const View from = context.input_view(0);
  context.add(FillSpec{context.output_view(0), context.attr_double("value")});
  context.add(
      CopySpec{from, part_of_result(context, d, context.attr_int("before"), from.shape[d])});
}

void lower_concat(StepContext& context) {
  const size_t d = axis_dim(context);
  int64_t begin = 0;
  context.add(BeginGroup{});
  for (size_t i = 0; i < context.step.inputs.size(); ++i) {
    const View from = context.input_view(i);
    if (num_elements(from.shape) > 0) {
      context.add(CopySpec{from, part_of_result(context, d, begin, from.shape[d])});
    }
    begin += from.shape[d];
  }
  context.add(EndGroup{});
}

}  // namespace

void lower_copy(StepContext& context) {
  context.add(CopySpec{flat_view(context, context.input(0), context.input_base(0)),
                       flat_view(context, context.output(0), context.output_base(0))});
}

void lower_constant(StepContext& context) {
  context.add(FillSpec{context.output_view(0), context.attr_double("value")});
}

std::vector<OpLowering> shape_lowerings() {
  return {
      {"broadcast", lower_broadcast},
      {"concat", lower_concat},
      {"constant", lower_constant},
      {"pad", lower_pad},
      {"pin", lower_copy},
      {"reshape", lower_copy},
      {"reverse", lower_reverse},
      {"slice", lower_slice},
      {"stop_gradient", lower_copy},
      {"transpose", lower_transpose},
      {"var_use", lower_copy},
  };
}

}  // namespace meshtrain
