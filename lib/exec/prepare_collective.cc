// Collectives: the regions in which the pieces of a result overlap those of the operand. Both
// shardings are known, so that the six moves are one function. Pieces that other processes hold
// come by an exchange first.
//
// An all-reduce between processes is two of these: each process gets all terms of a share of the
// elements and adds them up in device order, then the shares are gathered. Each device sends
// 2 (n - 1) / n of the bytes, as the best algorithms do, and the result does not depend on how the
// mesh is split over processes. What a library moves better is in library_collective.h.
#include "exec/exchange.h"
#include "exec/library_collective.h"
#include "exec/prepare.h"
#include "exec/region_planner.h"

namespace meshtrain {
namespace {

// One collective over its operands (a bucket has several).
class Collective {
 public:
  explicit Collective(StepContext& context)
      : context_(context), maker_(context.maker), part_(context.program.part) {}

  void make() {
    axes_ = settled(0) & part_.crossing();
    if (context_.step.op->name != "all_reduce" || axes_ == 0)
      return move(&Collective::source, &Collective::target);
    for (size_t i = 1; i < num_operands(); ++i)
      MESHTRAIN_CHECK((settled(i) & part_.crossing()) == axes_, "{}: other axes",
                      context_.step.path);
    group_ = part_.group(axes_);
    move(&Collective::source_as_run, &Collective::share);
    gather_shares();
  }

 private:
  size_t num_operands() const { return context_.step.inputs.size(); }
  AxisMask settled(size_t i) const {
    return context_.input(i).sharding.partial & ~context_.output(i).sharding.partial;
  }

  Side source(size_t i) const { return whole_side(context_.input(i), context_.input_base(i)); }
  Side target(size_t i) const { return whole_side(context_.output(i), context_.output_base(i)); }
  Side source_as_run(size_t i) const {
    const Buffer& buffer = context_.input(i);
    return {buffer, context_.input_base(i), [&buffer](const MeshPart& part, int64_t device) {
              return run_box(buffer, part, device, 0, num_elements(buffer.shape));
            }};
  }
  // Of n elements, those that the process at this place of its group adds up.
  std::pair<int64_t, int64_t> share_of(int64_t n, int64_t place) const {
    const int64_t count = static_cast<int64_t>(group_.size());
    return {n * place / count, n * (place + 1) / count};
  }
  Side share(size_t i) const {
    const Buffer& buffer = context_.output(i);
    return {buffer, context_.output_base(i), [this, &buffer](const MeshPart& part, int64_t device) {
              const auto [begin, end] =
                  share_of(num_elements(buffer.shape), part.place_in_group(axes_));
              return run_box(buffer, part, device, begin, end);
            }};
  }
  View share_of(const View& piece, int64_t place) const {
    const auto [begin, end] = share_of(piece.shape[0], place);
    return contiguous_view(piece.data + begin * piece.item_size(), piece.dtype, {end - begin});
  }

  // Of an operand and its result.
  using SideOf = Side (Collective::*)(size_t i) const;

  // From all sources to all targets.
  void move(SideOf from, SideOf to) {
    Exchange exchange;
    std::vector<RegionPlanner> planners;
    for (size_t i = 0; i < num_operands(); ++i) {
      planners.emplace_back(part_, (this->*from)(i), context_.presummed_of_input(i),
                            (this->*to)(i));
      planners.back().plan(exchange);
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

  // Every process of the group gets the shares that the others have added up: by an all-gather,
  // where there is one, of the pieces of which all have equal shares.
  void gather_shares() {
    std::vector<View> even, uneven;
    for (size_t i = 0; i < num_operands(); ++i) {
      const Buffer& buffer = context_.output(i);
      const int64_t n = num_elements(buffer.shape);
      const bool is_even = has_equal_shares(buffer, group_.size()) && maker_.has_gathers();
      for (int64_t p = 0; p < buffer.num_pieces; ++p) {
        std::byte* const piece = context_.output_base(i) + p * buffer.piece_bytes;
        (is_even ? even : uneven).push_back(contiguous_view(piece, buffer.dtype, {n}));
      }
    }
    gather_runs(maker_, even, part_.place_in_group(axes_), group_);
    if (!uneven.empty())
      exchange_shares(uneven);
  }

  void exchange_shares(const std::vector<View>& pieces) {
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
      for (const View& piece : pieces) {
        const View mine = share_of(piece, place), theirs = share_of(piece, peer);
        if (mine.shape[0] > 0)
          exchange.send(rank, mine);
        if (theirs.shape[0] > 0) {
          const int64_t bytes = theirs.shape[0] * theirs.item_size();
          arrivals.push_back({exchange.receive(rank, bytes, theirs.data), theirs});
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

  StepContext& context_;
  KernelMaker& maker_;
  const MeshPart& part_;
  AxisMask axes_ = 0;       // settled between processes
  std::vector<int> group_;  // those that settle them together
};

void add_collective(StepContext& context) {
  if (!make_by_library(context))
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
