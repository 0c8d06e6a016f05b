// Along one dimension: the place of the largest, running sums, the k largest. No atomics.
#include <algorithm>
#include <bit>

#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

// Sizes from which one thread a row is too little, and rows from which it is enough.
constexpr int64_t kShortRow = 32;
constexpr int64_t kManyRows = 8192;
constexpr int64_t kFewLargest = 32;  // so many passes over a row at most

int64_t size_of(DType dtype) {
  return static_cast<int64_t>(dtype_size(dtype));
}

uint64_t blocks_of(int64_t count, int64_t threads) {
  return static_cast<uint64_t>(ceil_div(count, threads));
}

// An element and its place; before() is the order of results: NaN, then the largest, then the
// first.
constexpr std::string_view kEntries = R"(
typedef mt::Compute<T> V;
struct A { V value; int place; };
const A none = {V(0), -1};
auto larger = [](V a, V b) -> bool { return a > b || (a != a && b == b); };
auto before = [=](A a, A b) -> bool {
  return larger(a.value, b.value) || (!larger(b.value, a.value) && a.place < b.place);
};
auto join = [=](A a, A b) -> A {
  return a.place < 0 ? b : b.place < 0 || before(a, b) ? a : b;
};
auto other = [](A a, unsigned lanes) -> A {
  return {(V)__shfl_xor_sync(0xffffffffu, a.value, lanes),
          __shfl_xor_sync(0xffffffffu, a.place, lanes)};
};
const T* x = (const T*)arg[0];
)";

std::string scan_head(const ScanShape& shape) {
  return index_types(reduction_reach(shape.outer * shape.inner, shape.size + kThreads * kThreads) +
                     (shape.outer + kThreads) * shape.size * shape.inner) +
         type_line("T", type_name(shape.dtype)) + constant_line("U", "outer", shape.outer) +
         constant_line("U", "size", shape.size) + constant_line("U", "inner", shape.inner);
}

constexpr std::string_view kArgmax = R"(
int* out = (int*)arg[1];
auto term = [=](U k, U r) -> A {
  const U row = k / inner * size * inner + k % inner;
  const U place = candidates ? (U)((const int*)arg[2])[r * (outer * inner) + k] : r;
  return {mt::load(x + row + place * inner), (int)place};
};
auto result = [=](U k, unsigned part, A a) { out[(U)part * (outer * inner) + k] = a.place; };
)";

// The running sum of each column by one thread.
constexpr std::string_view kCumsumColumns = R"(
typedef mt::Compute<T> V;
const U i = (U)block * kThreads + threadIdx.x;
if (i < outer * inner) {
  const U first = i / inner * size * inner + i % inner;
  const T* x = (const T*)arg[0] + first;
  T* out = (T*)arg[1] + first;
  V sum = V(0);
  for (U s = 0; s < size; ++s) {
    sum = mt::add(sum, mt::load(x + s * inner));
    mt::store(out + s * inner, sum);
  }
}
)";

// One block a row, kThreads * items elements at a time.
constexpr std::string_view kCumsumRows = R"(
typedef mt::Compute<T> V;
constexpr U items = 8;
const U first = block / inner * size * inner + block % inner;
const T* x = (const T*)arg[0] + first;
T* out = (T*)arg[1] + first;
V before = V(0);
for (U begin = 0; begin < size; begin += kThreads * items) {
  const U s = begin + threadIdx.x * items;
  V sums[items], sum = V(0), all;
#pragma unroll
  for (U i = 0; i < items; ++i) {
    if (s + i < size) sum = mt::add(sum, mt::load(x + (s + i) * inner));
    sums[i] = sum;
  }
  mt::block_scan(sum, all, shared);
  const V left = threadIdx.x == 0 ? before : mt::add(before, ((const V*)shared)[threadIdx.x - 1]);
#pragma unroll
  for (U i = 0; i < items; ++i)
    if (s + i < size) mt::store(out + (s + i) * inner, mt::add(left, sums[i]));
  before = mt::add(before, all);
}
)";

// k passes over a row, each for the largest behind the one before.
constexpr std::string_view kTopFew = R"(
T* values = (T*)arg[1];
int* places = (int*)arg[2];
const unsigned lane = threadIdx.x % lanes;
const U row = (U)block * (kThreads / lanes) + threadIdx.x / lanes;
A last = none;
for (U n = 0; n < k; ++n) {
  A best = none;
  if (row < outer) {
    for (U i = lane; i < size; i += lanes) {
      const A entry = {mt::load(x + row * size + i), (int)i};
      if (n == 0 || before(last, entry)) best = join(best, entry);
    }
  }
  for (unsigned d = (lanes < 32u ? lanes : 32u) / 2; d > 0; d /= 2) best = join(best, other(best, d));
  if (lanes > 32u) {
    A* all = (A*)shared;
    __syncthreads();
    all[threadIdx.x] = best;
    __syncthreads();
    for (unsigned d = 0; d < kThreads; d += 32) best = join(best, all[d]);
  }
  if (lane == 0 && row < outer) {
    mt::store(values + row * k + n, best.value);
    places[row * k + n] = best.place;
  }
  last = best;
}
)";

