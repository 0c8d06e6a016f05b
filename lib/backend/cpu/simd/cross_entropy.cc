// A token's row of logits: its loss, and its gradient in place (formulas:
// ir/ops/linear_cross_entropy.cc).
#include "backend/cpu/cross_entropy_loops.h"
#include "backend/cpu/simd/exponential.h"

namespace meshtrain::cpu {
namespace {

// NaN where an element is: a maximum alone would leave it out.
template <class T>
T largest_of(const T* x, int64_t n) {
  T largest = -static_cast<T>(__builtin_inf()), difference = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t v = 0; v < n; ++v)
    largest = x[v] > largest ? x[v] : largest;
#pragma omp simd reduction(+ : difference)
  for (int64_t v = 0; v < n; ++v)
    difference += x[v] == x[v] ? T{0} : x[v];
  return largest + difference;
}

template <class T>
bool is_first_of(const T* x, int64_t id, T largest) {
  if (x[id] != largest)
    return false;
  int equal = 0;
#pragma omp simd reduction(+ : equal)
  for (int64_t v = 0; v < id; ++v)
    equal += x[v] == largest ? 1 : 0;
  return equal == 0;
}

template <class T>
void cross_entropy(CrossEntropyRow& row, CrossEntropyMode mode) {
  T* const x = static_cast<T*>(row.logits);
  const int64_t n = row.classes;
  const bool has_id = row.id >= 0 && row.id < n;
  const T weight = static_cast<T>(row.weight);
  if (mode == CrossEntropyMode::kGradientOfLse) {
    const T lse = static_cast<T>(row.lse);
#pragma omp simd
    for (int64_t v = 0; v < n; ++v)
      x[v] = weight * exp_of(x[v] - lse);
    if (has_id)
      x[row.id] -= weight;
    return;
  }
  const T largest = largest_of(x, n);
  row.largest = static_cast<double>(largest);
  row.picked = has_id ? static_cast<double>(x[row.id]) : 0;
  row.is_first = has_id && is_first_of(x, row.id, largest);
  T sum = 0;
  if (mode == CrossEntropyMode::kForward) {
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < n; ++v)
      sum += exp_of(x[v] - largest);
    row.sum = static_cast<double>(sum);
    return;
  }
#pragma omp simd reduction(+ : sum)
  for (int64_t v = 0; v < n; ++v) {
    x[v] = exp_of(x[v] - largest);
    sum += x[v];
  }
  row.sum = static_cast<double>(sum);
  const T factor = weight / sum;
#pragma omp simd
  for (int64_t v = 0; v < n; ++v)
    x[v] *= factor;
  if (has_id)
    x[row.id] -= weight;
}

}  // namespace

void MESHTRAIN_FILL(fill_cross_entropy)(CrossEntropyLoops& loops);
void MESHTRAIN_FILL(fill_cross_entropy)(CrossEntropyLoops& loops) {
  loops.of[kTypeF32] = cross_entropy<float>;
  loops.of[kTypeF64] = cross_entropy<double>;
}

}  // namespace meshtrain::cpu
