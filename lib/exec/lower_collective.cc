// Collectives: the regions in which the shards of a result overlap those of the operand. Both
// shardings are known, so that the six moves are one function. Shards that other processes hold
// come by an exchange first.
//
// An all-reduce between processes is two of these: each process gets all terms of a share of the
// elements and adds them up in device order, then the shares are gathered. Each device sends
// 2 (n - 1) / n of the bytes, as the best algorithms do, and the result does not depend on how the
// mesh is split over processes. What a library moves better is in library_collective.h.
#include "exec/exchange.h"
#include "exec/library_collective.h"
#include "exec/lower.h"
#include "exec/region_planner.h"

namespace meshtrain {
namespace {

// One collective over its operands (a bucket has several).
class Collective {
 public:
  explicit Collective(StepContext& context) : context_(context), part_(context.program.part) {}

  void move() { move(&Collective::source, &Collective::target); }

  void all_reduce() {
    axes_ = resolved_axes(0) & part_.crossing();
    if (axes_ == 0)
      return move();
    for (size_t i = 1; i < num_operands(); ++i)
      MESHTRAIN_CHECK((resolved_axes(i) & part_.crossing()) == axes_, "{}: other axes",
                      context_.step.path);
    group_ = part_.group(axes_);
    move(&Collective::source_as_run, &Collective::share);
    gather_shares();
  }

 private:
  size_t num_operands() const { return context_.step.inputs.size(); }
  AxisMask resolved_axes(size_t i) const {
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
  // Returns the range of n elements that the process at this place of its group reduces.
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
  View share_of(const View& shard, int64_t place) const {
    const auto [begin, end] = share_of(shard.shape[0], place);
    return contiguous_view(shard.data + begin * shard.item_size(), shard.dtype, {end - begin});
  }

  // Returns the side of operand or result i.
  using SideOf = Side (Collective::*)(size_t i) const;

  // From all sources to all targets.
  void move(SideOf from, SideOf to) {
    Exchange exchange;
    std::vector<RegionPlanner> planners;
    for (size_t i = 0; i < num_operands(); ++i) {
      planners.emplace_back(part_, (this->*from)(i), context_.fused_sums_of_input(i),
                            (this->*to)(i));
      planners.back().plan(exchange);
    }
    exchange.make(context_.specs);
    std::vector<std::vector<Region>> regions;
    for (const RegionPlanner& planner : planners)
      regions.push_back(planner.regions(exchange, context_.specs));
    context_.add(BeginGroup{});
    for (size_t i = 0; i < num_operands(); ++i) {
      const Buffer& terms = context_.input(i);
      if (!regions[i].empty())
        context_.add(CombineSpec{reduction_of(terms.sharding.combine), terms.dtype, regions[i]});
    }
    context_.add(EndGroup{});
  }

  // Every process of the group gets the shares that the others have added up: by an all-gather,
  // where there is one, of the shards of which all have equal shares.
  void gather_shares() {
    std::vector<View> even, uneven;
    for (size_t i = 0; i < num_operands(); ++i) {
      const Buffer& buffer = context_.output(i);
      const int64_t n = num_elements(buffer.shape);
      const bool is_even = has_equal_shares(buffer, group_.size()) && context_.has_gathers();
      for (int64_t p = 0; p < buffer.num_shards; ++p) {
        std::byte* const shard = context_.output_base(i) + p * buffer.shard_bytes;
        (is_even ? even : uneven).push_back(contiguous_view(shard, buffer.dtype, {n}));
      }
    }
    gather_runs(context_.specs, even, part_.place_in_group(axes_), group_);
    if (!uneven.empty())
      exchange_shares(uneven);
  }

  void exchange_shares(const std::vector<View>& shards) {
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
      for (const View& shard : shards) {
        const View mine = share_of(shard, place), theirs = share_of(shard, peer);
        if (mine.shape[0] > 0)
          exchange.send(rank, mine);
        if (theirs.shape[0] > 0) {
          const int64_t bytes = theirs.shape[0] * theirs.item_size();
          arrivals.push_back({exchange.receive(rank, bytes, theirs.data), theirs});
        }
      }
    }
    exchange.make(context_.specs);
    context_.add(BeginGroup{});
    for (const Arrival& arrival : arrivals) {
      std::byte* const at = exchange.address(arrival.slot);
      if (at != arrival.to.data)
        context_.add(CopySpec{contiguous_view(at, arrival.to.dtype, arrival.to.shape), arrival.to});
    }
    context_.add(EndGroup{});
  }

  StepContext& context_;
  const MeshPart& part_;
  AxisMask axes_ = 0;       // reduced between processes
  std::vector<int> group_;  // the processes that reduce them together
};

void lower_moves(StepContext& context) {
  Collective(context).move();
}

}  // namespace

void lower_all_gather(StepContext& context) {
  if (!lower_to_library(context))
    lower_moves(context);
}

void lower_reduce_scatter(StepContext& context) {
  if (!lower_to_library(context))
    lower_moves(context);
}

void lower_all_reduce(StepContext& context) {
  if (!lower_to_library(context))
    Collective(context).all_reduce();
}

std::vector<OpLowering> collective_lowerings() {
  return {
      {"all_gather", lower_all_gather},
      {"all_reduce", lower_all_reduce},
      {"all_to_all", lower_moves},
      {"permute", lower_moves},
      {"reduce_scatter", lower_reduce_scatter},
      {"reshard", lower_moves},
      {"shard_slice", lower_moves},
  };
}

}  // namespace meshtrain
