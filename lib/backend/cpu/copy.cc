#include "backend/cpu/copy.h"

#include <algorithm>
#include <array>

#include "backend/cpu/lowering.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kTile = 32;        // edge of a transposed tile
constexpr int64_t kRunBytes = 4096;  // of one unit of a straight copy

// A plane of two dimensions, `from` adjacent in the first and `to` in the second, by tiles.
template <class T>
void transpose_rows(const std::byte* from, std::byte* to, int64_t rows, int64_t columns,
                    int64_t from_column, int64_t to_row) {
  const T* in = reinterpret_cast<const T*>(from);
  T* out = reinterpret_cast<T*>(to);
  for (int64_t j = 0; j < columns; j += kTile) {
    const int64_t end = std::min(j + kTile, columns);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = j; c < end; ++c)
        out[i * to_row + c] = in[i + c * from_column];
    }
  }
}

// Runs along the last dimension; a unit is a chunk of a run.
class RunCopy final : public Kernel {
 public:
  RunCopy(const StridedLoop& loop, const View& from, const View& to)
      : loop_(loop), from_(from.data), to_(to.data), item_size_(from.item_size()) {
    reads_ = whole_access(from, false);
    writes_ = whole_access(to, true);
    to_contiguous_ = is_contiguous(to);
    run_ = loop.sizes.back();
    for (size_t d = 0; d + 1 < loop.rank(); ++d)
      rows_ *= loop.sizes[d];
    const int64_t chunk = elements_of_unit(rows_ * run_, kRunBytes / item_size_);
    chunks_ = std::max<int64_t>((run_ + chunk - 1) / chunk, 1);
    chunk_ = (run_ + chunks_ - 1) / chunks_;
    chunks_ = chunk_ > 0 ? (run_ + chunk_ - 1) / chunk_ : 0;
    // Straight copies: the bytes of a unit of `from` are known as well.
    from_contiguous_ = is_contiguous(from) && rows_ == 1;
  }
  int64_t units() const override { return rows_ * chunks_; }
  double cost() const override {
    const bool straight = loop_.strides[0].back() == 1 && loop_.strides[1].back() == 1;
    return static_cast<double>(rows_ * run_) * (straight ? 0.02 * item_size_ : 1.0) +
           static_cast<double>(rows_) * 2;
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    const size_t outer = loop_.rank() - 1;
    const std::array<const int64_t*, 2> strides = {loop_.strides[0].data(),
                                                   loop_.strides[1].data()};
    const int64_t from_stride = strides[0][outer], to_stride = strides[1][outer];
    const auto copy = [&](const std::array<int64_t, 2>& at, int64_t rows, int64_t column) {
      const Rows block{.rows = rows,
                       .size = std::min(chunk_, run_ - column),
                       .from_row = outer == 0 ? 0 : strides[0][outer - 1],
                       .to_row = outer == 0 ? 0 : strides[1][outer - 1],
                       .from = from_stride,
                       .to = to_stride};
      copy_rows(from_ + (at[0] + column * from_stride) * item_size_,
                to_ + (at[1] + column * to_stride) * item_size_, item_size_, block);
    };
    if (chunks_ == 1) {
      walk_rows(loop_.sizes, strides, outer, begin, end - begin,
                [&](const auto& at, int64_t rows) { copy(at, rows, 0); });
      return;
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      walk_rows(loop_.sizes, strides, outer, unit / chunks_, 1,
                [&](const auto& at, int64_t rows) { copy(at, rows, unit % chunks_ * chunk_); });
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = (begin / chunks_ * run_ + begin % chunks_ * chunk_) * item_size_;
    const int64_t last_column = std::min((end - 1) % chunks_ * chunk_ + chunk_, run_);
    const int64_t stop = ((end - 1) / chunks_ * run_ + last_column) * item_size_;
    out.push_back(from_contiguous_ ? Access{from_ + first, from_ + stop, false} : reads_);
    out.push_back(to_contiguous_ ? Access{to_ + first, to_ + stop, true} : writes_);
  }

 private:
  StridedLoop loop_;
  const std::byte* from_;
  std::byte* to_;
  int64_t item_size_, run_ = 1, rows_ = 1, chunk_ = 1, chunks_ = 1;
  bool to_contiguous_ = false, from_contiguous_ = false;
  Access reads_, writes_;
};

// `from` is adjacent in some dimension other than the last: tiles over that one and the last.
class TransposeCopy final : public Kernel {
 public:
  TransposeCopy(const StridedLoop& loop, size_t unit_dim, const View& from, const View& to)
      : from_(from.data), to_(to.data), item_size_(from.item_size()) {
    reads_ = whole_access(from, false);
    writes_ = whole_access(to, true);
    rows_ = loop.sizes[unit_dim];
    columns_ = loop.sizes.back();
    from_column_ = loop.strides[0].back();
    to_row_ = loop.strides[1][unit_dim];
    outer_.strides.resize(2);
    for (size_t d = 0; d + 1 < loop.rank(); ++d) {
      if (d == unit_dim)
        continue;
      outer_.sizes.push_back(loop.sizes[d]);
      outer_.strides[0].push_back(loop.strides[0][d]);
      outer_.strides[1].push_back(loop.strides[1][d]);
      planes_ *= loop.sizes[d];
    }
    bands_ = (rows_ + kTile - 1) / kTile;
  }
  int64_t units() const override { return planes_ * bands_; }
  double cost() const override { return static_cast<double>(planes_ * rows_ * columns_) * 0.6; }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t plane = unit / bands_;
      const int64_t row = unit % bands_ * kTile;
      const size_t rank = outer_.rank();
      const int64_t in = offset_of(outer_.sizes, outer_.strides[0], rank, plane) + row;
      const int64_t out = offset_of(outer_.sizes, outer_.strides[1], rank, plane) + row * to_row_;
      dispatch_size(item_size_, [&]<class T>(T) {
        transpose_rows<T>(from_ + in * item_size_, to_ + out * item_size_,
                          std::min(kTile, rows_ - row), columns_, from_column_, to_row_);
      });
    }
  }
  void accesses(int64_t, int64_t, std::vector<Access>& out) const override {
    out.push_back(reads_);
    out.push_back(writes_);
  }

 private:
  StridedLoop outer_;
  const std::byte* from_;
  std::byte* to_;
  int64_t item_size_, rows_, columns_, from_column_, to_row_, planes_ = 1, bands_ = 1;
  Access reads_, writes_;
};

