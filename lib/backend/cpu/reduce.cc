#include "backend/cpu/reduce.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/copy.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kColumnsOfUnit = 256;
constexpr int64_t kReducedOfUnit = 4096;
constexpr int64_t kSegment = 16384;  // longer reductions are cut, so that workers can share them

// out[o, i] = reduction over r of x[o, r, i]; `outer` any strided dimensions, `inner` adjacent.
struct GroupShape {
  Shape outer;
  std::vector<int64_t> outer_strides;
  int64_t size = 1, stride = 1;  // of the reduced dimension
  int64_t inner = 1;
  // Each outer element stands for `segments` results: of segment_size elements of r, the last
  // fewer.
  int64_t segments = 1, segment_size = 1;
};

class GroupReduce final : public Kernel {
 public:
  GroupReduce(Reduction reduction, GroupShape shape, const View& x, std::byte* out)
      : shape_(std::move(shape)),
        in_(x.data),
        out_(out),
        item_size_(x.item_size()),
        out_size_(is_half(x.dtype) ? 4 : x.item_size()) {
    const int type = type_index(x.dtype);
    rows_loop_ = kernels().reduce_rows[static_cast<int>(reduction)][type];
    columns_loop_ = kernels().reduce_columns[static_cast<int>(reduction)][type];
    reads_ = whole_access(x, false);
    num_outer_ = num_elements(shape_.outer) * shape_.segments;
    x_contiguous_ = is_contiguous(x);
    columns_per_unit_ = std::min(shape_.inner, kColumnsOfUnit);
    columns_units_ = (shape_.inner + columns_per_unit_ - 1) / columns_per_unit_;
    const int64_t row_elements = std::max<int64_t>(shape_.segment_size * columns_per_unit_, 1);
    // A power of two, so that units of kernels on the same rows end at the same rows (chain.h).
    const auto most = static_cast<uint64_t>(std::max<int64_t>(kReducedOfUnit / row_elements, 1));
    if (columns_units_ == 1)
      outers_per_unit_ = std::min(static_cast<int64_t>(std::bit_floor(most)), num_outer_);
    // Rows at one distance can go to the loop in one call.
    uniform_rows_ =
        shape_.inner == 1 && shape_.stride == 1 && shape_.segments == 1 && shape_.outer.size() == 1;
  }

  int64_t units() const override {
    return (num_outer_ + outers_per_unit_ - 1) / outers_per_unit_ * columns_units_;
  }
  double cost() const override {
    return static_cast<double>(num_outer_ * shape_.inner) *
           (static_cast<double>(shape_.segment_size) * (shape_.stride == 1 ? 0.1 : 0.15) + 2);
  }

  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit / columns_units_ * outers_per_unit_;
      const int64_t last = std::min(first + outers_per_unit_, num_outer_);
      const int64_t column = unit % columns_units_ * columns_per_unit_;
      const int64_t columns = std::min(columns_per_unit_, shape_.inner - column);
      if (uniform_rows_) {
        const int64_t distance = shape_.outer_strides[0];
        rows_loop_(out_ + first * out_size_, in_ + first * distance * item_size_, last - first,
                   shape_.size, distance);
        continue;
      }
      for (int64_t o = first; o < last; ++o)
        reduce_one(o, column, columns, scratch);
    }
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = begin / columns_units_ * outers_per_unit_;
    const int64_t last = std::min(((end - 1) / columns_units_ + 1) * outers_per_unit_, num_outer_);
    if (x_contiguous_ && shape_.segments == 1) {
      const int64_t row = shape_.size * shape_.inner * item_size_;
      out.push_back({in_ + first * row, in_ + last * row, false});
    } else {
      out.push_back(reads_);
    }
    const int64_t result = shape_.inner * out_size_;
    if (columns_units_ > 1 && first + 1 == last) {
      const int64_t from = begin % columns_units_ * columns_per_unit_;
      const int64_t to =
          std::min(((end - 1) % columns_units_ + 1) * columns_per_unit_, shape_.inner);
      out.push_back(
          {out_ + first * result + from * out_size_, out_ + first * result + to * out_size_, true});
    } else {
      out.push_back({out_ + first * result, out_ + last * result, true});
    }
  }

 private:
  void reduce_one(int64_t index, int64_t column, int64_t columns, std::byte*) const {
    const int64_t outer = index / shape_.segments;
    const int64_t begin = index % shape_.segments * shape_.segment_size;
    const int64_t n = std::min(shape_.segment_size, shape_.size - begin);
    const std::byte* x =
        in_ + (offset_of(shape_.outer, shape_.outer_strides, shape_.outer.size(), outer) +
               begin * shape_.stride + column) *
                  item_size_;
    std::byte* out = out_ + (index * shape_.inner + column) * out_size_;
    if (shape_.inner == 1 && shape_.stride == 1) {
      rows_loop_(out, x, 1, n, 0);
    } else {
      columns_loop_(out, x, n, columns, shape_.stride);
    }
  }

  GroupShape shape_;
  const std::byte* in_;
  std::byte* out_;
  int64_t item_size_, out_size_;
  int64_t num_outer_ = 1, outers_per_unit_ = 1, columns_per_unit_ = 1, columns_units_ = 1;
  bool x_contiguous_ = false, uniform_rows_ = false;
  ReduceRows rows_loop_;
  ReduceColumns columns_loop_;
  Access reads_;
};

