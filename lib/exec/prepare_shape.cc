// Ops that move elements: copies between views of the same memory layout rules.
#include "exec/prepare.h"

namespace meshtrain {
namespace {

// All elements of each piece as one dimension behind the axes.
View flat_view(const StepContext& context, const Buffer& buffer, std::byte* base) {
  View view = context.view(buffer, base, buffer.shape.size());
  view.shape.resize(context.num_axes());
  view.strides.resize(context.num_axes());
  view.shape.push_back(num_elements(buffer.shape));
  view.strides.push_back(1);
  return view;
}

void add_copy(StepContext& context) {
  context.maker.copy(flat_view(context, context.input(0), context.input_base(0)),
                     flat_view(context, context.output(0), context.output_base(0)));
}

void add_broadcast(StepContext& context) {
  const View to = context.output_view(0);
  View from = context.view(context.input(0), context.input_base(0), context.output(0).shape.size());
  from.shape = to.shape;  // strides are 0 where it is repeated
  context.maker.copy(from, to);
}

void add_transpose(StepContext& context) {
  const View x = context.input_view(0);
  View from = x;
  const std::vector<int64_t>& permutation = context.attr_ints("permutation");
  const size_t first = context.num_axes();
  for (size_t d = 0; d < permutation.size(); ++d) {
    from.shape[first + d] = x.shape[first + static_cast<size_t>(permutation[d])];
    from.strides[first + d] = x.strides[first + static_cast<size_t>(permutation[d])];
  }
  context.maker.copy(from, context.output_view(0));
}

size_t axis_dim(const StepContext& context) {
  return context.num_axes() + static_cast<size_t>(context.attr_int("axis"));
}

// `view` begins `count` elements later along dimension d.
void advance(View& view, size_t d, int64_t count) {
  view.data += count * view.strides[d] * view.item_size();
}

void add_slice(StepContext& context) {
  const View to = context.output_view(0);
  const size_t d = axis_dim(context);
  View from = context.input_view(0);
  advance(from, d, context.attr_int("begin"));
  from.strides[d] *= context.attr_int("stride");
  from.shape = to.shape;
  context.maker.copy(from, to);
}

void add_reverse(StepContext& context) {
  const size_t d = axis_dim(context);
  View from = context.input_view(0);
  advance(from, d, from.shape[d] - 1);
  from.strides[d] = -from.strides[d];
  context.maker.copy(from, context.output_view(0));
}

// The part of the result that begins at `begin` along d and has this operand's size.
View part_of_result(const StepContext& context, size_t d, int64_t begin, int64_t size) {
  View to = context.output_view(0);
  advance(to, d, begin);
  to.shape[d] = size;
  return to;
}

void add_pad(StepContext& context) {
  const size_t d = axis_dim(context);
  const View from = context.input_view(0);
  context.maker.fill(context.output_view(0), context.attr_double("value"));
  context.maker.copy(from, part_of_result(context, d, context.attr_int("before"), from.shape[d]));
}

void add_concat(StepContext& context) {
  const size_t d = axis_dim(context);
  int64_t begin = 0;
  context.maker.begin_group();
  for (size_t i = 0; i < context.step.inputs.size(); ++i) {
    const View from = context.input_view(i);
    if (num_elements(from.shape) > 0) {
      context.maker.copy(from, part_of_result(context, d, begin, from.shape[d]));
    }
    begin += from.shape[d];
  }
  context.maker.end_group();
}

void add_constant(StepContext& context) {
  context.maker.fill(context.output_view(0), context.attr_double("value"));
}

}  // namespace

std::vector<Preparation> shape_preparations() {
  return {
      {"broadcast", add_broadcast},
      {"concat", add_concat},
      {"constant", add_constant},
      {"pad", add_pad},
      {"pin", add_copy},
      {"reshape", add_copy},
      {"reverse", add_reverse},
      {"slice", add_slice},
      {"transpose", add_transpose},
      {"var_use", add_copy},
  };
}

}  // namespace meshtrain
