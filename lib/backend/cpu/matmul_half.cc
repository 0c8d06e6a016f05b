#include "backend/cpu/matmul_half.h"

#include <dnnl.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "backend/cpu/conv_region.h"
#include "backend/cpu/primitive.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

// --- oneDNN's product of bfloat16 (AMX, AVX512-BF16, AVX512) -------------------------------------

using Desc = dnnl::memory::desc;

constexpr double kFlopsOfCall = 1.6e7;  // some 30 us with AMX; a call copies what it is to multiply
constexpr double kFlopsPerNanosecond = 500;
constexpr int64_t kMinLines = 64;  // of a call

struct Product {
  dnnl::primitive primitive;
  Desc a, b, c, scratch;
};

// One of the two distances must be that of neighbours.
bool is_plain(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && row >= columns) || (row == 1 && column >= rows);
}

std::optional<Product> make_product(const MatmulSpec& spec, int64_t rows, int64_t columns) {
  // Distances of lines of one element may be anything.
  const auto fit = [](int64_t size, int64_t distance, int64_t at_least) {
    return size == 1 ? std::max(distance, at_least) : distance;
  };
  return try_primitive([&]() -> std::optional<Product> {
    Product p;
    const auto type = dnnl::memory::data_type::bf16;
    p.a = Desc({rows, spec.k}, type, {spec.a_row, spec.a_column});
    p.b = Desc({spec.k, columns}, type, {spec.b_row, spec.b_column});
    p.c = Desc({rows, columns}, type, {fit(rows, spec.c_row, columns), 1});
    const dnnl::matmul::primitive_desc description({p.a, p.b, p.c}, own_scratch(), dnnl_engine());
    if (std::string_view(description.impl_info_str()).find("ref") != std::string_view::npos)
      return std::nullopt;
    p.primitive = dnnl::matmul(description);
    p.scratch = description.scratchpad_desc();
    return p;
  });
}

// Null where oneDNN has no fast product of these.
KernelPtr make_dnnl_product(const MatmulSpec& spec) {
  if (spec.dtype != DType::kBFloat16 || spec.k == 0 || spec.m == 0 || spec.n == 0 ||
      !is_plain(spec.m, spec.k, spec.a_row, spec.a_column) ||
      !is_plain(spec.k, spec.n, spec.b_row, spec.b_column) || (spec.m > 1 && spec.c_row < spec.n)) {
    return nullptr;
  }
  // Calls share the longer side of the result.
  const double flops = 2.0 * static_cast<double>(spec.m * spec.n * spec.k);
  const bool by_rows = spec.m > spec.n;
  const int64_t lines = by_rows ? spec.m : spec.n;
  const auto wanted = static_cast<int64_t>(flops / kFlopsOfCall) + 1;
  const int64_t chunk = std::min(lines, round_up(ceil_div(lines, wanted), kMinLines));
  std::map<int64_t, Product> products;  // by the number of lines
  for (int64_t begin = 0; begin < lines; begin += chunk) {
    const int64_t size = std::min(chunk, lines - begin);
    if (products.count(size) != 0)
      continue;
    auto product = make_product(spec, by_rows ? size : spec.m, by_rows ? spec.n : size);
    if (!product)
      return nullptr;
    products.emplace(size, std::move(*product));
  }
  auto calls = std::make_unique<PrimitiveCalls>(static_cast<double>(spec.batches.size()) *
                                                (flops / kFlopsPerNanosecond + 1500));
  for (const MatmulSpec::Batch& batch : spec.batches) {
    for (int64_t begin = 0; begin < lines; begin += chunk) {
      const Product& p = products.at(std::min(chunk, lines - begin));
      const int64_t row = by_rows ? begin : 0, column = by_rows ? 0 : begin;
      calls->add(p.primitive, p.scratch,
                 {{DNNL_ARG_SRC, &p.a, spec.a + 2 * (batch.a + row * spec.a_row), false},
                  {DNNL_ARG_WEIGHTS, &p.b, spec.b + 2 * (batch.b + column * spec.b_column), false},
                  {DNNL_ARG_DST, &p.c, spec.c + 2 * (batch.c + row * spec.c_row + column), true}});
    }
  }
  return calls;
}

// --- blocks, widened and multiplied in float32 ---------------------------------------------------

class WideProduct final : public Kernel {
 public:
  explicit WideProduct(const MatmulSpec& spec)
      : spec_(spec),
        widen_(kernels().cast[type_index(spec.dtype)][kTypeF32]),
        narrow_(kernels().cast[kTypeF32][type_index(spec.dtype)]) {
    // Where the result is small, narrower units, so that several workers have work.
    const bool is_small = spec.m * spec.n * static_cast<int64_t>(spec.batches.size()) < kFewUnits;
    columns_ = is_small ? kBlock / 4 : kBlock;
    row_blocks_ = ceil_div(spec.m, kBlock);
    column_blocks_ = ceil_div(spec.n, columns_);
  }

