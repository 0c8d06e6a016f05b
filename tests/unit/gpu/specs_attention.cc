// Attention and rotary positions.
#include "specs.h"

namespace meshtrain::test {
namespace {

// Which of the optional operands a case has.
struct Masks {
  bool queries_and_keys = false, segments = false, positions = false, pairs = false;
};

// Adds the forward pass and the gradient.
void add_attention(SpecList& list, AttentionShape shape, const Masks& has, std::string_view name) {
  const int64_t queries = shape.batch * shape.queries, keys = shape.batch * shape.keys;
  const DType lse = shape.dtype == kF64 ? kF64 : kF32;
  const auto array = [](DType dtype, int64_t size, Values values) {
    return SpecArray{dtype, size, values};
  };
  const SpecArray q{shape.dtype, queries * shape.heads * shape.head_size};
  const SpecArray k{shape.dtype, keys * shape.groups * shape.head_size};
  const SpecArray v{shape.dtype, keys * shape.groups * shape.value_size};
  const SpecArray o{shape.dtype, queries * shape.heads * shape.value_size};
  const SpecArray row{lse, queries * shape.heads, Values::kPositive};
  std::vector<SpecArray> masks;
  std::vector<const std::byte * AttentionMasks::*> places;
  const auto add = [&](const std::byte* AttentionMasks::*place, SpecArray operand) {
    places.push_back(place);
    masks.push_back(operand);
  };
  if (shape.rate > 0)
    add(&AttentionMasks::step, array(DType::kInt64, 1, Values::kStep));
  if (has.queries_and_keys) {
    add(&AttentionMasks::query_mask, array(kBool, queries, Values::kBool));
    add(&AttentionMasks::key_mask, array(kBool, keys, Values::kBool));
  }
  if (has.segments) {
    add(&AttentionMasks::query_segments, array(kI32, queries, Values::kSmallIntegers));
    add(&AttentionMasks::key_segments, array(kI32, keys, Values::kSmallIntegers));
  }
  if (has.positions) {
    add(&AttentionMasks::query_positions, array(kI32, queries, Values::kIds));
    add(&AttentionMasks::key_positions, array(kI32, keys, Values::kIds));
  }
  if (has.pairs) {
    const int64_t of_mask = (shape.mask_has_batch ? shape.batch : 1) *
                            (shape.mask_has_heads ? shape.heads : 1) * shape.queries * shape.keys;
    add(&AttentionMasks::mask, array(kBool, of_mask, Values::kBool));
  }
  const auto masks_at = [places](const SpecPointers& memory, size_t first) {
    AttentionMasks out;
    for (size_t i = 0; i < places.size(); ++i)
      out.*places[i] = memory[first + i];
    return out;
  };
  const auto with_masks = [&](std::vector<SpecArray> arrays) {
    arrays.insert(arrays.end(), masks.begin(), masks.end());
    return arrays;
  };
  const std::string what = fmt::format("attention {} {}", dtype_name(shape.dtype), name);
  const auto given = [](SpecArray operand) {
    operand.values = Values::kResult;
    return operand;
  };
  list.add(what, with_masks({q, k, v, given(o), given(row)}),
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(AttentionSpec{shape, memory[0], memory[1], memory[2],
                                              masks_at(memory, 5), memory[3], memory[4]});
           })
      .scale = 4;
  list.add(what + " gradient", with_masks({q, k, v, o, row, o, row, given(q), given(k), given(v)}),
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(AttentionGradSpec{
                 shape, memory[0], memory[1], memory[2], memory[3], memory[4], memory[5], memory[6],
                 masks_at(memory, 10), memory[7], memory[8], memory[9]});
           })
      .scale = 200;
}

}  // namespace

std::vector<KernelCase> attention_specs() {
  SpecList list;
  for (DType dtype : float_dtypes()) {
    AttentionShape shape;
    shape.dtype = dtype;
    shape.batch = 2;
    shape.queries = 13;
    shape.keys = 20;
    shape.heads = 6;
    shape.groups = 3;
    shape.head_size = 5;
    shape.value_size = 7;
    shape.scale = 0.3;
    shape.global_heads = 12;
    shape.global_queries = 26;
    add_attention(list, shape, {}, "of everything");
    shape.causal = true;
    shape.query_start = 13;
    add_attention(list, shape, {.queries_and_keys = true}, "causal with masks");
    shape.window = 4;
    add_attention(list, shape, {.segments = true, .positions = true}, "in a window of positions");
    shape.rate = 0.3;
    shape.seed = 0x123456789ABCDEFu;
    shape.stream = 0x89ABCDEFu;
    shape.batch_start = 2;
    shape.head_start = 6;
    shape.mask_has_heads = true;
    shape.window = 0;
    add_attention(list, shape, {.pairs = true}, "with dropout");
    // Several blocks of several tiles, whole accesses; as rows, and as sizes, of a GPT.
    AttentionShape large;
    large.dtype = dtype;
    large.batch = large.groups = 1;
    large.queries = large.keys = large.global_queries = 150;
    large.heads = large.global_heads = 2;
    large.head_size = large.value_size = 24;
    large.scale = 0.2;
    large.causal = true;
    add_attention(list, large, {}, "of three tiles");
    large.window = 40;
    add_attention(list, large, {}, "of three tiles in a window");
    large.queries = large.keys = large.global_queries = 20;
    large.head_size = large.value_size = 264;  // too long for tiles of float32
    large.scale = 0.02;
    add_attention(list, large, {}, "of long rows");
    for (bool inverse : {false, true}) {
      const RotaryShape rotary{dtype, 3, 9, 2, 10, inverse, inverse};
      const int64_t angles = (inverse ? 3 : 1) * 9 * 5;
      list.add(fmt::format("rotary {} inverse {}", dtype_name(dtype), inverse),
               {{dtype, 540}, {dtype, angles}, {dtype, angles}, result(dtype, int64_t{540})},
               [=](KernelSpecs& specs, const SpecPointers& memory) {
                 specs.emplace_back(RotarySpec{rotary, memory[0], memory[1], memory[2], memory[3]});
               })
          .scale = 1;
    }
  }
  return list.take();
}

}  // namespace meshtrain::test
