#include "backend/cpu/group.h"

#include <algorithm>

namespace meshtrain::cpu {
namespace {

class Group final : public Kernel {
 public:
  explicit Group(KernelList kernels) : kernels_(std::move(kernels)) {
    int64_t units = 0;
    for (const KernelPtr& kernel : kernels_) {
      units += kernel->units();
      ends_.push_back(units);
      cost_ += kernel->cost();
      scratch_bytes_ = std::max(scratch_bytes_, kernel->scratch_bytes());
    }
  }
  int64_t units() const override { return ends_.back(); }
  double cost() const override { return cost_; }
  size_t scratch_bytes() const override { return scratch_bytes_; }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for_each(begin, end, [&](const Kernel& kernel, int64_t first, int64_t last) {
      kernel.run(first, last, scratch);
    });
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    for_each(begin, end, [&](const Kernel& kernel, int64_t first, int64_t last) {
      kernel.accesses(first, last, out);
    });
  }

 private:
  template <class F>
  void for_each(int64_t begin, int64_t end, F&& function) const {
    size_t k =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    while (begin < end) {
      const int64_t start = k == 0 ? 0 : ends_[k - 1];
      const int64_t stop = std::min(end, ends_[k]);
      if (begin < stop)
        function(*kernels_[k], begin - start, stop - start);
      begin = stop;
      ++k;
    }
  }

  KernelList kernels_;
  std::vector<int64_t> ends_;
  double cost_ = 0;
  size_t scratch_bytes_ = 0;
};

}  // namespace

KernelPtr make_group(KernelList kernels) {
  MESHTRAIN_CHECK(!kernels.empty());
  if (kernels.size() == 1)
    return std::move(kernels[0]);
  return std::make_unique<Group>(std::move(kernels));
}

}  // namespace meshtrain::cpu