class Fill final : public Kernel {
 public:
  Fill(const View& to, double value) : to_(to.data), item_size_(to.item_size()) {
    store_value(value_, to.dtype, value);
    total_ = num_elements(to.shape);
  }
  int64_t units() const override { return (total_ + kRunBytes - 1) / kRunBytes; }
  double cost() const override { return static_cast<double>(total_ * item_size_) * 0.02; }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    const int64_t first = begin * kRunBytes;
    fill_elements(to_ + first * item_size_, value_, item_size_,
                  std::min(end * kRunBytes, total_) - first);
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    out.push_back({to_ + begin * kRunBytes * item_size_,
                   to_ + std::min(end * kRunBytes, total_) * item_size_, true});
  }

 private:
  std::byte* to_;
  int64_t item_size_, total_;
  alignas(8) std::byte value_[8] = {};
};

class Iota final : public Kernel {
 public:
  Iota(const View& to, size_t axis, int64_t start) : to_(to), size_(to.shape[axis]), start_(start) {
    total_ = num_elements(to.shape);
    for (size_t d = axis + 1; d < to.rank(); ++d)
      inner_ *= to.shape[d];
  }
  double cost() const override { return static_cast<double>(total_); }
  void run(int64_t, int64_t, std::byte*) const override {
    dispatch_compute(to_.dtype, [&]<class T>(T) {
      T* out = reinterpret_cast<T*>(to_.data);
      for (int64_t i = 0; i < total_; ++i)
        out[i] = static_cast<T>(start_ + i / inner_ % size_);
    });
  }
  void accesses(int64_t, int64_t, std::vector<Access>& out) const override {
    out.push_back(whole_access(to_, true));
  }

 private:
  View to_;
  int64_t size_, start_, total_, inner_ = 1;
};

}  // namespace

KernelPtr make_copy(const View& from, const View& to) {
  MESHTRAIN_CHECK(from.shape == to.shape && from.dtype == to.dtype, "copy of {} to {}",
                  shape_string(from.shape), shape_string(to.shape));
  StridedLoop loop{from.shape, {from.strides, to.strides}};
  coalesce(loop);
  const bool run = loop.strides[0].back() == 1 || loop.strides[1].back() != 1;
  if (!run) {
    for (size_t d = 0; d + 1 < loop.rank(); ++d) {
      if (loop.strides[0][d] == 1 && loop.sizes[d] > 1) {
        return std::make_unique<TransposeCopy>(loop, d, from, to);
      }
    }
  }
  return std::make_unique<RunCopy>(loop, from, to);
}

void CpuLowering::make(const CopySpec& spec) {
  if (row_calls_) {
    row_calls_->push_back(
        {RowCall::Kind::kCopy, path_, spec.to.shape, {spec.from}, {}, {{0, spec.to}}});
    return;
  }
  add(make_copy(spec.from, spec.to));
}

void CpuLowering::make(const FillSpec& spec) {
  MESHTRAIN_CHECK(is_contiguous(spec.to));
  add(std::make_unique<Fill>(spec.to, spec.value));
}

void CpuLowering::make(const IotaSpec& spec) {
  const auto& [to, axis, start] = spec;
  MESHTRAIN_CHECK(is_contiguous(to) && axis < to.rank());
  View wide = computed(to);
  wide.data = written(to.dtype, to.data, num_elements(to.shape));
  add(std::make_unique<Iota>(wide, axis, start));
}

}  // namespace meshtrain::cpu
