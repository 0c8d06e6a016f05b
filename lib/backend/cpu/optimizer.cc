// One optimizer step on a contiguous range of a variable (formulas: ir/ops/optimizer.cc).
#include <algorithm>
#include <cstring>

#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kElementsOfUnit = 2048;

class Optimizer final : public Kernel {
 public:
  explicit Optimizer(const OptimizerSpec& spec)
      : spec_(spec),
        loop_(kernels().optimizer[static_cast<int>(spec.rule)][type_index(spec.dtype)]),
        item_size_(static_cast<int64_t>(dtype_size(spec.dtype))) {
    MESHTRAIN_CHECK(loop_ != nullptr, "no optimizer of {}", dtype_name(spec.dtype));
  }
  int64_t units() const override {
    return (spec_.num_elements + kElementsOfUnit - 1) / kElementsOfUnit;
  }
  double cost() const override { return static_cast<double>(spec_.num_elements) * 0.5; }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    OptimizerArgs args = spec_.args;
    args.scalars[kRate] = scalar(spec_.rate);
    if (spec_.decay != nullptr)
      args.scalars[kDecay] = scalar(spec_.decay);
    loop_(args, begin * kElementsOfUnit, std::min(end * kElementsOfUnit, spec_.num_elements));
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const int64_t first = begin * kElementsOfUnit * item_size_;
    const int64_t last = std::min(end * kElementsOfUnit, spec_.num_elements) * item_size_;
    const auto add = [&](const void* data, bool is_write) {
      if (data == nullptr)
        return;
      const auto* base = static_cast<const std::byte*>(data);
      out.push_back({base + first, base + last, is_write});
    };
    add(spec_.args.param, false);
    add(spec_.args.grad, false);
    add(spec_.args.new_param, true);
    for (const void* slot : spec_.args.slots)
      add(slot, false);
    for (void* slot : spec_.args.new_slots)
      add(slot, true);
    out.push_back({spec_.rate, spec_.rate + item_size_, false});
    if (spec_.decay != nullptr)
      out.push_back({spec_.decay, spec_.decay + item_size_, false});
  }

 private:
  double scalar(const std::byte* place) const {
    return dispatch_float(spec_.dtype, [&]<class T>(T) {
      T value;
      std::memcpy(&value, place, sizeof(T));
      return static_cast<double>(value);
    });
  }

  OptimizerSpec spec_;
  void (*loop_)(const OptimizerArgs&, int64_t, int64_t);
  int64_t item_size_;
};

}  // namespace

void CpuLowering::make(const OptimizerSpec& spec) {
  OptimizerSpec wide = computed(spec);
  const DType dtype = spec.dtype;
  const int64_t n = spec.num_elements;
  wide.args.param = read(dtype, spec.args.param, n);
  wide.args.grad = read(dtype, spec.args.grad, n);
  wide.args.new_param = written(dtype, spec.args.new_param, n);
  for (size_t i = 0; i < std::size(wide.args.slots); ++i) {
    wide.args.slots[i] = read(dtype, spec.args.slots[i], n);
    wide.args.new_slots[i] = written(dtype, spec.args.new_slots[i], n);
  }
  wide.rate = read(dtype, spec.rate, 1);
  wide.decay = read(dtype, spec.decay, 1);
  add(std::make_unique<Optimizer>(wide));
}

}  // namespace meshtrain::cpu
