// Rotary positions (formulas: ir/ops/attention.cc).
#include "backend/cpu/lowering.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

// One step of one batch item a unit.
template <class T>
class Rotary final : public Kernel {
 public:
  Rotary(const RotaryShape& shape, const std::byte* x, const std::byte* cosine,
         const std::byte* sine, std::byte* out)
      : shape_(shape),
        x_(reinterpret_cast<const T*>(x)),
        cosine_(reinterpret_cast<const T*>(cosine)),
        sine_(reinterpret_cast<const T*>(sine)),
        out_(reinterpret_cast<T*>(out)),
        half_(shape.size / 2),
        row_(shape.heads * shape.size) {}

  int64_t units() const override { return shape_.batch * shape_.steps; }
  double cost() const override { return static_cast<double>(units() * row_); }

  void run(int64_t begin, int64_t end, std::byte*) const override {
    const T sign = shape_.inverse ? T{-1} : T{1};
    for (int64_t unit = begin; unit < end; ++unit) {
      const T* cosine = cosine_ + angles_of(unit) * half_;
      const T* sine = sine_ + angles_of(unit) * half_;
      for (int64_t h = 0; h < shape_.heads; ++h) {
        const T* x = x_ + unit * row_ + h * shape_.size;
        T* out = out_ + unit * row_ + h * shape_.size;
        for (int64_t i = 0; i < half_; ++i) {
          const T a = x[i], b = x[i + half_], s = sign * sine[i];
          out[i] = a * cosine[i] - b * s;
          out[i + half_] = b * cosine[i] + a * s;
        }
      }
    }
  }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const auto range = [&](const T* data, int64_t first, int64_t last, bool is_write) {
      out.push_back({reinterpret_cast<const std::byte*>(data + first),
                     reinterpret_cast<const std::byte*>(data + last), is_write});
    };
    const int64_t angles = (shape_.has_batch ? shape_.batch : 1) * shape_.steps * half_;
    range(cosine_, 0, angles, false);
    range(sine_, 0, angles, false);
    range(x_, begin * row_, end * row_, false);
    range(out_, begin * row_, end * row_, true);
  }

 private:
  int64_t angles_of(int64_t unit) const { return shape_.has_batch ? unit : unit % shape_.steps; }

  RotaryShape shape_;
  const T *x_, *cosine_, *sine_;
  T* out_;
  int64_t half_, row_;
};

}  // namespace

void CpuLowering::make(const RotarySpec& spec) {
  const DType dtype = spec.shape.dtype;
  const RotaryShape shape = computed(spec.shape);
  const int64_t elements = shape.batch * shape.steps * shape.heads * shape.size;
  const int64_t angles = (shape.has_batch ? shape.batch : 1) * shape.steps * shape.size / 2;
  const std::byte* x = read(dtype, spec.x, elements);
  const std::byte* cosine = read(dtype, spec.cosine, angles);
  const std::byte* sine = read(dtype, spec.sine, angles);
  std::byte* out = written(dtype, spec.out, elements);
  if (shape.dtype == DType::kFloat64) {
    add(std::make_unique<Rotary<double>>(shape, x, cosine, sine, out));
    return;
  }
  MESHTRAIN_CHECK(shape.dtype == DType::kFloat32, "{}", dtype_name(shape.dtype));
  add(std::make_unique<Rotary<float>>(shape, x, cosine, sine, out));
}

}  // namespace meshtrain::cpu
