// Chains: kernels whose parts need nothing of other parts, such as those of a residual, a
// normalization and an activation. Part by part all of them run, so that what one hands to the next
// is still in the cache, and no worker waits for another in between.
#pragma once

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

// A unit is a part of each member: as many of its units as of every other part.
class Chain final : public Kernel {
 public:
  // `parts` divides the units of each member.
  Chain(KernelList members, int64_t parts);

  int64_t units() const override { return parts_; }
  double cost() const override { return cost_; }
  size_t scratch_bytes() const override { return scratch_bytes_; }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override;
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override;

  const KernelList& members() const { return members_; }
  void run_part(const Kernel& member, int64_t part, std::byte* scratch) const;

 private:
  KernelList members_;
  int64_t parts_;
  double cost_ = 0;
  size_t scratch_bytes_ = 0;
};

// Joins kernels that follow each other, or nearly so, by what they access. Others between them move
// before a chain that they do not touch, or behind it. Units stay what they are, and so do all
// results. A chain has several parts for each of `num_workers`.
KernelList join_chains(KernelList kernels, int num_workers);

}  // namespace meshtrain::cpu
