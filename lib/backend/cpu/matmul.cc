// Batched matrix products. float32 uses oneDNN's sgemm (measured equal to its matmul primitives
// at our shapes, without creation cost and without allocating through operator new), float64 and
// what sgemm cannot address go to the loops of simd/gemm.cc.
#include <dnnl.h>

#include <algorithm>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/matmul_half.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr double kFlopsOfUnit = 4e6;
constexpr double kMostUnits = 32;  // of a large product; each packs what it reads of A and B
constexpr int64_t kMinRows = 16;   // of a unit; fewer cost nothing but read B once more
constexpr int64_t kMinColumns = 64;
constexpr int64_t kPackedSize = 192;  // rows and columns of a unit that packs B
constexpr double kPackedArea = kPackedSize * kPackedSize;
constexpr double kKeptElements = 1024 * 1024 / 4;  // of B, which stays in a core's cache
// From this depth on, a transposed A is copied some lines at a time. sgemm would pack it from lines
// that are far apart and share few sets of the cache: gradients of kernels took 1.1 to 1.7 times as
// long.
constexpr int64_t kCopiedDepth = 1024;
constexpr int64_t kCopiedLines = 512;

// Describes a matrix of `rows` x `columns` to sgemm: transposed or not, and the leading dimension.
// Returns false when neither describes it.
bool describe(int64_t rows, int64_t columns, int64_t row, int64_t column, bool* transposed,
              int64_t* lines) {
  if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
    *transposed = false;
    *lines = std::max(rows == 1 ? columns : row, int64_t{1});
    return true;
  }
  if ((row == 1 || rows == 1) && (column >= rows || columns == 1)) {
    *transposed = true;
    *lines = std::max(columns == 1 ? rows : column, int64_t{1});
    return true;
  }
  return false;
}

class Matmul final : public Kernel {
 public:
  explicit Matmul(MatmulSpec spec) : spec_(std::move(spec)) {
    item_size_ = static_cast<int64_t>(dtype_size(spec_.dtype));
    own_ = kernels().gemm[type_index(spec_.dtype)];
    add_ = kernels().element[static_cast<int>(ElementOp::k_add)][type_index(spec_.dtype)];
    MESHTRAIN_CHECK(own_ != nullptr, "no matrix product of {}", dtype_name(spec_.dtype));
    use_sgemm_ =
        spec_.dtype == DType::kFloat32 &&
        describe(spec_.m, spec_.k, spec_.a_row, spec_.a_column, &a_transposed_, &a_lines_) &&
        describe(spec_.k, spec_.n, spec_.b_row, spec_.b_column, &b_transposed_, &b_lines_) &&
        (spec_.c_row >= spec_.n || spec_.m == 1) && spec_.k > 0;
    c_lines_ = spec_.m == 1 ? spec_.n : spec_.c_row;
    copies_a_ = use_sgemm_ && a_transposed_ && spec_.k >= kCopiedDepth && spec_.m >= kPackedSize &&
                spec_.n >= kMinColumns;
    divide();
    row_chunks_ = (spec_.m + rows_ - 1) / rows_;
    column_chunks_ = (spec_.n + columns_ - 1) / columns_;
  }

