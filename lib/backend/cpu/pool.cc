// Pools and their gradients over images with channels last; those of 16 bits are added up in
// float32.
#include <algorithm>
#include <cstring>

#include "backend/cpu/conv_region.h"
#include "backend/cpu/half_arrays.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {

namespace {

class Pool final : public Kernel {
 public:
  Pool(PoolOp op, const PoolShape& shape, std::vector<PoolJob> jobs)
      : op_(op), s_(shape), jobs_(std::move(jobs)), type_(type_index(shape.dtype)) {
    item_ = static_cast<int64_t>(dtype_size(shape.dtype));
    const bool is_grad = op == PoolOp::kMaxGrad || op == PoolOp::kAverageGrad;
    grad_scale_ = is_grad && is_half(shape.dtype) ? 2 : 1;
    steps_ = {s_.input[1] * s_.input[2] * s_.channels, s_.input[2] * s_.channels, s_.channels};
    num_cells_ = s_.cells[0] * s_.cells[1] * s_.cells[2];
    inner_.resize(static_cast<size_t>(num_cells_));
    const int64_t found = offsets_of({0, 0, 0}, false, inner_.data());
    MESHTRAIN_CHECK(found == num_cells_);
    MESHTRAIN_CHECK(kernels().max_pool[type_] != nullptr, "no pool of {}", dtype_name(shape.dtype));
  }

  int64_t units() const override { return static_cast<int64_t>(jobs_.size()); }
  size_t scratch_bytes() const override { return static_cast<size_t>(num_cells_) * 8; }
  double cost() const override {
    const double windows = static_cast<double>(s_.output[0] * s_.output[1] * s_.output[2]) *
                           static_cast<double>(jobs_.size());
    const bool is_grad = op_ == PoolOp::kMaxGrad || op_ == PoolOp::kAverageGrad;
    return windows * (10 + static_cast<double>(num_cells_ * s_.channels) * (is_grad ? 0.3 : 0.1));
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const bool is_grad = op_ == PoolOp::kMaxGrad || op_ == PoolOp::kAverageGrad;
    for (int64_t j = begin; j < end && jobs_[j].x != nullptr; ++j)
      add_access(out, jobs_[j].x, s_.input_bytes(), false);
    for (int64_t j = begin; j < end && jobs_[j].dy != nullptr; ++j)
      add_access(out, jobs_[j].dy, s_.output_bytes(), false);
    for (int64_t j = begin; j < end; ++j)
      add_access(out, jobs_[j].to, is_grad ? s_.input_bytes() * grad_scale_ : s_.output_bytes(),
                 true);
  }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t j = begin; j < end; ++j)
      run_image(jobs_[j], reinterpret_cast<int64_t*>(scratch));
  }

 private:
  // Places of the cells of the window whose first cell is at `first`; `bounded`: of those inside of
  // the image. Returns how many there are.
  int64_t offsets_of(const Index3& first, bool bounded, int64_t* out) const {
    int64_t count = 0;
    Index3 at{};
    for (int64_t z = 0; z < s_.cells[0]; ++z) {
      at[0] = first[0] + z * s_.dilations[0];
      for (int64_t y = 0; y < s_.cells[1]; ++y) {
        at[1] = first[1] + y * s_.dilations[1];
        for (int64_t x = 0; x < s_.cells[2]; ++x) {
          at[2] = first[2] + x * s_.dilations[2];
          bool inside = true;
          for (size_t d = 0; d < 3; ++d)
            inside = inside && at[d] >= 0 && at[d] < s_.input[d];
          if (inside || !bounded)
            out[count++] = at[0] * steps_[0] + at[1] * steps_[1] + at[2] * steps_[2];
        }
      }
    }
    return count;
  }

  void run_image(const PoolJob& job, int64_t* scratch) const {
    if (op_ == PoolOp::kMaxGrad || op_ == PoolOp::kAverageGrad)
      std::memset(job.to, 0, static_cast<size_t>(s_.input_bytes() * grad_scale_));
    Index3 first{};
    int64_t pixel = 0;
    for (int64_t z = 0; z < s_.output[0]; ++z) {
      first[0] = z * s_.strides[0] - s_.pads[0];
      for (int64_t y = 0; y < s_.output[1]; ++y) {
        first[1] = y * s_.strides[1] - s_.pads[1];
        for (int64_t x = 0; x < s_.output[2]; ++x, ++pixel) {
          first[2] = x * s_.strides[2] - s_.pads[2];
          run_window(job, first, pixel * s_.channels * item_, scratch);
        }
      }
    }
  }

  // `small`: of this pixel in y, in bytes.
  void run_window(const PoolJob& job, const Index3& first, int64_t small, int64_t* scratch) const {
    bool inside = true;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t last = first[d] + (s_.cells[d] - 1) * s_.dilations[d];
      inside = inside && first[d] >= 0 && last < s_.input[d];
    }
    PoolArgs window;
    window.channels = s_.channels;
    int64_t base = 0;  // of the window in x, in bytes
    if (inside) {
      base = (first[0] * steps_[0] + first[1] * steps_[1] + first[2] * steps_[2]) * item_;
      window.offsets = inner_.data();
      window.cells = num_cells_;
    } else {
      window.offsets = scratch;
      window.cells = offsets_of(first, true, scratch);
    }
    window.x = job.x == nullptr ? nullptr : job.x + base;
    const KernelTable& table = kernels();
    switch (op_) {
      case PoolOp::kMax:
        table.max_pool[type_](job.to + small, window);
        break;
      case PoolOp::kAverage:
        table.avg_pool[type_](job.to + small, window);
        break;
      case PoolOp::kMaxGrad:
        table.max_pool_grad[type_](job.to + base * grad_scale_, job.dy + small, window);
        break;
      case PoolOp::kAverageGrad:
        table.avg_pool_grad[type_](job.to + base * grad_scale_, job.dy + small, window);
        break;
    }
  }

  PoolOp op_;
  PoolShape s_;
  std::vector<PoolJob> jobs_;
  TypeIndex type_;
  int64_t item_ = 4, num_cells_ = 1;
  int64_t grad_scale_ = 1;  // bytes of an element of dx by those of x
  Index3 steps_{};
  std::vector<int64_t> inner_;  // places of the cells of a window inside of the image
};

}  // namespace

void CpuLowering::make(const PoolSpec& spec) {
  const auto& [op, shape, jobs] = spec;
  if (!is_half(shape.dtype) || op == PoolOp::kMax || op == PoolOp::kAverage)
    return add(std::make_unique<Pool>(op, shape, jobs));
  HalfArrays sums(shape.dtype, shape.input_bytes() / 2);  // windows may overlap
  for (const PoolJob& job : jobs)
    sums.add(job.to);
  sums.take_scratch(scratch_);
  std::vector<PoolJob> wide = jobs;
  for (PoolJob& job : wide)
    job.to = sums.wide(job.to);
  add(std::make_unique<Pool>(op, shape, std::move(wide)));
  add(sums.narrow());
}

}  // namespace meshtrain::cpu
