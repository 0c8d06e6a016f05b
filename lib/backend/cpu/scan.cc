// Kernels along one dimension: argmax, cumsum, top_k. Operands and results are contiguous; x has
// the shape (outer, size, inner).
#include <algorithm>
#include <numeric>

#include "backend/cpu/lowering.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kScannedOfUnit = 2048;

class Scan : public Kernel {
 public:
  Scan(const ScanShape& shape, const std::byte* x, int64_t cost)
      : shape_(shape), in_(x), cost_(static_cast<double>(cost)) {
    item_size_ = static_cast<int64_t>(dtype_size(shape.dtype));
    plane_ = shape.size * shape.inner;
    chunk_ = std::clamp<int64_t>(kScannedOfUnit / std::max<int64_t>(plane_, 1), 1,
                                 std::max<int64_t>(shape.outer, 1));
  }
  int64_t units() const override { return (shape_.outer + chunk_ - 1) / chunk_; }
  double cost() const override { return cost_; }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    const int64_t first = begin * chunk_, last = std::min(end * chunk_, shape_.outer);
    for (int64_t o = first; o < last; ++o)
      run_plane(o, scratch);
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const int64_t first = begin * chunk_, last = std::min(end * chunk_, shape_.outer);
    out.push_back({in_ + first * plane_ * item_size_, in_ + last * plane_ * item_size_, false});
    results(first, last, out);
  }

 protected:
  virtual void run_plane(int64_t outer, std::byte* scratch) const = 0;
  virtual void results(int64_t first, int64_t last, std::vector<Access>& out) const = 0;

  ScanShape shape_;
  const std::byte* in_;
  double cost_;
  int64_t item_size_, plane_, chunk_;
};

// NaN before everything else.
template <class T>
bool is_larger(T a, T b) {
  return a > b || (a != a && b == b);
}

class Argmax final : public Scan {
 public:
  Argmax(const ScanShape& shape, const std::byte* x, std::byte* out)
      : Scan(shape, x, shape.outer * shape.size * shape.inner), out_(out) {}

 private:
  void run_plane(int64_t outer, std::byte*) const override {
    dispatch_compute(shape_.dtype, [&]<class T>(T) {
      const T* x = reinterpret_cast<const T*>(in_) + outer * plane_;
      int32_t* out = reinterpret_cast<int32_t*>(out_) + outer * shape_.inner;
      for (int64_t i = 0; i < shape_.inner; ++i) {
        int64_t best = 0;
        for (int64_t s = 1; s < shape_.size; ++s) {
          if (is_larger(x[s * shape_.inner + i], x[best * shape_.inner + i]))
            best = s;
        }
        out[i] = static_cast<int32_t>(best);
      }
    });
  }
  void results(int64_t first, int64_t last, std::vector<Access>& out) const override {
    const int64_t row = shape_.inner * static_cast<int64_t>(sizeof(int32_t));
    out.push_back({out_ + first * row, out_ + last * row, true});
  }
  std::byte* out_;
};

class Cumsum final : public Scan {
 public:
  Cumsum(const ScanShape& shape, const std::byte* x, std::byte* out)
      : Scan(shape, x, shape.outer * shape.size * shape.inner), out_(out) {}

 private:
  void run_plane(int64_t outer, std::byte*) const override {
    dispatch_compute(shape_.dtype, [&]<class T>(T) {
      const T* x = reinterpret_cast<const T*>(in_) + outer * plane_;
      T* out = reinterpret_cast<T*>(out_) + outer * plane_;
      std::copy(x, x + shape_.inner, out);
      for (int64_t i = shape_.inner; i < plane_; ++i) {
        out[i] = static_cast<T>(out[i - shape_.inner] + x[i]);
      }
    });
  }
  void results(int64_t first, int64_t last, std::vector<Access>& out) const override {
    out.push_back({out_ + first * plane_ * item_size_, out_ + last * plane_ * item_size_, true});
  }
  std::byte* out_;
};

class TopK final : public Scan {
 public:
  TopK(const ScanShape& shape, int64_t k, const std::byte* x, std::byte* values, std::byte* indices)
      : Scan(shape, x, shape.outer * shape.size * 8), k_(k), values_(values), indices_(indices) {}
  size_t scratch_bytes() const override {
    return static_cast<size_t>(shape_.size) * sizeof(int32_t);
  }

 private:
  void run_plane(int64_t outer, std::byte* scratch) const override {
    int32_t* order = reinterpret_cast<int32_t*>(scratch);
    std::iota(order, order + shape_.size, 0);
    dispatch_compute(shape_.dtype, [&]<class T>(T) {
      const T* x = reinterpret_cast<const T*>(in_) + outer * plane_;
      T* values = reinterpret_cast<T*>(values_) + outer * k_;
      int32_t* indices = reinterpret_cast<int32_t*>(indices_) + outer * k_;
      std::partial_sort(order, order + k_, order + shape_.size, [x](int32_t a, int32_t b) {
        return is_larger(x[a], x[b]) || (!is_larger(x[b], x[a]) && a < b);
      });
      for (int64_t i = 0; i < k_; ++i) {
        indices[i] = order[i];
        values[i] = x[order[i]];
      }
    });
  }
  void results(int64_t first, int64_t last, std::vector<Access>& out) const override {
    const int64_t row = k_ * static_cast<int64_t>(sizeof(int32_t));
    out.push_back({values_ + first * k_ * item_size_, values_ + last * k_ * item_size_, true});
    out.push_back({indices_ + first * row, indices_ + last * row, true});
  }
  int64_t k_;
  std::byte* values_;
  std::byte* indices_;
};

int64_t elements_of(const ScanShape& shape) {
  return shape.outer * shape.size * shape.inner;
}

}  // namespace

void CpuLowering::make(const ArgmaxSpec& spec) {
  const auto& [shape, x, out] = spec;
  add(std::make_unique<Argmax>(computed(shape), read(shape.dtype, x, elements_of(shape)), out));
}

void CpuLowering::make(const CumsumSpec& spec) {
  const auto& [shape, x, out] = spec;
  add(std::make_unique<Cumsum>(computed(shape), read(shape.dtype, x, elements_of(shape)),
                               written(shape.dtype, out, elements_of(shape))));
}

void CpuLowering::make(const TopKSpec& spec) {
  const auto& [shape, k, x, values, indices] = spec;
  MESHTRAIN_CHECK(shape.inner == 1 && k <= shape.size, "top {} of {}", k, shape.size);
  add(std::make_unique<TopK>(computed(shape), k, read(shape.dtype, x, elements_of(shape)),
                             written(shape.dtype, values, shape.outer * k), indices));
}

}  // namespace meshtrain::cpu
