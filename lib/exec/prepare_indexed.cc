// Ops that need to know where their piece begins in the global tensor.
#include "backend/cpu/copy.h"
#include "backend/cpu/lookup.h"
#include "backend/cpu/random.h"
#include "exec/prepare.h"

namespace meshtrain {
namespace {

// make(piece) for every piece, as kernels that may run at the same time.
template <class Make>
void add_pieces(StepContext& context, Make&& make) {
  cpu::KernelList list;
  for (int64_t p = 0; p < context.num_pieces(); ++p)
    list.push_back(make(p));
  context.add_together(std::move(list));
}

void add_iota(StepContext& context) {
  const Buffer& out = context.output(0);
  const size_t axis = static_cast<size_t>(context.attr_int("axis"));
  add_pieces(context, [&](int64_t p) {
    return cpu::make_iota(cpu::contiguous_view(context.output_piece(0, p), out.dtype, out.shape),
                          axis, context.start(out, p)[axis]);
  });
}

// Global indices of the elements of a piece of `out`, in a tensor of shape `noise`: dimensions of
// size 1 share one number.
cpu::RandomPiece random_piece(const StepContext& context, const Shape& noise, int64_t piece,
                              const std::byte* step) {
  const Buffer& out = context.output(0);
  cpu::RandomPiece random;
  random.shape = out.shape;
  random.index_strides = row_major_strides(noise);
  const std::vector<int64_t> start = context.start(out, piece);
  for (size_t d = 0; d < noise.size(); ++d) {
    if (noise[d] == 1)
      random.index_strides[d] = 0;
    random.first += static_cast<uint64_t>(start[d] * random.index_strides[d]);
  }
  random.seed = static_cast<uint64_t>(context.attr_int("seed"));
  random.stream = static_cast<uint32_t>(context.attr_int("stream"));
  random.step = step;
  return random;
}

void add_random_bits(StepContext& context) {
  add_pieces(context, [&](int64_t p) {
    return cpu::make_random_bits(
        random_piece(context, context.output(0).global_shape, p, context.input_piece(0, p)),
        context.output_piece(0, p));
  });
}

void add_dropout(StepContext& context) {
  add_pieces(context, [&](int64_t p) {
    return cpu::make_dropout(
        random_piece(context, context.attr_ints("noise_shape"), p, context.input_piece(1, p)),
        context.output(0).dtype, context.attr_double("rate"), context.input_piece(0, p),
        context.output_piece(0, p));
  });
}

void add_gather_rows(StepContext& context) {
  const Buffer& table = context.input(0);
  cpu::LookupShape shape;
  shape.dtype = table.dtype;
  shape.num_ids = num_elements(context.input(1).shape);
  shape.rows = table.shape[0];
  shape.row_elements = num_elements(Shape(table.shape.begin() + 1, table.shape.end()));
  shape.global_rows = table.global_shape[0];
  add_pieces(context, [&](int64_t p) {
    shape.start = context.start(table, p)[0];
    return cpu::make_gather_rows(shape, context.input_piece(0, p), context.input_piece(1, p),
                                 context.output_piece(0, p));
  });
}

void add_scatter_add_rows(StepContext& context) {
  const Buffer& out = context.output(0);
  cpu::LookupShape shape;
  shape.dtype = out.dtype;
  shape.num_ids = num_elements(context.input(1).shape);
  shape.rows = out.shape[0];
  shape.row_elements = num_elements(Shape(out.shape.begin() + 1, out.shape.end()));
  shape.global_rows = out.global_shape[0];
  add_pieces(context, [&](int64_t p) {
    shape.start = context.start(out, p)[0];
    return cpu::make_scatter_add_rows(shape, context.input_piece(0, p), context.input_piece(1, p),
                                      context.output_piece(0, p));
  });
}

void add_one_hot(StepContext& context) {
  const Buffer& out = context.output(0);
  cpu::LookupShape shape;
  shape.dtype = out.dtype;
  shape.num_ids = num_elements(context.input(0).shape);
  shape.rows = out.shape.back();
  shape.global_rows = out.global_shape.back();
  add_pieces(context, [&](int64_t p) {
    shape.start = context.start(out, p).back();
    return cpu::make_one_hot(shape, context.input_piece(0, p), context.output_piece(0, p));
  });
}

}  // namespace

std::vector<Preparation> indexed_preparations() {
  return {
      {"dropout", add_dropout},
      {"gather_rows", add_gather_rows},
      {"iota", add_iota},
      {"one_hot", add_one_hot},
      {"random_bits", add_random_bits},
      {"scatter_add_rows", add_scatter_add_rows},
  };
}

}  // namespace meshtrain
