// Reductions of many terms to each of many results, in an order that depends only on their numbers:
// sums, maxima, argmax, small products, gradients of kernels.
//
// A group of `lanes` threads computes one result (device/reduce.cuh). When the results are too few
// to fill a GPU, or so many terms would cost a float32 sum digits, the terms are split into parts;
// another launch reduces these.
#pragma once

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

struct ReductionBody {
  std::string_view kind;      // of the body's name
  std::string_view device;    // the file of device/ with
  std::string_view function;  // this one, which takes a Reducing, then `of`
  std::string of;
  int64_t outputs = 1, terms = 1;
  // True when neighbours in memory are terms of one result, not different results.
  bool terms_adjacent = false;
  int64_t value_bytes = 4;  // of what threads exchange
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
// Returns its name in device/reduce.cuh: "Sum".
std::string_view reduction_name(Reduction reduction);

}  // namespace meshtrain::gpu
