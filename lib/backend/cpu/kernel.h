// Kernel: one prepared computation of the CPU backend. Pointers, shapes and strides are fixed at
// its creation. Running it takes no lock and allocates nothing, except a few small blocks of oneDNN
// in each call of a primitive (primitive.h).
//
// A kernel consists of `units()` parts that may be computed apart, in any order, by any worker.
// The content of a unit depends on shapes only, so that results do not depend on the number of
// workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/kernel_spec.h"

namespace meshtrain::cpu {

class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual int64_t units() const { return 1; }
  // Computes the units [begin, end). `scratch`: scratch_bytes() of the calling worker, 64-byte
  // aligned.
  virtual void run(int64_t begin, int64_t end, std::byte* scratch) const = 0;
  // Appends what run(begin, end) may touch; more than that is allowed.
  virtual void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
  // Whether no other kernel may move to its other side: transfers between processes, whose order
  // is the same on all of them.
  virtual bool keeps_place() const { return false; }
  // Rough time of all units on one core, in nanoseconds.
  virtual double cost() const = 0;
};

// Whether two accesses must keep their order: they overlap, and one of them writes.
inline bool conflict(const Access& a, const Access& b) {
  return (a.is_write || b.is_write) && a.begin < b.end && b.begin < a.end;
}

using KernelPtr = std::unique_ptr<Kernel>;
using KernelList = std::vector<KernelPtr>;  // to be run one after the other

// Memory for intermediate results of a step, handed out while its kernels are prepared; it holds
// until the last of them has run.
class ScratchAllocator {
 public:
  virtual ~ScratchAllocator() = default;
  virtual void begin_step() {}  // what was taken before is free again
  virtual std::byte* take(int64_t bytes) = 0;
};

}  // namespace meshtrain::cpu