struct Dim {
  int64_t size, stride;
  bool reduced;
};

// Merges neighbours of one kind that are one dimension in memory.
std::vector<Dim> coalesced(const View& x, const std::vector<bool>& reduced) {
  std::vector<Dim> dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (x.shape[d] == 1)
      continue;
    const Dim dim{x.shape[d], x.strides[d], reduced[d]};
    if (!dims.empty() && dims.back().reduced == dim.reduced &&
        dims.back().stride == dim.size * dim.stride) {
      dims.back() = {dims.back().size * dim.size, dim.stride, dim.reduced};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

View view_of(std::byte* data, DType dtype, const std::vector<Dim>& dims) {
  View view{data, dtype, {}, {}};
  for (const Dim& dim : dims) {
    view.shape.push_back(dim.size);
    view.strides.push_back(dim.stride);
  }
  return view;
}

}  // namespace

KernelList make_reduce(Reduction reduction, const View& x, const std::vector<bool>& reduced,
                       const View& out, ScratchAllocator& scratch) {
  KernelList list;
  const DType sums = is_half(x.dtype) ? DType::kFloat32 : x.dtype;  // rounded once, at the end
  std::vector<Dim> dims = coalesced(x, reduced);
  View source = view_of(x.data, x.dtype, dims);
  const auto is_reduced = [](const Dim& dim) { return dim.reduced; };
  // One reduced dimension at a time, the innermost first; what is inside of it must be adjacent.
  for (;;) {
    const auto found = std::find_if(dims.rbegin(), dims.rend(), is_reduced);
    if (found == dims.rend())
      break;
    const size_t r = static_cast<size_t>(dims.rend() - found) - 1;
    int64_t inner = 1;
    bool adjacent = true;
    for (size_t d = dims.size(); d-- > r + 1;) {
      adjacent = adjacent && dims[d].stride == inner;
      inner *= dims[d].size;
    }
    if (!adjacent) {  // a broadcast or permuted operand: copy it first
      View copy = contiguous_view(scratch.take(source.num_bytes()), source.dtype, source.shape);
      list.push_back(make_copy(source, copy));
      for (size_t d = 0; d < dims.size(); ++d)
        dims[d].stride = copy.strides[d];
      source = copy;
      continue;
    }
    GroupShape group;
    for (size_t d = 0; d < r; ++d) {
      if (d > 0 && dims[d - 1].stride == dims[d].size * dims[d].stride) {  // one in memory
        group.outer.back() *= dims[d].size;
        group.outer_strides.back() = dims[d].stride;
      } else {
        group.outer.push_back(dims[d].size);
        group.outer_strides.push_back(dims[d].stride);
      }
    }
    group.size = group.segment_size = dims[r].size;
    group.stride = dims[r].stride;
    group.inner = inner;
    const int64_t num_outer = num_elements(group.outer);
    if (num_outer * inner < kColumnsOfUnit && group.size * inner >= 2 * kSegment) {
      group.segment_size = std::max<int64_t>(kSegment / inner, 1);
      group.segments = (group.size + group.segment_size - 1) / group.segment_size;
    }
    const bool last =
        group.segments == 1 && std::count_if(dims.begin(), dims.end(), is_reduced) == 1;
    std::vector<Dim> left(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(r));
    if (group.segments > 1)
      left.push_back({group.segments, 0, true});
    left.insert(left.end(), dims.begin() + static_cast<std::ptrdiff_t>(r) + 1, dims.end());
    int64_t stride = 1;
    for (size_t d = left.size(); d-- > 0;) {
      left[d].stride = stride;
      stride *= left[d].size;
    }
    std::byte* place = last && sums == x.dtype
                           ? out.data
                           : scratch.take(stride * static_cast<int64_t>(dtype_size(sums)));
    list.push_back(std::make_unique<GroupReduce>(reduction, group, source, place));
    dims = std::move(left);
    source = view_of(place, sums, dims);
  }
  if (list.empty()) {  // nothing was reduced but dimensions of size 1
    View flat = contiguous_view(out.data, out.dtype, source.shape);
    list.push_back(make_copy(source, flat));
  } else if (sums != x.dtype) {
    const View flat = contiguous_view(out.data, out.dtype, source.shape);
    list.push_back(
        make_tape(source.shape, {source}, {{"cast", {0}, out.dtype, 0, 0}}, {{0, flat}}));
  }
  return list;
}

void CpuLowering::make(const ReduceSpec& spec) {
  if (row_calls_) {
    row_calls_->push_back({RowCall::Kind::kReduce,
                           path_,
                           spec.x.shape,
                           {spec.x},
                           {},
                           {{0, spec.out}},
                           spec.reduction,
                           spec.reduced});
    return;
  }
  add(make_reduce(spec.reduction, spec.x, spec.reduced, spec.out, scratch_));
}

}  // namespace meshtrain::cpu
