// Along one dimension: the place of the largest, running sums, the k largest. No atomics.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/gpu/kernel_text.h"
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

std::string scanning(const ScanShape& shape) {
  return struct_text("Scanning",
                     {{"outer", shape.outer}, {"size", shape.size}, {"inner", shape.inner}});
}

std::string scan_index(const ScanShape& shape) {
  return index_type(reduction_reach(shape.outer * shape.inner, shape.size + kThreads * kThreads) +
                    (shape.outer + kThreads) * shape.size * shape.inner);
}

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
    body.device = "scan";
    body.function = "argmax";
    body.of = fmt::format("{}, {}, {}, {}", scanning(shape), scan_index(shape),
                          type_name(shape.dtype), candidates != nullptr);
    Launch launch;
    launch.body = reduction_body(body, plan);
    launch.blocks = plan.blocks();
    launch.args = {address(x), address(to), address(candidates)};
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
      make_body("cumsum",
                call_text(by_columns ? "cumsum_columns" : "cumsum_rows",
                          {scanning(shape), scan_index(shape), std::string(type_name(shape.dtype))},
                          !by_columns),
                by_columns ? 0 : kThreads * 8, !by_columns, "scan");
  launch.blocks = by_columns ? blocks_of(rows, kThreads) : static_cast<uint64_t>(rows);
  launch.args = {address(x), address(out)};
  launch.work = 2 * elements;
  const int64_t bytes = elements * size_of(shape.dtype);
  add(std::move(launch), std::vector<Use>{{x, bytes, false}, {out, bytes, true}});
}

void GpuLowering::make(const TopKSpec& spec) {
  const auto& [shape, k, x, values, indices] = spec;
  MESHTRAIN_CHECK(shape.inner == 1 && k <= shape.size, "top {} of {}", k, shape.size);
  if (shape.outer == 0 || k == 0)
    return;
  const auto text = [shape = shape, k = k](std::string_view function, uint64_t number) {
    return call_text(function,
                     {scanning(shape), std::to_string(k), std::to_string(number), scan_index(shape),
                      std::string(type_name(shape.dtype))},
                     function == "top_few");
  };
  const int64_t elements = shape.outer * shape.size;
  Launch launch;
  if (k <= kFewLargest) {
    const bool is_short = shape.size <= 8 * kShortRow;
    const unsigned lanes =
        is_short ? std::min<unsigned>(std::bit_ceil(static_cast<unsigned>(shape.size)), 32)
                 : kThreads;
    launch.body =
        make_body("top_k", text("top_few", lanes), is_short ? 0 : kThreads * 16, true, "scan");
    launch.blocks = blocks_of(shape.outer, kThreads / lanes);
    launch.work = elements * k;
  } else {
    const uint64_t blocks = blocks_of(shape.size, kThreads);
    launch.body = make_body("top_k", text("top_many", blocks), 0, false, "scan");
    launch.blocks = blocks * static_cast<uint64_t>(shape.outer);
    launch.work = elements * shape.size;
  }
  launch.args = {address(x), address(values), address(indices)};
  const int64_t chosen = shape.outer * k;
  add(std::move(launch), std::vector<Use>{{x, elements * size_of(shape.dtype), false},
                                          {values, chosen * size_of(shape.dtype), true},
                                          {indices, chosen * 4, true}});
}

}  // namespace meshtrain::gpu
