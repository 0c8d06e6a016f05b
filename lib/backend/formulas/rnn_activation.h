// Activations of recurrent cells, and their derivatives where their values are known.
#pragma once

#include "backend/formulas/elementwise.h"
#include "base/device_function.h"

namespace mt {
namespace {

// As meshtrain::RnnActivation.
enum class RnnActivation : unsigned char {
  kTanh,
  kSigmoid,
  kRelu,
  kLinear,
  kHardSigmoid,
  kRelu6,
  kSoftplus,
  kSoftsign,
  kElu,
  kSelu,
  kLeakyRelu,
  kExponential,
  kHardTanh,
};

constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;
constexpr double kLeakySlope = 0.2;  // of Keras' activation

template <class T>
MT_FN T rnn_activate(RnnActivation f, T x) {
  switch (f) {
    case RnnActivation::kTanh:
      return tanh(x);
    case RnnActivation::kSigmoid:
      return sigmoid(x);
    case RnnActivation::kRelu:
      return x > T(0) ? x : T(0);
    case RnnActivation::kHardSigmoid:
      return clamp(x + T(3), T(0), T(6)) / T(6);
    case RnnActivation::kRelu6:
      return clamp(x, T(0), T(6));
    case RnnActivation::kSoftplus:
      return softplus(x);
    case RnnActivation::kSoftsign:
      return x / (T(1) + abs(x));
    case RnnActivation::kElu:
      return x > T(0) ? x : expm1(x);
    case RnnActivation::kSelu:
      return T(kSeluScale) * (x > T(0) ? x : T(kSeluAlpha) * expm1(x));
    case RnnActivation::kLeakyRelu:
      return x > T(0) ? x : T(kLeakySlope) * x;
    case RnnActivation::kExponential:
      return exp(x);
    case RnnActivation::kHardTanh:
      return clamp(x, T(-1), T(1));
    default:
      return x;
  }
}
// The derivative where the activation is y.
template <class T>
MT_FN T rnn_slope(RnnActivation f, T y) {
  switch (f) {
    case RnnActivation::kTanh:
      return T(1) - y * y;
    case RnnActivation::kSigmoid:
      return y * (T(1) - y);
    case RnnActivation::kRelu:
      return y > T(0) ? T(1) : T(0);
    case RnnActivation::kHardSigmoid:
      return y > T(0) && y < T(1) ? T(1) / T(6) : T(0);
    case RnnActivation::kRelu6:
      return y > T(0) && y < T(6) ? T(1) : T(0);
    case RnnActivation::kSoftplus:
      return -expm1(-y);
    case RnnActivation::kSoftsign:
      return square(T(1) - abs(y));
    case RnnActivation::kElu:
      return y > T(0) ? T(1) : y + T(1);
    case RnnActivation::kSelu:
      return y > T(0) ? T(kSeluScale) : y + T(kSeluScale * kSeluAlpha);
    case RnnActivation::kLeakyRelu:
      return y > T(0) ? T(1) : T(kLeakySlope);
    case RnnActivation::kExponential:
      return y;
    case RnnActivation::kHardTanh:
      return y > T(-1) && y < T(1) ? T(1) : T(0);
    default:
      return T(1);
  }
}

}  // namespace
}  // namespace mt
