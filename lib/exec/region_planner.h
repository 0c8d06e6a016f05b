// RegionPlanner: which boxes of the shards of one buffer become boxes of the shards of another. A
// box is copied, or summed over the shards that hold its terms, in device order. Boxes of shards on
// other processes arrive by an Exchange.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "exec/exchange.h"
#include "ir/program.h"

namespace meshtrain {

// The elements that a shard covers. Shards with different keys do not overlap.
struct Box {
  std::vector<int64_t> start;
  Shape shape;
  int64_t key = 0;
  int64_t first = 0;  // element of the shard where the box begins
};
// Returns the box of the elements [begin, end) of a device's shard, as one dimension.
Box run_box(const Buffer& buffer, const MeshPart& part, int64_t device, int64_t begin, int64_t end);

// One side of a move: the shards of this process at `base`, and the boxes of all processes' shards.
struct Side {
  const Buffer& buffer;
  std::byte* base = nullptr;
  std::function<Box(const MeshPart& part, int64_t device)> box;
};

// Returns the side with every shard of the buffer whole.
Side whole_side(const Buffer& buffer, std::byte* base);

class RegionPlanner {
 public:
  // `fused_sums`: axes along which only the source's shards at local position 0 hold values.
  RegionPlanner(const MeshPart& part, Side source, AxisMask fused_sums, Side target);

  // Plans all regions; shards of other processes arrive by the exchange.
  void plan(Exchange& exchange);
  // Plans from copies of all processes' source shards; those of a rank begin at at(rank).
  void plan_from(const std::function<std::byte*(int rank)>& at);
  // Plans the contribution of this process to the target shards of process `whose`, at `base`.
  void plan_to(const MeshPart& whose, std::byte* base);
  // Returns the regions; call after exchange.make(). Data received in place needs no region.
  std::vector<Region> regions(const Exchange& exchange, KernelSpecs& specs) const;

 private:
  struct Source {
    int64_t device;
    Box box;
    bool is_mine;  // this process holds an equal shard
  };
  // The overlap of one shard of the target with one shard of the source.
  struct Overlap {
    Shape shape;
    int64_t from = 0, to = 0;  // first element in either shard
  };
  struct Term {
    std::byte* local = nullptr;  // null: received by the exchange
    Exchange::Slot slot;
  };
  // A region whose remote terms were not received yet.
  struct Planned {
    std::byte* to = nullptr;
    Shape shape, target_shape;
    bool has_remote = false;
    std::vector<Term> terms;
  };

  static std::optional<Overlap> overlap(const Box& source, const Box& target);
  template <class Matters, class Visit>
  void for_each_term(int64_t device, const Box& box, Matters&& matters, Visit&& visit) const;
  template <class Matters, class Add>
  void plan_regions(const MeshPart& whose, std::byte* base, Matters&& matters, Add&& add);
  void plan_sends(int rank, Exchange& exchange) const;
  void add_term(Planned& region, const Source& source, const Overlap& meet, Exchange& exchange);
  // Address of the overlap in the shards that begin at `base`.
  std::byte* address_in(std::byte* base, const Source& source, const Overlap& meet) const;
  std::byte* local_address(const Source& source, const Overlap& meet) const {
    return address_in(source_.base, source, meet);
  }
  const std::byte* packed(std::byte* local, const Shape& shape, KernelSpecs& specs) const;

  bool is_copy() const;  // every region has one term
  DType dtype() const { return source_.buffer.dtype; }
  int64_t item() const { return static_cast<int64_t>(dtype_size(dtype())); }
  std::vector<int64_t> source_strides() const { return row_major_strides(sources_[0].box.shape); }

  const MeshPart& part_;
  Side source_, target_;
  AxisMask kept_;                // partial before and after
  std::vector<Source> sources_;  // of all processes
  std::vector<Planned> planned_;
};

}  // namespace meshtrain