// The place of every element in the order is the number of those before it.
constexpr std::string_view kTopMany = R"(
T* values = (T*)arg[1];
int* places = (int*)arg[2];
const U row = block / blocks, i = (U)(block % blocks) * kThreads + threadIdx.x;
if (i < size) {
  const T* from = x + row * size;
  const A entry = {mt::load(from + i), (int)i};
  U rank = 0;
  for (U j = 0; j < size; ++j) rank += before(A{mt::load(from + j), (int)j}, entry);
  if (rank < k) {
    mt::store(values + row * k + rank, entry.value);
    places[row * k + rank] = entry.place;
  }
}
)";

}  // namespace

void GpuLowering::make(const ArgmaxSpec& spec) {
  const auto& [shape, x, out] = spec;
  const int64_t outputs = shape.outer * shape.inner;
  if (outputs == 0)
    return;
  // The places that parts of a row find are the terms of a second pass.
  const std::byte* candidates = nullptr;
  for (int64_t terms = shape.size;;) {
    ReductionBody body;
    body.kind = "argmax";
    body.outputs = outputs;
    body.terms = terms;
    body.terms_adjacent = shape.inner == 1 && candidates == nullptr;
    body.value_bytes = size_of(shape.dtype) == 8 ? 16 : 8;  // with a place
    const ReductionPlan plan = plan_reduction(outputs, terms, body.terms_adjacent, true);
    std::byte* to = plan.parts == 1 ? out : scratch(plan.parts * outputs * 4);
    body.text = scan_head(shape) + constant_line("bool", "candidates", candidates != nullptr) +
                std::string(kEntries) + std::string(kArgmax);
    Launch launch;
    launch.body = reduction_body(body, plan);
    launch.blocks = plan.blocks();
    launch.args = {reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(to),
                   reinterpret_cast<uint64_t>(candidates)};
    launch.work = outputs * terms;
    std::vector<Use> uses = {{x, outputs * shape.size * size_of(shape.dtype), false},
                             {to, plan.parts * outputs * 4, true}};
    if (candidates != nullptr)
      uses.push_back({candidates, outputs * terms * 4, false});
    add(std::move(launch), uses);
    if (plan.parts == 1)
      return;
    candidates = to;
    terms = plan.parts;
  }
}

void GpuLowering::make(const CumsumSpec& spec) {
  const auto& [shape, x, out] = spec;
  const int64_t rows = shape.outer * shape.inner, elements = rows * shape.size;
  if (elements == 0)
    return;
  const bool by_columns = shape.size <= kShortRow || rows >= kManyRows;
  Launch launch;
  launch.body =
      make_body("cumsum", scan_head(shape) + std::string(by_columns ? kCumsumColumns : kCumsumRows),
                by_columns ? 0 : kThreads * 8, !by_columns);
  launch.blocks = by_columns ? blocks_of(rows, kThreads) : static_cast<uint64_t>(rows);
  launch.args = {reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(out)};
  launch.work = 2 * elements;
  const int64_t bytes = elements * size_of(shape.dtype);
  add(std::move(launch), std::vector<Use>{{x, bytes, false}, {out, bytes, true}});
}

void GpuLowering::make(const TopKSpec& spec) {
  const auto& [shape, k, x, values, indices] = spec;
  MESHTRAIN_CHECK(shape.inner == 1 && k <= shape.size, "top {} of {}", k, shape.size);
  if (shape.outer == 0 || k == 0)
    return;
  std::string text = scan_head(shape) + constant_line("U", "k", k) + std::string(kEntries);
  const int64_t elements = shape.outer * shape.size;
  Launch launch;
  if (k <= kFewLargest) {
    const bool is_short = shape.size <= 8 * kShortRow;
    const unsigned lanes =
        is_short ? std::min<unsigned>(std::bit_ceil(static_cast<unsigned>(shape.size)), 32)
                 : kThreads;
    text += constant_line("unsigned", "lanes", lanes) + std::string(kTopFew);
    launch.body = make_body("top_k", std::move(text), is_short ? 0 : kThreads * 16, true);
    launch.blocks = blocks_of(shape.outer, kThreads / lanes);
    launch.work = elements * k;
  } else {
    const uint64_t blocks = blocks_of(shape.size, kThreads);
    text += constant_line("unsigned", "blocks", static_cast<int64_t>(blocks));
    launch.body = make_body("top_k", std::move(text) + std::string(kTopMany), 0, false);
    launch.blocks = blocks * static_cast<uint64_t>(shape.outer);
    launch.work = elements * shape.size;
  }
  launch.args = {reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(values),
                 reinterpret_cast<uint64_t>(indices)};
  const int64_t chosen = shape.outer * k;
  add(std::move(launch), std::vector<Use>{{x, elements * size_of(shape.dtype), false},
                                          {values, chosen * size_of(shape.dtype), true},
                                          {indices, chosen * 4, true}});
}

}  // namespace meshtrain::gpu
