// Reductions of many terms to each of many results, in an order that depends only on their numbers:
// sums, maxima, argmax, small products, gradients of kernels.
//
// A group of `lanes` threads computes one result. Each thread accumulates every lanes-th term in
// four values, which are combined in a fixed tree. When the results are too few to fill a GPU, or
// so many terms would cost a float32 sum digits, the terms are split into parts; another launch
// reduces these.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

struct ReductionBody {
  std::string_view kind;  // of the body's name
  int64_t outputs = 1, terms = 1;
  // True when neighbours in memory are terms of one result, not different results.
  bool terms_adjacent = false;
  int64_t value_bytes = 4;  // of an A
  // Declares the types U (index_types) and A, and what is called:
  //   A none; A join(A, A); A other(A, unsigned lanes): that of the thread whose number differs by
  //   this bit; A term(U output, U term); void result(U output, unsigned part, A).
  std::string text;
};

struct ReductionPlan {
  unsigned lanes = 1;
  int64_t parts = 1, part_terms = 1;
  int64_t groups = 1;  // blocks of a part

  uint64_t blocks() const { return static_cast<uint64_t>(parts * groups); }
};

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

constexpr int64_t kWarp = 32;         // threads
constexpr int64_t kManyBlocks = 264;  // fill a GPU: two for each of 132 multiprocessors

// `may_split`: another launch can reduce the parts.
ReductionPlan plan_reduction(int64_t outputs, int64_t terms, bool terms_adjacent, bool may_split);
KernelBodyPtr reduction_body(const ReductionBody& body, const ReductionPlan& plan);
// Returns the reach of a reduction's index types beside the offsets of its terms.
int64_t reduction_reach(int64_t outputs, int64_t terms);

// Returns the neutral element.
double neutral(Reduction reduction);
// Returns `none` and `join` for an A that is the compute type of `dtype`.
std::string combine_lines(Reduction reduction, DType dtype);

// `other` for an A that warp shuffles accept.
constexpr std::string_view kOtherOfNumber =
    "auto other = [](A a, unsigned lanes) -> A {"
    " return (A)__shfl_xor_sync(0xffffffffu, a, lanes); };\n";

}  // namespace meshtrain::gpu
