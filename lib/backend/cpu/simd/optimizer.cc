// Optimizer rules, one pass over parameter, gradient and slots. Formulas and the order of slots:
// ir/ops/optimizer.cc. Scalars are in the order of OptimizerField; new_param may be param, and so
// on.
#include "backend/formulas/optimizer.h"

#include "backend/cpu/simd/math.h"

namespace meshtrain::cpu {
namespace {

template <class T>
struct Operands {
  explicit Operands(const OptimizerArgs& args)
      : param(static_cast<const T*>(args.param)),
        grad(static_cast<const T*>(args.grad)),
        new_param(static_cast<T*>(args.new_param)),
        rate(static_cast<T>(args.scalars[kRate])),
        decay(static_cast<T>(args.scalars[kDecay])) {
    for (int i = 0; i < 4; ++i) {
      slot[i] = static_cast<const T*>(args.slots[i]);
      new_slot[i] = static_cast<T*>(args.new_slots[i]);
    }
  }
  const T* param;
  const T* grad;
  T* new_param;
  T rate, decay;
  const T* slot[4];
  T* new_slot[4];
};

template <class T>
void sgd(const OptimizerArgs& args, int64_t begin, int64_t end) {
  const Operands<T> o(args);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    o.new_param[i] = mt::sgd(mt::decayed(o.param[i], o.decay), o.grad[i], o.rate);
  }
}

template <class T, bool kNesterov>
void momentum(const OptimizerArgs& args, int64_t begin, int64_t end) {
  const Operands<T> o(args);
  const T mu = static_cast<T>(args.scalars[kMomentumFactor]);
  const T* v = o.slot[0];
  T* new_v = o.new_slot[0];
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const mt::MomentumStep<T> step =
        mt::momentum<kNesterov>(mt::decayed(o.param[i], o.decay), o.grad[i], o.rate, mu, v[i]);
    new_v[i] = step.v;
    o.new_param[i] = step.w;
  }
}

template <class T, bool kMomentum, bool kCentered>
void rmsprop_loop(const OptimizerArgs& args, int64_t begin, int64_t end) {
  const Operands<T> o(args);
  const mt::RmspropNumbers<T> numbers = {
      static_cast<T>(args.scalars[kRho]), static_cast<T>(1.0 - args.scalars[kRho]),
      static_cast<T>(args.scalars[kMomentumFactor]), static_cast<T>(args.scalars[kEpsilonTerm])};
  const T* v = o.slot[0];
  T* new_v = o.new_slot[0];
  const T* m = o.slot[1];
  T* new_m = o.new_slot[1];
  const T* a = o.slot[kMomentum ? 2 : 1];
  T* new_a = o.new_slot[kMomentum ? 2 : 1];
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    T mean = 0, average = 0;
    if constexpr (kMomentum)
      mean = m[i];
    if constexpr (kCentered)
      average = a[i];
    const mt::RmspropStep<T> step = mt::rmsprop<kMomentum, kCentered>(
        mt::decayed(o.param[i], o.decay), o.grad[i], o.rate, numbers, v[i], mean, average);
    new_v[i] = step.v;
    if constexpr (kMomentum)
      new_m[i] = step.m;
    if constexpr (kCentered)
      new_a[i] = step.a;
    o.new_param[i] = step.w;
  }
}

template <class T>
void rmsprop(const OptimizerArgs& args, int64_t begin, int64_t end) {
  const bool with_momentum = args.scalars[kMomentumFactor] > 0;
  const bool centered = args.scalars[kVariant] != 0;
  if (with_momentum && centered) {
    rmsprop_loop<T, true, true>(args, begin, end);
  } else if (with_momentum) {
    rmsprop_loop<T, true, false>(args, begin, end);
  } else if (centered) {
    rmsprop_loop<T, false, true>(args, begin, end);
  } else {
    rmsprop_loop<T, false, false>(args, begin, end);
  }
}

template <class T, bool kAmsgrad>
void adam_loop(const OptimizerArgs& args, int64_t begin, int64_t end) {
  const Operands<T> o(args);
  const mt::AdamNumbers<T> numbers = {static_cast<T>(1.0 - args.scalars[kBeta1]),
                                      static_cast<T>(1.0 - args.scalars[kBeta2]),
                                      static_cast<T>(args.scalars[kEpsilonTerm])};
  const T* m = o.slot[0];
  const T* v = o.slot[1];
  const T* top = o.slot[2];
  T* new_m = o.new_slot[0];
  T* new_v = o.new_slot[1];
  T* new_top = o.new_slot[2];
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    T largest = 0;
    if constexpr (kAmsgrad)
      largest = top[i];
    const mt::AdamStep<T> step = mt::adam<kAmsgrad>(mt::decayed(o.param[i], o.decay), o.grad[i],
                                                    o.rate, numbers, m[i], v[i], largest);
    new_m[i] = step.m;
    new_v[i] = step.v;
    if constexpr (kAmsgrad)
      new_top[i] = step.top;
    o.new_param[i] = step.w;
  }
}

template <class T>
void adam(const OptimizerArgs& args, int64_t begin, int64_t end) {
  if (args.scalars[kVariant] != 0) {
    adam_loop<T, true>(args, begin, end);
  } else {
    adam_loop<T, false>(args, begin, end);
  }
}

template <class T>
void fill_type(KernelTable& table) {
  const auto set = [&](OptimizerRule rule, auto loop) {
    table.optimizer[static_cast<int>(rule)][kIndexOf<T>] = loop;
  };
  set(OptimizerRule::kSgd, sgd<T>);
  set(OptimizerRule::kMomentum, momentum<T, false>);
  set(OptimizerRule::kNesterov, momentum<T, true>);
  set(OptimizerRule::kRmsprop, rmsprop<T>);
  set(OptimizerRule::kAdam, adam<T>);
}

}  // namespace

void MESHTRAIN_FILL(fill_optimizer)(KernelTable& table) {
  fill_type<float>(table);
  fill_type<double>(table);
}

}  // namespace meshtrain::cpu
