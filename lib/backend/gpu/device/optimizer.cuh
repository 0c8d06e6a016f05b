// Updates of variables by their gradients (formulas/optimizer.h). Sizes and addresses are
// arguments, so that all variables of a model are updated by one kernel.
#pragma once

#include "backend/formulas/optimizer.h"
#include "backend/gpu/device/elementwise.cuh"

namespace mt {
namespace {

enum class Rule { kSgd, kMomentum, kNesterov, kRmsprop, kAdam };

struct Optimizing {
  Rule rule;
  bool has_decay;
  bool is_variant;  // centered, amsgrad
  double momentum, rho, beta1, beta2, epsilon;

  MT_FN constexpr bool has_momentum() const { return momentum > 0; }
  MT_FN constexpr int slots() const {
    return rule == Rule::kSgd                                   ? 0
           : rule == Rule::kMomentum || rule == Rule::kNesterov ? 1
           : rule == Rule::kRmsprop ? 1 + (has_momentum() ? 1 : 0) + (is_variant ? 1 : 0)
           : is_variant             ? 3
                                    : 2;
  }
};

// The new parameter; `s`: the slots, in their order, which are replaced.
template <Optimizing O, class T, int N>
MT_FN T updated(T w, T g, T rate, T (&s)[N]) {
  if constexpr (O.rule == Rule::kSgd) {
    return sgd(w, g, rate);
  } else if constexpr (O.rule == Rule::kRmsprop) {
    constexpr int m = O.has_momentum() ? 1 : 0, a = N - 1;
    const RmspropStep<T> step = rmsprop<O.has_momentum(), O.is_variant>(
        w, g, rate, {(T)O.rho, (T)(1.0 - O.rho), (T)O.momentum, (T)O.epsilon}, s[0], s[m], s[a]);
    s[0] = step.v;
    if constexpr (O.has_momentum())
      s[m] = step.m;
    if constexpr (O.is_variant)
      s[a] = step.a;
    return step.w;
  } else if constexpr (O.rule == Rule::kAdam) {
    const AdamStep<T> step = adam<O.is_variant>(
        w, g, rate, {(T)(1.0 - O.beta1), (T)(1.0 - O.beta2), (T)O.epsilon}, s[0], s[1], s[N - 1]);
    s[0] = step.m;
    s[1] = step.v;
    if constexpr (O.is_variant)
      s[N - 1] = step.top;
    return step.w;
  } else {
    const MomentumStep<T> step =
        momentum<O.rule == Rule::kNesterov>(w, g, rate, (T)O.momentum, s[0]);
    s[0] = step.v;
    return step.w;
  }
}

// Arguments: parameter, gradient, new parameter; of each slot the old and the new one; rate, and
// decay where there is one; the number of elements and the step of threads.
template <Optimizing O, int pack, class E>
MT_FN void update(const unsigned long long* arg, unsigned block) {
  using T = Compute<E>;
  constexpr int slots = O.slots(), scalars = 3 + 2 * slots, sizes = scalars + (O.has_decay ? 2 : 1);
  const T rate = load((const E*)arg[scalars]);
  const T decay = O.has_decay ? load((const E*)arg[sizes - 1]) : T(0);
  const unsigned long long n = arg[sizes], step = arg[sizes + 1];
  unsigned long long i = ((unsigned long long)block * kThreads + threadIdx.x) * pack;
  for (; i < n; i += step) {
    T p[pack], g[pack], s[slots > 0 ? slots : 1][pack];
    read(p, (const E*)arg[0], i, n);
    read(g, (const E*)arg[1], i, n);
#pragma unroll
    for (int k = 0; k < slots; ++k)
      read(s[k], (const E*)arg[3 + 2 * k], i, n);
#pragma unroll
    for (int e = 0; e < pack; ++e) {
      T own[slots > 0 ? slots : 1];
#pragma unroll
      for (int k = 0; k < slots; ++k)
        own[k] = s[k][e];
      p[e] = updated<O>(O.has_decay ? decayed(p[e], decay) : p[e], g[e], rate, own);
#pragma unroll
      for (int k = 0; k < slots; ++k)
        s[k][e] = own[k];
    }
    write((E*)arg[2], i, n, p);
#pragma unroll
    for (int k = 0; k < slots; ++k)
      write((E*)arg[4 + 2 * k], i, n, s[k]);
  }
}

}  // namespace
}  // namespace mt
