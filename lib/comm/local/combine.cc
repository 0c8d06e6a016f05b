#include "comm/local/combine.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/group.h"
#include "backend/cpu/types.h"

namespace meshtrain::local {
namespace {

using cpu::Kernel;

constexpr int64_t kElementsOfUnit = 2048;

class Combine final : public Kernel {
 public:
  Combine(Reduction reduction, DType dtype, Region region)
      : to_(region.to),
        sources_(std::move(region.sources)),
        loop_{std::move(region.shape),
              {std::move(region.to_strides), std::move(region.from_strides)}},
        item_size_(static_cast<int64_t>(dtype_size(dtype))),
        combine_(cpu::kernels().combine_many[static_cast<int>(reduction)][cpu::type_index(dtype)]) {
    coalesce(loop_);
    if (loop_.strides[0].back() != 1 || loop_.strides[1].back() != 1) {
      loop_.sizes.push_back(1);  // a region one element wide: rows of one element
      loop_.strides[0].push_back(1);
      loop_.strides[1].push_back(1);
    }
    run_ = std::max<int64_t>(loop_.sizes.back(), 1);
    rows_ = num_elements(loop_.sizes) / run_;
    parts_of_run_ = (run_ + kElementsOfUnit - 1) / kElementsOfUnit;
    rows_of_unit_ = parts_of_run_ > 1 ? 1 : std::max<int64_t>(kElementsOfUnit / run_, 1);
  }

  int64_t units() const override {
    return (rows_ + rows_of_unit_ - 1) / rows_of_unit_ * parts_of_run_;
  }
  double cost() const override {
    const double bytes = static_cast<double>(rows_ * run_ * item_size_);
    return bytes * 0.02 * static_cast<double>(sources_.size() + 1) + static_cast<double>(rows_) * 5;
  }
  size_t scratch_bytes() const override { return sources_.size() * sizeof(void*); }

  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    const void** terms = reinterpret_cast<const void**>(scratch);
    for (int64_t unit = begin; unit < end; ++unit) {
      const Part part = this->part(unit);
      for (int64_t row = part.row; row < part.row_end; ++row) {
        const int64_t from = (from_offset(row) + part.column) * item_size_;
        std::byte* to = to_ + (to_offset(row) + part.column) * item_size_;
        if (sources_.size() == 1) {
          std::memcpy(to, sources_[0] + from, static_cast<size_t>(part.columns * item_size_));
          continue;
        }
        for (size_t s = 0; s < sources_.size(); ++s)
          terms[s] = sources_[s] + from;
        combine_(to, terms, static_cast<int64_t>(sources_.size()), part.columns);
      }
    }
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const Part first = part(begin), last = part(end - 1);
    const bool in_run = first.row + 1 == last.row_end;
    const int64_t low = in_run ? first.column : 0;
    const int64_t high = in_run ? last.column + last.columns : run_;
    // Offsets grow with the row: strides are those of row-major boxes.
    const int64_t last_row = last.row_end - 1;
    const int64_t to_end = (to_offset(last_row) + high) * item_size_;
    const int64_t from_end = (from_offset(last_row) + high) * item_size_;
    out.push_back({to_ + (to_offset(first.row) + low) * item_size_, to_ + to_end, true});
    for (const std::byte* source : sources_) {
      out.push_back(
          {source + (from_offset(first.row) + low) * item_size_, source + from_end, false});
    }
  }

 private:
  struct Part {
    int64_t row, row_end, column, columns;
  };
  Part part(int64_t unit) const {
    const int64_t row = unit / parts_of_run_ * rows_of_unit_;
    const int64_t column = unit % parts_of_run_ * kElementsOfUnit;
    const int64_t columns = parts_of_run_ > 1 ? std::min(kElementsOfUnit, run_ - column) : run_;
    return {row, std::min(row + rows_of_unit_, rows_), column, columns};
  }
  int64_t to_offset(int64_t row) const {
    return offset_of(loop_.sizes, loop_.strides[0], loop_.rank() - 1, row);
  }
  int64_t from_offset(int64_t row) const {
    return offset_of(loop_.sizes, loop_.strides[1], loop_.rank() - 1, row);
  }

  std::byte* to_;
  std::vector<const std::byte*> sources_;
  StridedLoop loop_;
  int64_t item_size_;
  cpu::CombineMany combine_;
  int64_t run_ = 1, rows_ = 1, parts_of_run_ = 1, rows_of_unit_ = 1;
};

}  // namespace

cpu::KernelPtr make_combine(Reduction reduction, DType dtype, std::vector<Region> regions) {
  cpu::KernelList list;
  for (Region& region : regions) {
    list.push_back(std::make_unique<Combine>(reduction, dtype, std::move(region)));
  }
  return cpu::make_group(std::move(list));
}

}  // namespace meshtrain::local