  int64_t units() const override {
    return static_cast<int64_t>(spec_.batches.size()) * row_chunks_ * column_chunks_;
  }
  size_t scratch_bytes() const override {
    if (use_sgemm_)
      return copies_a_ ? static_cast<size_t>(rows_ * kCopiedLines) * sizeof(float) : 0;
    const int64_t products = spec_.accumulate ? rows_ * columns_ * item_size_ : 0;
    return kernels().gemm_scratch_bytes + static_cast<size_t>(products);
  }
  double cost() const override {
    const double flops = 2.0 * static_cast<double>(spec_.m * spec_.n * spec_.k);
    return static_cast<double>(spec_.batches.size()) * (flops / (use_sgemm_ ? 130 : 50) + 400);
  }

  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit)
      multiply(part(unit), scratch);
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    Access a, b, c;
    for (int64_t unit = begin; unit < end; ++unit) {
      const Part p = part(unit);
      extend(a, spec_.a, p.batch.a + p.row * spec_.a_row,
             (p.rows - 1) * spec_.a_row + (spec_.k - 1) * spec_.a_column);
      extend(b, spec_.b, p.batch.b + p.column * spec_.b_column,
             (p.columns - 1) * spec_.b_column + (spec_.k - 1) * spec_.b_row);
      extend(c, spec_.c, p.batch.c + p.row * spec_.c_row + p.column,
             (p.rows - 1) * spec_.c_row + p.columns - 1);
    }
    c.is_write = true;
    out.insert(out.end(), {a, b, c});
  }

 private:
  struct Part {
    MatmulSpec::Batch batch;
    int64_t row, rows, column, columns;
  };

  // Units of a small B, read as it lies, are rows. Another B is packed for each unit anew: then a
  // unit has many rows of a few columns (16 rows took three times as long as 256).
  void divide() {
    const double k = static_cast<double>(std::max<int64_t>(spec_.k, 1));
    const auto m = static_cast<double>(spec_.m), n = static_cast<double>(spec_.n);
    const double elements = std::max(kFlopsOfUnit / (2 * k), m * n / kMostUnits);
    rows_ = chunk(elements / n, kMinRows, spec_.m);
    columns_ = spec_.n;
    if (copies_a_) {
      rows_ = even(m * n < 16 * 4 * kPackedArea ? kPackedSize : 2 * kPackedSize, spec_.m);
      columns_ = even(m * n < 8 * 2 * kPackedArea ? kPackedSize : 2 * kPackedSize, spec_.n);
    } else if (spec_.m < 2 * kMinRows) {
      columns_ = chunk(elements / m, kMinColumns, spec_.n);
    } else if (use_sgemm_ && (b_transposed_ || k * n > kKeptElements)) {
      const auto columns = static_cast<double>(std::min(spec_.n, kPackedSize));
      rows_ = even(chunk(elements / columns, kPackedSize, spec_.m), spec_.m);
      columns_ = even(kPackedSize, spec_.n);
    }
  }

  // About `wanted`, a multiple of `unit`, not more than `size`.
  static int64_t chunk(double wanted, int64_t unit, int64_t size) {
    const double most = static_cast<double>(size);
    const int64_t chunk = static_cast<int64_t>(std::min(wanted, most)) / unit * unit;
    return std::clamp<int64_t>(chunk, std::min(unit, size), std::max<int64_t>(size, 1));
  }
  // As many parts of `size` as chunks, of nearly equal sizes.
  static int64_t even(int64_t chunk, int64_t size) {
    const int64_t parts = (size + chunk - 1) / chunk, part = (size + parts - 1) / parts;
    return std::min((part + kMinRows - 1) / kMinRows * kMinRows, size);
  }

  Part part(int64_t unit) const {
    Part p;
    const int64_t column = unit % column_chunks_ * columns_;
    unit /= column_chunks_;
    const int64_t row = unit % row_chunks_ * rows_;
    p.batch = spec_.batches[static_cast<size_t>(unit / row_chunks_)];
    p.row = row;
    p.rows = std::min(rows_, spec_.m - row);
    p.column = column;
    p.columns = std::min(columns_, spec_.n - column);
    return p;
  }

  void extend(Access& access, const std::byte* base, int64_t first, int64_t reach) const {
    const std::byte* begin = base + first * item_size_;
    const std::byte* end = begin + (reach + 1) * item_size_;
    if (access.begin == nullptr) {
      access.begin = begin;
      access.end = end;
    }
    access.begin = std::min(access.begin, begin);
    access.end = std::max(access.end, end);
  }

  void multiply_lines(const Part& p, int64_t k, const float* a, int64_t a_lines, const float* b,
                      bool accumulate, float* c) const {
    const dnnl_status_t status =
        dnnl_sgemm(a_transposed_ ? 'T' : 'N', b_transposed_ ? 'T' : 'N', p.rows, p.columns, k, 1.0f,
                   a, a_lines, b, b_lines_, accumulate ? 1.0f : 0.0f, c, c_lines_);
    MESHTRAIN_CHECK(status == dnnl_success, "oneDNN cannot multiply: status {}",
                    static_cast<int>(status));
  }

  void multiply_copied(const Part& p, const float* a, const float* b, float* c, float* copy) const {
    for (int64_t first = 0; first < spec_.k; first += kCopiedLines) {
      const int64_t k = std::min(kCopiedLines, spec_.k - first);
      for (int64_t line = 0; line < k; ++line) {
        std::copy_n(a + (first + line) * a_lines_, p.rows, copy + line * p.rows);
      }
      multiply_lines(p, k, copy, p.rows, b + first * spec_.b_row, spec_.accumulate || first > 0, c);
    }
  }

  void multiply(const Part& p, std::byte* scratch) const {
    GemmArgs args;
    args.a = spec_.a + (p.batch.a + p.row * spec_.a_row) * item_size_;
    args.b = spec_.b + (p.batch.b + p.column * spec_.b_column) * item_size_;
    args.c = spec_.c + (p.batch.c + p.row * spec_.c_row + p.column) * item_size_;
    if (use_sgemm_) {
      const auto* a = static_cast<const float*>(args.a);
      const auto* b = static_cast<const float*>(args.b);
      auto* c = static_cast<float*>(args.c);
      if (copies_a_)
        multiply_copied(p, a, b, c, reinterpret_cast<float*>(scratch));
      else
        multiply_lines(p, spec_.k, a, a_lines_, b, spec_.accumulate, c);
      return;
    }
    args.m = p.rows;
    args.n = p.columns;
    args.k = spec_.k;
    args.a_row = spec_.a_row;
    args.a_column = spec_.a_column;
    args.b_row = spec_.b_row;
    args.b_column = spec_.b_column;
    args.c_row = spec_.c_row;
    if (!spec_.accumulate) {
      own_(args, scratch);
      return;
    }
    std::byte* const c = static_cast<std::byte*>(args.c);
    std::byte* const products = scratch + kernels().gemm_scratch_bytes;
    args.c = products;
    args.c_row = p.columns;
    own_(args, scratch);
    for (int64_t r = 0; r < p.rows; ++r) {
      std::byte* const row = c + r * spec_.c_row * item_size_;
      add_(row, row, products + r * p.columns * item_size_, nullptr, p.columns, {});
    }
  }

  MatmulSpec spec_;
  int64_t item_size_ = 4;
  GemmLoop own_ = nullptr;
  ElementLoop add_ = nullptr;  // for sums of products of own_
  bool use_sgemm_ = false, a_transposed_ = false, b_transposed_ = false, copies_a_ = false;
  int64_t a_lines_ = 0, b_lines_ = 0, c_lines_ = 0;
  int64_t rows_ = 1, columns_ = 1, row_chunks_ = 1, column_chunks_ = 1;
};

}  // namespace

void CpuLowering::make(const MatmulSpec& spec) {
  MESHTRAIN_CHECK(!spec.accumulate || !is_half(spec.dtype), "sums of {}", dtype_name(spec.dtype));
  if (is_half(spec.dtype))
    return add(make_half_matmul(spec));
  add(std::make_unique<Matmul>(spec));
}

}  // namespace meshtrain::cpu
