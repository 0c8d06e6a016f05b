// Collectives: the regions in which the pieces of a result overlap those of the operand. Both
// shardings are known, so that the six moves are one function. Pieces that other processes hold
// come by an exchange first.
//
// An all-reduce between processes is two of these: each process gets all terms of a share of the
// elements and adds them up in device order, then the shares are gathered. Each device sends
// 2 (n - 1) / n of the bytes, as the best algorithms do, and the result does not depend on how the
// mesh is split over processes.
#include "exec/exchange.h"
#include "exec/prepare.h"
#include "exec/region_planner.h"

namespace meshtrain {
namespace {

Reduction reduction_of(Combine combine) {
  switch (combine) {
    case Combine::kSum:
      return Reduction::kSum;
    case Combine::kMax:
      return Reduction::kMax;
    case Combine::kMin:
      return Reduction::kMin;
  }
  return Reduction::kSum;
}

// One collective over its operands (a bucket has several).
class Collective {
 public:
  explicit Collective(StepContext& context)
      : context_(context), maker_(context.maker), part_(context.program.part) {}

  void make() {
    axes_ = settled(0) & part_.crossing();
    if (context_.step.op->name != "all_reduce" || axes_ == 0) {
      move(&Collective::source, &Collective::target, true);
      return;
    }
    for (size_t i = 1; i < num_operands(); ++i)
      MESHTRAIN_CHECK((settled(i) & part_.crossing()) == axes_, "{}: other axes",
                      context_.step.path);
    group_ = part_.group(axes_);
    if (context_.program.fixed_reductions) {
      move(&Collective::source_as_run, &Collective::share, true);
      gather_shares();
    } else {
      move(&Collective::source, &Collective::target, false);
      reduce_by_library();
    }
  }

 private:
  size_t num_operands() const { return context_.step.inputs.size(); }
  AxisMask settled(size_t i) const {
    return context_.input(i).sharding.partial & ~context_.output(i).sharding.partial;
  }

  static Side side(const Buffer& buffer, std::byte* base) {
    return {buffer, base, [&buffer](const MeshPart& part, int64_t device) {
              return whole_box(buffer, part, device);
            }};
  }
  Side source(size_t i) const { return side(context_.input(i), context_.input_base(i)); }
  Side target(size_t i) const { return side(context_.output(i), context_.output_base(i)); }
  Side source_as_run(size_t i) const {
    const Buffer& buffer = context_.input(i);
    return {buffer, context_.input_base(i), [&buffer](const MeshPart& part, int64_t device) {
              return run_box(buffer, part, device, 0, num_elements(buffer.shape));
            }};
  }
  // Elements of each piece of a result that the process at this place of its group adds up.
  std::pair<int64_t, int64_t> share_of(const Buffer& buffer, int64_t place) const {
    const int64_t n = num_elements(buffer.shape), count = static_cast<int64_t>(group_.size());
    return {n * place / count, n * (place + 1) / count};
  }
  Side share(size_t i) const {
    const Buffer& buffer = context_.output(i);
    return {buffer, context_.output_base(i), [this, &buffer](const MeshPart& part, int64_t device) {
              const auto [begin, end] = share_of(buffer, part.place_in_group(axes_));
              return run_box(buffer, part, device, begin, end);
            }};
  }

  // Of an operand and its result.
  using SideOf = Side (Collective::*)(size_t i) const;

  // From all sources to all targets, other processes' included `with_others`.
  void move(SideOf from, SideOf to, bool with_others) {
    Exchange exchange;
    std::vector<RegionPlanner> planners;
    for (size_t i = 0; i < num_operands(); ++i) {
      planners.emplace_back(part_, (this->*from)(i), context_.presummed_of_input(i),
                            (this->*to)(i));
      planners.back().plan(exchange, with_others);
    }
    exchange.make(maker_);
    std::vector<std::vector<Region>> regions;
    for (const RegionPlanner& planner : planners)
      regions.push_back(planner.regions(exchange, maker_));
    maker_.begin_group();
    for (size_t i = 0; i < num_operands(); ++i) {
      const Buffer& terms = context_.input(i);
      if (!regions[i].empty())
        maker_.combine(reduction_of(terms.sharding.combine), terms.dtype, regions[i]);
    }
    maker_.end_group();
  }

