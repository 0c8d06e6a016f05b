// Many results, each joined from many terms in an order that depends on nothing but their numbers:
// sums, maxima, places of maxima, small products, gradients of kernels.
//
// A group of `lanes` threads computes one result; each takes every lanes-th term into four values,
// which are joined in a fixed tree. Where there are too few results to fill a GPU, or so many terms
// that a float32 sum would lose digits, the terms are cut in parts, which somebody else joins.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

struct ReductionBody {
  std::string_view kind;  // of the body's name
  int64_t outputs = 1, terms = 1;
  // Whether neighbours in memory are terms of one result, rather than results.
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

// `may_split`: whether parts can be joined afterwards.
ReductionPlan plan_reduction(int64_t outputs, int64_t terms, bool terms_adjacent, bool may_split);
KernelBodyPtr reduction_body(const ReductionBody& body, const ReductionPlan& plan);
// What the index types of a reduction must hold beside the places of its terms.
int64_t reduction_reach(int64_t outputs, int64_t terms);

// The value that changes nothing.
double neutral(Reduction reduction);
// `none` and `join` for an A that is what `dtype` is computed in.
std::string combine_lines(Reduction reduction, DType dtype);

// `other` for an A that shuffles as it is.
constexpr std::string_view kOtherOfNumber =
    "auto other = [](A a, unsigned lanes) -> A {"
    " return (A)__shfl_xor_sync(0xffffffffu, a, lanes); };\n";

}  // namespace meshtrain::gpu
