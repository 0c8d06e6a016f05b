// Matrix products: as few calls of the library as the batches allow; tiny ones, and what the
// library cannot address, by generated kernels.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/runs.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

// Multiplications of a product below which a call of the library (3 to 5 us of mostly fixed time)
// costs more than a kernel that reads its operands through the cache (1 us at this size).
constexpr int64_t kTinyProduct = 1 << 17;
constexpr int64_t kTile = 64;       // rows and columns of C that a block computes
constexpr int64_t kTileDepth = 16;  // of k at a time

bool has_library_type(DType dtype) {
  return is_floating(dtype);
}

// Strides of a matrix of `rows` x `columns`, one of them 1 and the other at least the length of
// its lines; those of dimensions of size 1 do not matter and are made to fit.
bool fit_lines(int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
    column = 1;
    row = rows == 1 ? columns : row;
    return true;
  }
  if ((row == 1 || rows == 1) && column >= rows) {
    row = 1;
    return true;
  }
  return false;
}

// Changes irrelevant strides so that the library accepts them.
bool fit_library(MatmulSpec& spec) {
  if (!has_library_type(spec.dtype) || (spec.c_row < spec.n && spec.m > 1))
    return false;
  spec.c_row = spec.m == 1 ? spec.n : spec.c_row;
  return fit_lines(spec.m, spec.k, spec.a_row, spec.a_column) &&
         fit_lines(spec.k, spec.n, spec.b_row, spec.b_column);
}

Access matrix_access(const MatmulSpec& spec, const std::byte* base, const Shape& sizes,
                     const std::vector<int64_t>& strides, bool is_write) {
  return whole_access({const_cast<std::byte*>(base), spec.dtype, sizes, strides}, is_write);
}

std::vector<Access> accesses_of(const Matmul& product) {
  const MatmulSpec& s = product.spec;
  return {matrix_access(s, s.a, {product.batch, s.m, s.k}, {product.a_step, s.a_row, s.a_column},
                        false),
          matrix_access(s, s.b, {product.batch, s.k, s.n}, {product.b_step, s.b_row, s.b_column},
                        false),
          matrix_access(s, s.c, {product.batch, s.m, s.n}, {product.c_step, s.c_row, 1}, true)};
}

std::string product_text(const Matmul& product) {
  const MatmulSpec& s = product.spec;
  return struct_text("Product", {{"m", s.m},
                                 {"n", s.n},
                                 {"k", s.k},
                                 {"a_step", product.a_step},
                                 {"b_step", product.b_step},
                                 {"c_step", product.c_step},
                                 {"a_row", s.a_row},
                                 {"a_column", s.a_column},
                                 {"b_row", s.b_row},
                                 {"b_column", s.b_column},
                                 {"c_row", s.c_row},
                                 {"accumulate", int64_t{s.accumulate}}});
}

std::string product_index(const Matmul& product, int64_t more) {
  const MatmulSpec& s = product.spec;
  return index_type(
      more + std::max({reach_of({product.batch, s.m, s.k}, {product.a_step, s.a_row, s.a_column}),
                       reach_of({product.batch, s.k, s.n}, {product.b_step, s.b_row, s.b_column}),
                       reach_of({product.batch, s.m, s.n}, {product.c_step, s.c_row, 1})}));
}

Launch tiny_launch(const Matmul& product) {
  const MatmulSpec& s = product.spec;
  ReductionBody body;
  body.kind = "product";
  body.outputs = product.batch * s.m * s.n;
  body.terms = s.k;
  body.terms_adjacent = s.a_column == 1 && s.b_row == 1 && s.k > 1;
  body.value_bytes = static_cast<int64_t>(dtype_size(compute_dtype(s.dtype)));
  const ReductionPlan plan = plan_reduction(body.outputs, body.terms, body.terms_adjacent, false);
  body.device = "product";
  body.function = "tiny_product";
  body.of = fmt::format("{}, {}, {}", product_text(product),
                        product_index(product, reduction_reach(body.outputs, body.terms)),
                        type_name(s.dtype));
  Launch launch;
  launch.body = reduction_body(body, plan);
  launch.blocks = plan.blocks();
  return launch;
}

Launch tiled_launch(const Matmul& product) {
  const MatmulSpec& s = product.spec;
  const int64_t item = static_cast<int64_t>(dtype_size(compute_dtype(s.dtype)));
  Launch launch;
  launch.body = make_body(
      "tiles",
      call_text("tiled_product",
                {product_text(product), std::to_string(kTile), std::to_string(kTileDepth),
                 product_index(product, kTile * kThreads), std::string(type_name(s.dtype))},
                true),
      static_cast<unsigned>(2 * kTile * kTileDepth * item), true, "product");
  launch.blocks = static_cast<uint64_t>(product.batch * ((s.m + kTile - 1) / kTile) *
                                        ((s.n + kTile - 1) / kTile));
  return launch;
}

}  // namespace

void GpuLowering::add(Matmul matmul) {
  std::vector<Access> accesses = accesses_of(matmul);
  commands_.push_back({std::move(matmul), std::move(accesses), path_});
}

// cuBLASLt's batches end at 65,535 (openxla/xla, gemm_rewriter.cc: kMaxBatchCount).
void GpuLowering::add_in_parts(Matmul matmul) {
  constexpr int64_t kMostBatches = int64_t{1} << 15;
  const int64_t item = static_cast<int64_t>(dtype_size(matmul.spec.dtype));
  for (int64_t done = 0; done < matmul.batch; done += kMostBatches) {
    Matmul part = matmul;
    part.batch = std::min(kMostBatches, matmul.batch - done);
    part.spec.a += done * matmul.a_step * item;
    part.spec.b += done * matmul.b_step * item;
    part.spec.c += done * matmul.c_step * item;
    add(std::move(part));
  }
}

void GpuLowering::make(const MatmulSpec& spec) {
  if (spec.m == 0 || spec.n == 0)
    return;
  MatmulSpec whole = spec;
  whole.batches.clear();
  const bool in_library = spec.k > 0 && fit_library(whole);
  std::vector<Places> places;
  for (const MatmulSpec::Batch& batch : spec.batches)
    places.push_back({batch.a, batch.b, batch.c});
  const auto allowed = [&](const Places& step) { return is_forward(step) && step[2] > 0; };
  for (const Run& run : fewest_runs(places, allowed)) {
    const int64_t item = static_cast<int64_t>(dtype_size(spec.dtype));
    Matmul product{whole, run.count, run.step[0], run.step[1], run.step[2]};
    product.spec.a += run.first[0] * item;
    product.spec.b += run.first[1] * item;
    product.spec.c += run.first[2] * item;
    const int64_t multiplications = run.count * spec.m * spec.n * spec.k;
    const bool is_tiny = multiplications <= kTinyProduct;
    if (in_library && !is_tiny) {
      add_in_parts(std::move(product));
      continue;
    }
    Launch launch = is_tiny ? tiny_launch(product) : tiled_launch(product);
    launch.args = {address(product.spec.a), address(product.spec.b), address(product.spec.c)};
    launch.work = 2 * multiplications + run.count * spec.m * spec.n;
    add(std::move(launch), accesses_of(product));
  }
}

}  // namespace meshtrain::gpu