  View run_of(size_t i, int64_t piece, std::pair<int64_t, int64_t> range) const {
    const Buffer& buffer = context_.output(i);
    const int64_t item = static_cast<int64_t>(dtype_size(buffer.dtype));
    return contiguous_view(
        context_.output_base(i) + piece * buffer.piece_bytes + range.first * item, buffer.dtype,
        {range.second - range.first});
  }

  // Every process of the group gets the shares that the others have added up.
  void gather_shares() {
    struct Arrival {
      Exchange::Slot slot;
      View to;
    };
    Exchange exchange;
    exchange.expect();
    std::vector<Arrival> arrivals;
    const int64_t place = part_.place_in_group(axes_);
    for (int64_t peer = 0; peer < static_cast<int64_t>(group_.size()); ++peer) {
      if (peer == place)
        continue;
      const int rank = group_[static_cast<size_t>(peer)];
      for (size_t i = 0; i < num_operands(); ++i) {
        const Buffer& buffer = context_.output(i);
        for (int64_t p = 0; p < buffer.num_pieces; ++p) {
          const View mine = run_of(i, p, share_of(buffer, place));
          const View theirs = run_of(i, p, share_of(buffer, peer));
          if (mine.shape[0] > 0)
            exchange.send(rank, mine);
          if (theirs.shape[0] > 0) {
            const int64_t bytes = theirs.shape[0] * theirs.item_size();
            arrivals.push_back({exchange.receive(rank, bytes, theirs.data), theirs});
          }
        }
      }
    }
    exchange.make(maker_);
    maker_.begin_group();
    for (const Arrival& arrival : arrivals) {
      std::byte* const at = exchange.address(arrival.slot);
      if (at != arrival.to.data)
        maker_.copy(contiguous_view(at, arrival.to.dtype, arrival.to.shape), arrival.to);
    }
    maker_.end_group();
  }

  // The results hold the sums of this process's terms.
  void reduce_by_library() {
    std::vector<View> results;
    int64_t elements = 0;
    for (size_t i = 0; i < num_operands(); ++i) {
      const Buffer& buffer = context_.output(i);
      const int64_t n = num_elements(buffer.shape) * buffer.num_pieces;
      results.push_back(contiguous_view(context_.output_base(i), buffer.dtype, {n}));
      elements += n;
    }
    const Reduction reduction = reduction_of(context_.input(0).sharding.combine);
    const View& first = results[0];
    if (results.size() == 1) {
      maker_.all_reduce(reduction, first.dtype, first.data, elements, group_);
      return;
    }
    std::byte* const packed = maker_.scratch(elements * first.item_size());
    copy_all(results, packed, true);
    maker_.all_reduce(reduction, first.dtype, packed, elements, group_);
    copy_all(results, packed, false);
  }

  void copy_all(const std::vector<View>& results, std::byte* packed, bool pack) {
    maker_.begin_group();
    for (const View& result : results) {
      const View in_pack = contiguous_view(packed, result.dtype, result.shape);
      maker_.copy(pack ? result : in_pack, pack ? in_pack : result);
      packed += result.shape[0] * result.item_size();
    }
    maker_.end_group();
  }

  StepContext& context_;
  KernelMaker& maker_;
  const MeshPart& part_;
  AxisMask axes_ = 0;       // settled between processes
  std::vector<int> group_;  // those that settle them together
};

void add_collective(StepContext& context) {
  Collective(context).make();
}

}  // namespace

std::vector<Preparation> collective_preparations() {
  return {{"all_gather", add_collective}, {"all_reduce", add_collective},
          {"all_to_all", add_collective}, {"permute", add_collective},
          {"reshard", add_collective},    {"reduce_scatter", add_collective},
          {"shard_slice", add_collective}};
}

}  // namespace meshtrain
