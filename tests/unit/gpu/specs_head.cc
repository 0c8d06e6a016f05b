// Losses of tokens from logits, and products that are added to what is there.
#include "specs.h"

namespace meshtrain::test {
namespace {

// What a case has beside logits and ids.
enum class Head { kForward, kGradient, kParts, kPartsGradient };

void add_rows(SpecList& list, CrossEntropyShape shape, Head kind, std::string_view name) {
  shape.row = shape.row == 0 ? shape.classes : shape.row;
  const DType loss = shape.loss_dtype();
  const bool has_weights = kind == Head::kGradient || kind == Head::kPartsGradient;
  const bool has_loss = kind == Head::kForward || kind == Head::kGradient;
  std::vector<SpecArray> arrays = {
      {shape.dtype, (shape.tokens - 1) * shape.row + shape.classes, Values::kSigned, has_weights},
      {kI32, shape.tokens, Values::kIds}};
  std::vector<std::byte * CrossEntropySpec::*> results;
  if (has_loss)
    results = {&CrossEntropySpec::loss, &CrossEntropySpec::hits};
  if (kind == Head::kParts)
    results = {&CrossEntropySpec::largest, &CrossEntropySpec::sum, &CrossEntropySpec::picked,
               &CrossEntropySpec::first};
  for (size_t r = 0; r < results.size(); ++r)
    arrays.push_back(result(loss, shape.tokens));
  if (has_weights)
    arrays.push_back({loss, shape.tokens});
  if (kind == Head::kPartsGradient)
    arrays.push_back({loss, shape.tokens, Values::kPositive});
  list.add(fmt::format("head {} {}", dtype_name(shape.dtype), name), arrays,
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             CrossEntropySpec spec;
             spec.shape = shape;
             spec.logits = memory[0];
             spec.ids = memory[1];
             size_t next = 2;
             for (const auto place : results)
               spec.*place = memory[next++];
             if (has_weights)
               spec.weights = memory[next++];
             if (kind == Head::kPartsGradient)
               spec.lse = memory[next++];
             specs.emplace_back(spec);
           })
      .scale = 20;
}

// C += A B, tiny, in tiles and by the library.
void add_sum(SpecList& list, DType dtype, int64_t m, int64_t n, int64_t k, bool adjacent) {
  list.add(fmt::format("sum of products {} {}x{}x{}{}", dtype_name(dtype), m, n, k,
                       adjacent ? "" : ", spread"),
           {{dtype, m * k * (adjacent ? 1 : 2)},
            {dtype, k * n},
            {dtype, m * n, Values::kSigned, true}},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             MatmulSpec spec;
             spec.dtype = dtype;
             spec.a = memory[0];
             spec.b = memory[1];
             spec.c = memory[2];
             spec.m = m;
             spec.n = n;
             spec.k = k;
             spec.a_row = adjacent ? k : 2 * k;
             spec.a_column = adjacent ? 1 : 2;
             spec.b_row = n;
             spec.b_column = 1;
             spec.c_row = n;
             spec.batches = {{}};
             spec.accumulate = true;
             specs.emplace_back(spec);
           })
      .scale = 20;
}

}  // namespace

std::vector<KernelCase> head_specs() {
  SpecList list;
  for (const DType dtype : float_dtypes()) {
    for (const int64_t classes : {10, 70, 1500}) {
      CrossEntropyShape shape;
      shape.dtype = dtype;
      shape.tokens = 19;
      shape.classes = shape.global_classes = classes;
      add_rows(list, shape, Head::kForward, fmt::format("{} classes", classes));
      add_rows(list, shape, Head::kGradient, fmt::format("{} classes, gradient", classes));
      shape.start = 4;
      shape.global_classes += 8;
      shape.row = classes + 3;
      add_rows(list, shape, Head::kParts, fmt::format("{} classes of a shard", classes));
      add_rows(list, shape, Head::kPartsGradient,
               fmt::format("{} classes of a shard, gradient", classes));
    }
  }
  for (const DType dtype : {kF32, kF64}) {
    add_sum(list, dtype, 5, 7, 9, true);
    add_sum(list, dtype, 70, 90, 33, true);
    add_sum(list, dtype, 70, 90, 33, false);
  }
  return list.take();
}

}  // namespace meshtrain::test