  int64_t units() const override {
    return static_cast<int64_t>(spec_.batches.size()) * row_blocks_ * column_blocks_;
  }
  size_t scratch_bytes() const override {
    return (2 * kBlock * kDepth + kBlock * kBlock) * sizeof(float);
  }
  double cost() const override {
    const double flops = 2.0 * static_cast<double>(spec_.m * spec_.n * spec_.k);
    return static_cast<double>(spec_.batches.size()) * (flops / 80 + 600);
  }
  // Reads all of the operands' batches; units of the result interleave.
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t of_batch = row_blocks_ * column_blocks_;
    for (int64_t i = begin / of_batch; i <= (end - 1) / of_batch; ++i) {
      const MatmulSpec::Batch& batch = spec_.batches[static_cast<size_t>(i)];
      const int64_t k = std::max<int64_t>(spec_.k - 1, 0);
      add(out, spec_.a, batch.a, (spec_.m - 1) * spec_.a_row + k * spec_.a_column, false);
      add(out, spec_.b, batch.b, k * spec_.b_row + (spec_.n - 1) * spec_.b_column, false);
      add(out, spec_.c, batch.c, (spec_.m - 1) * spec_.c_row + spec_.n - 1, true);
    }
  }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit % column_blocks_ * columns_;
      const int64_t row = unit / column_blocks_ % row_blocks_ * kBlock;
      const auto batch = static_cast<size_t>(unit / column_blocks_ / row_blocks_);
      multiply(spec_.batches[batch], row, column, reinterpret_cast<float*>(scratch));
    }
  }

 private:
  static constexpr int64_t kBlock = 256;  // rows and columns of a unit
  static constexpr int64_t kDepth = 512;  // terms at a time
  static constexpr int64_t kFewUnits = 4 * kBlock * kBlock;

  static void add(std::vector<Access>& out, const std::byte* data, int64_t first, int64_t reach,
                  bool is_write) {
    out.push_back({data + 2 * first, data + 2 * (first + reach + 1), is_write});
  }

  // rows x columns elements, widened and adjacent by rows, or by columns where those are adjacent.
  // Returns whether they are transposed.
  bool gather(const std::byte* from, int64_t rows, int64_t columns, int64_t row, int64_t column,
              float* to) const {
    const bool transposed = column != 1 && row == 1;
    if (transposed) {
      std::swap(rows, columns);
      std::swap(row, column);
    }
    for (int64_t r = 0; r < rows; ++r, to += columns) {
      const std::byte* line = from + 2 * r * row;
      if (column == 1) {
        widen_(to, line, nullptr, nullptr, columns, {});
        continue;
      }
      for (int64_t c = 0; c < columns; ++c)
        widen_(to + c, line + 2 * c * column, nullptr, nullptr, 1, {});
    }
    return transposed;
  }

  void multiply(const MatmulSpec::Batch& batch, int64_t row, int64_t column, float* a) const {
    const int64_t rows = std::min(kBlock, spec_.m - row);
    const int64_t columns = std::min(columns_, spec_.n - column);
    float* const b = a + kBlock * kDepth;
    float* const c = b + kBlock * kDepth;
    std::fill(c, c + rows * columns, 0.0f);
    for (int64_t k = 0; k < spec_.k; k += kDepth) {
      const int64_t depth = std::min(kDepth, spec_.k - k);
      const bool a_transposed =
          gather(spec_.a + 2 * (batch.a + row * spec_.a_row + k * spec_.a_column), rows, depth,
                 spec_.a_row, spec_.a_column, a);
      const bool b_transposed =
          gather(spec_.b + 2 * (batch.b + k * spec_.b_row + column * spec_.b_column), depth,
                 columns, spec_.b_row, spec_.b_column, b);
      dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', rows, columns, depth, 1.0f, a,
                 a_transposed ? rows : depth, b, b_transposed ? depth : columns, 1.0f, c, columns);
    }
    for (int64_t r = 0; r < rows; ++r) {
      narrow_(spec_.c + 2 * (batch.c + (row + r) * spec_.c_row + column), c + r * columns, nullptr,
              nullptr, columns, {});
    }
  }

  MatmulSpec spec_;
  ElementLoop widen_, narrow_;
  int64_t columns_ = kBlock, row_blocks_ = 1, column_blocks_ = 1;
};

}  // namespace

KernelPtr make_half_matmul(const MatmulSpec& spec) {
  KernelPtr product = make_dnnl_product(spec);
  return product != nullptr ? std::move(product) : std::make_unique<WideProduct>(spec);
}

}  // namespace meshtrain::cpu
