// Ops that need to know where their shard begins in the global tensor.
#include "exec/lower.h"

namespace meshtrain {
namespace {

// make(shard) for every shard; they may run at the same time.
template <class Make>
void add_shards(StepContext& context, Make&& make) {
  context.add(BeginGroup{});
  for (int64_t p = 0; p < context.num_shards(); ++p)
    make(p);
  context.add(EndGroup{});
}

// Global indices of the elements of a shard of `out`, in a tensor of shape `noise`: dimensions of
// size 1 share one number.
RandomShard random_shard(const StepContext& context, const Shape& noise, int64_t shard,
                         const std::byte* step) {
  const Buffer& out = context.output(0);
  RandomShard random;
  random.shape = out.shape;
  random.index_strides = row_major_strides(noise);
  const std::vector<int64_t> start = context.start(out, shard);
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

void lower_iota(StepContext& context) {
  const Buffer& out = context.output(0);
  const size_t axis = static_cast<size_t>(context.attr_int("axis"));
  add_shards(context, [&](int64_t p) {
    context.add(IotaSpec{contiguous_view(context.output_shard(0, p), out.dtype, out.shape), axis,
                         context.start(out, p)[axis]});
  });
}

void lower_random_bits(StepContext& context) {
  add_shards(context, [&](int64_t p) {
    context.add(RandomBitsSpec{
        random_shard(context, context.output(0).global_shape, p, context.input_shard(0, p)),
        context.output_shard(0, p)});
  });
}

void lower_dropout(StepContext& context) {
  add_shards(context, [&](int64_t p) {
    context.add(DropoutSpec{
        random_shard(context, context.attr_ints("noise_shape"), p, context.input_shard(1, p)),
        context.output(0).dtype, context.attr_double("rate"), context.input_shard(0, p),
        context.output_shard(0, p)});
  });
}

void lower_gather_rows(StepContext& context) {
  const Buffer& table = context.input(0);
  LookupShape shape;
  shape.dtype = table.dtype;
  shape.num_ids = num_elements(context.input(1).shape);
  shape.rows = table.shape[0];
  shape.row_elements = num_elements(without_first(table.shape));
  shape.global_rows = table.global_shape[0];
  add_shards(context, [&](int64_t p) {
    shape.start = context.start(table, p)[0];
    context.add(GatherRowsSpec{shape, context.input_shard(0, p), context.input_shard(1, p),
                               context.output_shard(0, p)});
  });
}

void lower_scatter_add_rows(StepContext& context) {
  const Buffer& out = context.output(0);
  LookupShape shape;
  shape.dtype = out.dtype;
  shape.num_ids = num_elements(context.input(1).shape);
  shape.rows = out.shape[0];
  shape.row_elements = num_elements(without_first(out.shape));
  shape.global_rows = out.global_shape[0];
  add_shards(context, [&](int64_t p) {
    shape.start = context.start(out, p)[0];
    context.add(ScatterAddRowsSpec{shape, context.input_shard(0, p), context.input_shard(1, p),
                                   context.output_shard(0, p)});
  });
}

void lower_one_hot(StepContext& context) {
  const Buffer& out = context.output(0);
  LookupShape shape;
  shape.dtype = out.dtype;
  shape.num_ids = num_elements(context.input(0).shape);
  shape.rows = out.shape.back();
  shape.global_rows = out.global_shape.back();
  add_shards(context, [&](int64_t p) {
    shape.start = context.start(out, p).back();
    context.add(OneHotSpec{shape, context.input_shard(0, p), context.output_shard(0, p)});
  });
}

}  // namespace

std::vector<OpLowering> indexed_lowerings() {
  return {
      {"dropout", lower_dropout},
      {"gather_rows", lower_gather_rows},
      {"iota", lower_iota},
      {"one_hot", lower_one_hot},
      {"random_bits", lower_random_bits},
      {"scatter_add_rows", lower_scatter_add_rows},
  };
}

}  // namespace meshtrain
