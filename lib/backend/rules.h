// Enumerations of kernels that the innermost loops share. A light header, since the loops are
// compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace meshtrain {

// Elementwise ops, by their names in graphs.
// clang-format off
#define MESHTRAIN_ELEMENT_OPS(X) \
  X(neg) X(exp) X(log) X(log1p) X(expm1) X(tanh) X(sigmoid) X(softplus) X(sqrt) X(rsqrt) \
  X(square) X(abs) X(sign) X(erf) X(sin) X(cos) X(floor) X(round) X(reciprocal) \
  X(relu) X(logical_not) X(is_finite) X(copy) X(add) X(sub) X(mul) X(div) X(max) \
  X(min) X(pow) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(logical_and) X(logical_or) \
  X(select) X(clamp) X(channel_affine) X(gelu) X(gelu_tanh) X(silu) X(gelu_grad) \
  X(gelu_tanh_grad) X(silu_grad)
// clang-format on

enum class Reduction : int { kSum, kMax, kMin, kCount };

enum class OptimizerRule : int { kSgd, kMomentum, kNesterov, kRmsprop, kAdam, kCount };

// Places in OptimizerArgs::scalars. kRate: learning rate, or alpha of adam; kVariant: 1 = centered,
// amsgrad.
enum OptimizerField : int {
  kRate,
  kDecay,
  kMomentumFactor,
  kRho,
  kBeta1,
  kBeta2,
  kEpsilonTerm,
  kVariant
};

// One run of an optimizer over n elements; pointers may be equal between input and output.
struct OptimizerArgs {
  const void* param = nullptr;
  const void* grad = nullptr;
  void* new_param = nullptr;
  const void* slots[4] = {};
  void* new_slots[4] = {};
  double scalars[8] = {};  // by OptimizerField
};

enum class PoolOp : int { kMax, kAverage, kMaxGrad, kAverageGrad };

}  // namespace meshtrain
