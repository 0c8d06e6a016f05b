// One step of each optimizer for one element. ir/ops/optimizer.cc states the rules.
//
// p is the parameter, g its gradient, w the parameter after weight decay, and the other letters are
// slots: v is a velocity or a mean of squares, m a mean or a momentum, a an average, top the
// largest v so far. Slots are replaced. Every product and sum is rounded by itself, in this order.
#pragma once

#include "backend/formulas/elementwise.h"

namespace mt {
namespace {

template <class T>
MT_FN T decayed(T p, T decay) {
  return p - p * decay;
}

// w - rate g
template <class T>
MT_FN T sgd(T w, T g, T rate) {
  return w - rate * g;
}

// v' = mu v - rate g;  w + v', or w + mu v' - rate g
template <class T>
struct MomentumStep {
  T w, v;
};
template <bool is_nesterov, class T>
MT_FN MomentumStep<T> momentum(T w, T g, T rate, T mu, T v) {
  const T step = rate * g, velocity = mu * v - step;
  return {is_nesterov ? w + (mu * velocity - step) : w + velocity, velocity};
}

// v' = rho v + (1 - rho) g^2;  a' = rho a + (1 - rho) g;  below = v' [- a'^2] + epsilon
// step = rate g / sqrt(below);  m' = mu m + step;  w - step, or w - m'
template <class T>
struct RmspropNumbers {
  T rho, rest;  // rest: 1 - rho, rounded once
  T mu, epsilon;
};
template <class T>
struct RmspropStep {
  T w, v, m, a;
};
template <bool has_momentum, bool is_centered, class T>
MT_FN RmspropStep<T> rmsprop(T w, T g, T rate, RmspropNumbers<T> n, T v, T m, T a) {
  const T velocity = n.rho * v + n.rest * (g * g);
  T average = a, below = velocity + n.epsilon;
  if constexpr (is_centered) {
    average = n.rho * a + n.rest * g;
    below = velocity - average * average + n.epsilon;
  }
  T step = rate * g / sqrt(below);
  if constexpr (has_momentum)
    step = n.mu * m + step;
  return {w - step, velocity, step, average};
}

// m' = m + (g - m) (1 - beta1);  v' = v + (g^2 - v) (1 - beta2);  top' = max(top, v')
// w - rate m' / (sqrt(v' or top') + epsilon)
template <class T>
struct AdamNumbers {
  T rest1, rest2;  // 1 - beta1, 1 - beta2
  T epsilon;
};
template <class T>
struct AdamStep {
  T w, m, v, top;
};
template <bool is_amsgrad, class T>
MT_FN AdamStep<T> adam(T w, T g, T rate, AdamNumbers<T> n, T m, T v, T top) {
  const T mean = m + (g - m) * n.rest1;
  const T square = v + (g * g - v) * n.rest2;
  const T largest = is_amsgrad ? max(top, square) : square;
  return {w - rate * mean / (sqrt(largest) + n.epsilon), mean, square, largest};
}

}  // namespace
}  // namespace mt
