#include "backend/cpu/optimizer.h"

#include <algorithm>
#include <cstring>

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

KernelPtr make_optimizer(const OptimizerSpec& spec) {
  return std::make_unique<Optimizer>(spec);
}

}  // namespace meshtrain::cpu
