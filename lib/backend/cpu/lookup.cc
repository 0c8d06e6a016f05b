// Lookups by index and their transposes, on one shard of a possibly split vocabulary
// (ir/ops/gather.cc says what a shard computes).
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kBytesOfUnit = 16384;

int64_t rows_of_unit(int64_t row_bytes, int64_t rows) {
  return std::clamp<int64_t>(kBytesOfUnit / std::max<int64_t>(row_bytes, 1), 1,
                             std::max<int64_t>(rows, 1));
}

class Lookup : public Kernel {
 public:
  Lookup(const LookupShape& shape, const std::byte* ids, std::byte* out)
      : shape_(shape), ids_(reinterpret_cast<const int32_t*>(ids)), out_(out) {
    item_size_ = static_cast<int64_t>(dtype_size(shape.dtype));
    row_bytes_ = shape.row_elements * item_size_;
  }

 protected:
  Access ids_access(int64_t first, int64_t last) const {
    const auto* begin = reinterpret_cast<const std::byte*>(ids_ + first);
    return {begin, begin + (last - first) * static_cast<int64_t>(sizeof(int32_t)), false};
  }

  LookupShape shape_;
  const int32_t* ids_;
  std::byte* out_;
  int64_t item_size_, row_bytes_;
};

class GatherRows final : public Lookup {
 public:
  GatherRows(const LookupShape& shape, const std::byte* table, const std::byte* ids, std::byte* out)
      : Lookup(shape, ids, out), table_(table), chunk_(rows_of_unit(row_bytes_, shape.num_ids)) {}
  int64_t units() const override { return (shape_.num_ids + chunk_ - 1) / chunk_; }
  double cost() const override {
    return static_cast<double>(shape_.num_ids) * (5 + 0.1 * static_cast<double>(row_bytes_));
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t i = begin * chunk_; i < std::min(end * chunk_, shape_.num_ids); ++i) {
      const int64_t id = std::clamp<int64_t>(ids_[i], 0, shape_.global_rows - 1) - shape_.start;
      std::byte* place = out_ + i * row_bytes_;
      if (id >= 0 && id < shape_.rows) {
        std::memcpy(place, table_ + id * row_bytes_, static_cast<size_t>(row_bytes_));
      } else {
        std::memset(place, 0, static_cast<size_t>(row_bytes_));
      }
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const int64_t first = begin * chunk_, last = std::min(end * chunk_, shape_.num_ids);
    out.push_back(ids_access(first, last));
    out.push_back({table_, table_ + shape_.rows * row_bytes_, false});
    out.push_back({out_ + first * row_bytes_, out_ + last * row_bytes_, true});
  }

 private:
  const std::byte* table_;
  int64_t chunk_;
};

// A unit owns a range of rows and looks through all ids for them, so that rows are added in the
// order of the ids for any number of threads.
class ScatterAddRows final : public Lookup {
 public:
  ScatterAddRows(const LookupShape& shape, const std::byte* updates, const std::byte* ids,
                 std::byte* out)
      : Lookup(shape, ids, out),
        updates_(updates),
        add_(kernels().element[static_cast<int>(ElementOp::k_add)][type_index(shape.dtype)]) {
    const int64_t ranges =
        std::clamp<int64_t>((shape.num_ids + shape.rows) * row_bytes_ / (4 * kBytesOfUnit), 1, 32);
    chunk_ = (shape.rows + ranges - 1) / ranges;
  }
  int64_t units() const override { return (shape_.rows + chunk_ - 1) / chunk_; }
  double cost() const override {
    return static_cast<double>(shape_.num_ids) * (5 + 0.1 * static_cast<double>(row_bytes_)) +
           static_cast<double>(shape_.rows * row_bytes_) * 0.03;
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    const int64_t first = begin * chunk_, last = std::min(end * chunk_, shape_.rows);
    std::memset(out_ + first * row_bytes_, 0, static_cast<size_t>((last - first) * row_bytes_));
    for (int64_t i = 0; i < shape_.num_ids; ++i) {
      const int64_t id = ids_[i] - shape_.start;
      if (id < first || id >= last)
        continue;
      std::byte* row = out_ + id * row_bytes_;
      add_(row, row, updates_ + i * row_bytes_, nullptr, shape_.row_elements, {});
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    out.push_back(ids_access(0, shape_.num_ids));
    out.push_back({updates_, updates_ + shape_.num_ids * row_bytes_, false});
    out.push_back({out_ + begin * chunk_ * row_bytes_,
                   out_ + std::min(end * chunk_, shape_.rows) * row_bytes_, true});
  }

 private:
  const std::byte* updates_;
  ElementLoop add_;
  int64_t chunk_ = 1;
};

class OneHot final : public Lookup {
 public:
  OneHot(const LookupShape& shape, const std::byte* ids, std::byte* out) : Lookup(shape, ids, out) {
    row_bytes_ = shape.rows * item_size_;
    chunk_ = rows_of_unit(row_bytes_, shape.num_ids);
    store_value(one_, shape.dtype, 1);
  }
  int64_t units() const override { return (shape_.num_ids + chunk_ - 1) / chunk_; }
  double cost() const override {
    return static_cast<double>(shape_.num_ids) * (4 + 0.03 * static_cast<double>(row_bytes_));
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    const int64_t first = begin * chunk_, last = std::min(end * chunk_, shape_.num_ids);
    std::memset(out_ + first * row_bytes_, 0, static_cast<size_t>((last - first) * row_bytes_));
    for (int64_t i = first; i < last; ++i) {
      const int64_t id = ids_[i] - shape_.start;
      if (id >= 0 && id < shape_.rows) {
        std::memcpy(out_ + i * row_bytes_ + id * item_size_, one_, static_cast<size_t>(item_size_));
      }
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const int64_t first = begin * chunk_, last = std::min(end * chunk_, shape_.num_ids);
    out.push_back(ids_access(first, last));
    out.push_back({out_ + first * row_bytes_, out_ + last * row_bytes_, true});
  }

 private:
  int64_t chunk_ = 1;
  alignas(8) std::byte one_[8] = {};
};

}  // namespace

void CpuLowering::make(const GatherRowsSpec& spec) {
  add(std::make_unique<GatherRows>(spec.shape, spec.table, spec.ids, spec.out));
}

void CpuLowering::make(const ScatterAddRowsSpec& spec) {
  const auto& [shape, updates, ids, out] = spec;
  add(std::make_unique<ScatterAddRows>(
      computed(shape), read(shape.dtype, updates, shape.num_ids * shape.row_elements), ids,
      written(shape.dtype, out, shape.rows * shape.row_elements)));
}

void CpuLowering::make(const OneHotSpec& spec) {
  add(std::make_unique<OneHot>(spec.shape, spec.ids, spec.out));
}

}  // namespace meshtrain::cpu
