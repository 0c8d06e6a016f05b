// Losses of tokens from rows of logits, through the loops of simd/cross_entropy.cc. A unit is a few
// rows; rows of 16 bits are widened into the worker's scratch, one at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cross_entropy_loops.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kLogitsOfUnit = 1 << 14;
constexpr double kNanosecondsOfLogit = 0.5;

class CrossEntropy final : public Kernel {
 public:
  explicit CrossEntropy(const CrossEntropySpec& spec)
      : spec_(spec), shape_(spec.shape), type_(type_index(computed(spec.shape).dtype)) {
    loop_ = cross_entropy_loops().of[type_];
    MESHTRAIN_CHECK(loop_ != nullptr, "losses of {}", dtype_name(shape_.dtype));
    if (is_half(shape_.dtype)) {
      widen_ = kernels().cast[type_index(shape_.dtype)][kTypeF32];
      narrow_ = kernels().cast[kTypeF32][type_index(shape_.dtype)];
    }
    mode_ = spec.weights == nullptr ? CrossEntropyMode::kForward
            : spec.lse == nullptr   ? CrossEntropyMode::kGradient
                                    : CrossEntropyMode::kGradientOfLse;
    rows_ = std::clamp<int64_t>(kLogitsOfUnit / std::max<int64_t>(shape_.classes, 1), 1,
                                std::max<int64_t>(shape_.tokens, 1));
  }

  int64_t units() const override { return (shape_.tokens + rows_ - 1) / rows_; }
  size_t scratch_bytes() const override {
    return widen_ == nullptr ? 0 : static_cast<size_t>(shape_.classes) * sizeof(float);
  }
  double cost() const override {
    return static_cast<double>(shape_.tokens * shape_.classes) * kNanosecondsOfLogit;
  }

  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t i = begin * rows_; i < std::min(end * rows_, shape_.tokens); ++i)
      run_row(i, scratch);
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const int64_t first = begin * rows_, last = std::min(end * rows_, shape_.tokens);
    if (first >= last)
      return;
    const int64_t row = shape_.row * static_cast<int64_t>(dtype_size(shape_.dtype));
    out.push_back({spec_.logits + first * row, spec_.logits + last * row,
                   mode_ != CrossEntropyMode::kForward});
    const auto add = [&](const std::byte* data, DType dtype, bool is_write) {
      const auto item = static_cast<int64_t>(dtype_size(dtype));
      if (data != nullptr)
        out.push_back({data + first * item, data + last * item, is_write});
    };
    add(spec_.ids, DType::kInt32, false);
    for (const std::byte* data : {spec_.weights, spec_.lse})
      add(data, shape_.loss_dtype(), false);
    for (const std::byte* data :
         {spec_.loss, spec_.hits, spec_.largest, spec_.sum, spec_.picked, spec_.first})
      add(data, shape_.loss_dtype(), true);
  }

 private:
  void run_row(int64_t i, std::byte* scratch) const {
    int32_t id;
    std::memcpy(&id, spec_.ids + 4 * i, sizeof(id));
    const bool is_class = id >= 0 && id < shape_.global_classes;
    std::byte* const logits =
        spec_.logits + i * shape_.row * static_cast<int64_t>(dtype_size(shape_.dtype));
    CrossEntropyRow row;
    row.logits = logits;
    row.classes = shape_.classes;
    row.id = is_class ? id - shape_.start : -1;
    row.weight = is_class ? get(spec_.weights, i) : 0;
    row.lse = get(spec_.lse, i);
    if (widen_ != nullptr) {
      row.logits = scratch;
      widen_(scratch, logits, nullptr, nullptr, shape_.classes, {});
    }
    loop_(row, mode_);
    if (narrow_ != nullptr && mode_ != CrossEntropyMode::kForward)
      narrow_(logits, scratch, nullptr, nullptr, shape_.classes, {});
    const bool is_before = is_class && shape_.start + shape_.classes <= id;
    set(spec_.loss, i, is_class ? std::log(row.sum) - (row.picked - row.largest) : 0);
    set(spec_.hits, i, row.is_first ? 1 : 0);
    set(spec_.largest, i, row.largest);
    set(spec_.sum, i, row.sum);
    set(spec_.picked, i, row.picked);
    set(spec_.first, i, row.is_first ? 1 : is_before ? -1 : 0);
  }

  double get(const std::byte* data, int64_t i) const {
    if (data == nullptr)
      return 0;
    return type_ == kTypeF64 ? reinterpret_cast<const double*>(data)[i]
                             : static_cast<double>(reinterpret_cast<const float*>(data)[i]);
  }
  void set(std::byte* data, int64_t i, double value) const {
    if (data == nullptr)
      return;
    if (type_ == kTypeF64)
      reinterpret_cast<double*>(data)[i] = value;
    else
      reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
  }

  CrossEntropySpec spec_;
  CrossEntropyShape shape_;
  TypeIndex type_;
  CrossEntropyLoop loop_ = nullptr;
  ElementLoop widen_ = nullptr, narrow_ = nullptr;
  CrossEntropyMode mode_ = CrossEntropyMode::kForward;
  int64_t rows_ = 1;
};

}  // namespace

void CpuLowering::make(const CrossEntropySpec& spec) {
  add(std::make_unique<CrossEntropy>(spec));
}

}  // namespace meshtrain::cpu
