#include "exec/region_planner.h"

#include <algorithm>
#include <map>
#include <optional>

namespace meshtrain {
namespace {

// Whether a box of this shape within one of shape `whole` is a run of its elements.
bool is_run(const Shape& shape, const Shape& whole) {
  size_t d = 0;
  while (d < shape.size() && shape[d] == 1)
    ++d;
  for (++d; d < shape.size(); ++d) {
    if (shape[d] != whole[d])
      return false;
  }
  return true;
}

bool lie_alike(const Shape& shape, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && a[d] != b[d])
      return false;
  }
  return true;
}

// Returns the box of a device's whole shard.
Box whole_box(const Buffer& buffer, const MeshPart& part, int64_t device) {
  return {local_start(buffer.global_shape, buffer.sharding, part.mesh(), device), buffer.shape, 0,
          0};
}

}  // namespace

Box run_box(const Buffer& buffer, const MeshPart& part, int64_t device, int64_t begin,
            int64_t end) {
  const Box whole = whole_box(buffer, part, device);
  const std::vector<int64_t> strides = row_major_strides(buffer.global_shape);
  int64_t key = 0;
  for (size_t d = 0; d < strides.size(); ++d)
    key += whole.start[d] * strides[d];
  return {{begin}, {end - begin}, key, begin};
}

Side whole_side(const Buffer& buffer, std::byte* base) {
  return {buffer, base, [&buffer](const MeshPart& part, int64_t device) {
            return whole_box(buffer, part, device);
          }};
}

RegionPlanner::RegionPlanner(const MeshPart& part, Side source, AxisMask fused_sums, Side target)
    : part_(part),
      source_(std::move(source)),
      target_(std::move(target)),
      kept_(source_.buffer.sharding.partial & target_.buffer.sharding.partial) {
  const DeviceMesh& mesh = part.mesh();
  const int64_t num_sources = mesh.size_of(source_.buffer.axes);
  for (int64_t p = 0; p < num_sources; ++p) {
    const int64_t device = device_of_shard(mesh, source_.buffer.axes, p);
    if (part.shard_like(fused_sums, device) == 0)
      sources_.push_back({device, source_.box(part, device),
                          part.holder(device, source_.buffer.axes) == part.rank()});
  }
}

// Nothing when they do not meet.
std::optional<RegionPlanner::Overlap> RegionPlanner::overlap(const Box& source, const Box& target) {
  if (source.key != target.key)
    return std::nullopt;
  Overlap out{{}, source.first, target.first};
  const std::vector<int64_t> source_strides = row_major_strides(source.shape);
  const std::vector<int64_t> target_strides = row_major_strides(target.shape);
  for (size_t d = 0; d < source.start.size(); ++d) {
    const int64_t begin = std::max(source.start[d], target.start[d]);
    const int64_t end =
        std::min(source.start[d] + source.shape[d], target.start[d] + target.shape[d]);
    if (begin >= end)
      return std::nullopt;
    out.shape.push_back(end - begin);
    out.from += (begin - source.start[d]) * source_strides[d];
    out.to += (begin - target.start[d]) * target_strides[d];
  }
  return out;
}

// Calls visit(source, overlap) for every term of the shard that a device holds from the sources for
// which matters(source). Sources are in device order, so that terms are added in device order.
template <class Matters, class Visit>
void RegionPlanner::for_each_term(int64_t device, const Box& box, Matters&& matters,
                                  Visit&& visit) const {
  const DeviceMesh& mesh = part_.mesh();
  const int64_t kept = distinct_shard(mesh, kept_, device);
  for (const Source& source : sources_) {
    if (!matters(source) || distinct_shard(mesh, kept_, source.device) != kept)
      continue;
    if (const auto meet = overlap(source.box, box))
      visit(source, *meet);
  }
}

void RegionPlanner::plan(Exchange& exchange) {
  plan_regions(
      part_, target_.base, [](const Source&) { return true; },
      [&](Planned& region, const Source& source, const Overlap& meet) {
        add_term(region, source, meet, exchange);
      });
  for (int rank = 0; rank < part_.processes(); ++rank) {
    if (rank != part_.rank())
      plan_sends(rank, exchange);
  }
}

void RegionPlanner::plan_from(const std::function<std::byte*(int rank)>& at) {
  plan_regions(
      part_, target_.base, [](const Source&) { return true; },
      [&](Planned& region, const Source& source, const Overlap& meet) {
        const int holder = part_.holder(source.device, source_.buffer.axes);
        region.terms.push_back({address_in(at(holder), source, meet), {}});
      });
}

void RegionPlanner::plan_to(const MeshPart& whose, std::byte* base) {
  plan_regions(
      whose, base, [](const Source& source) { return source.is_mine; },
      [&](Planned& region, const Source& source, const Overlap& meet) {
        region.terms.push_back({local_address(source, meet), {}});
      });
}

// Calls add(region, source, overlap) for every term of the shards of a process.
template <class Matters, class Add>
void RegionPlanner::plan_regions(const MeshPart& whose, std::byte* base, Matters&& matters,
                                 Add&& add) {
  const Buffer& target = target_.buffer;
  const int64_t num_targets = whose.num_shards(target.axes);
  for (int64_t p = 0; p < num_targets; ++p) {
    const int64_t device = whose.device_of(target.axes, p);
    const Box box = target_.box(whose, device);
    // One region for each position of the split axes; its terms differ along the reduced axes only.
    std::map<std::pair<std::vector<int64_t>, int64_t>, size_t> region_of;
    for_each_term(device, box, matters, [&](const Source& source, const Overlap& meet) {
      const auto [place, is_new] =
          region_of.try_emplace({source.box.start, source.box.key}, planned_.size());
      if (is_new) {
        planned_.push_back(
            {base + p * target.shard_bytes + meet.to * item(), meet.shape, box.shape, false, {}});
      }
      add(planned_[place->second], source, meet);
    });
  }
}

void RegionPlanner::add_term(Planned& region, const Source& source, const Overlap& meet,
                             Exchange& exchange) {
  if (source.is_mine) {
    region.terms.push_back({local_address(source, meet), {}});
    return;
  }
  const bool may_arrive_there = is_copy() && is_run(meet.shape, region.target_shape);
  region.has_remote = true;
  const int holder = part_.holder(source.device, source_.buffer.axes);
  region.terms.push_back({nullptr, exchange.receive(holder, num_elements(meet.shape) * item(),
                                                    may_arrive_there ? region.to : nullptr)});
}

void RegionPlanner::plan_sends(int rank, Exchange& exchange) const {
  const MeshPart peer = part_.of(rank);
  const AxisMask axes = target_.buffer.axes;
  const int64_t num_targets = peer.num_shards(axes);
  // Messages between other processes are checked only until the first one is found: n processes
  // have n * n pairs.
  const auto matters = [&](const Source& source) {
    return source.is_mine || !exchange.is_expected();
  };
  for (int64_t p = 0; p < num_targets; ++p) {
    const int64_t device = peer.device_of(axes, p);
    for_each_term(device, target_.box(peer, device), matters,
                  [&](const Source& source, const Overlap& meet) {
                    const int holder = part_.holder(source.device, source_.buffer.axes, rank);
                    if (holder != rank)
                      exchange.expect();
                    if (holder == part_.rank()) {
                      exchange.send(rank, {local_address(source, meet), dtype(), meet.shape,
                                           row_major_strides(source.box.shape)});
                    }
                  });
  }
}

std::byte* RegionPlanner::address_in(std::byte* base, const Source& source,
                                     const Overlap& meet) const {
  const int64_t shard = part_.shard_like(source_.buffer.axes, source.device);
  return base + shard * source_.buffer.shard_bytes + meet.from * item();
}

bool RegionPlanner::is_copy() const {
  return (source_.buffer.sharding.partial & ~target_.buffer.sharding.partial) == 0;
}

std::vector<Region> RegionPlanner::regions(const Exchange& exchange, KernelSpecs& specs) const {
  std::vector<Region> out;
  for (const Planned& planned : planned_) {
    Region region{planned.to, {}, planned.shape, row_major_strides(planned.target_shape), {}};
    region.from_strides = planned.has_remote ? row_major_strides(planned.shape) : source_strides();
    for (const Term& term : planned.terms) {
      region.sources.push_back(term.local == nullptr ? exchange.address(term.slot)
                               : planned.has_remote  ? packed(term.local, planned.shape, specs)
                                                     : term.local);
    }
    const bool is_there = region.sources.size() == 1 && region.sources[0] == region.to &&
                          lie_alike(region.shape, region.from_strides, region.to_strides);
    if (!is_there)
      out.push_back(std::move(region));
  }
  return out;
}

// The terms of a region have equal strides, and those that came from others have no gaps.
const std::byte* RegionPlanner::packed(std::byte* local, const Shape& shape,
                                       KernelSpecs& specs) const {
  const std::vector<int64_t> from = source_strides();
  if (lie_alike(shape, from, row_major_strides(shape)))
    return local;
  std::byte* const copy = add_scratch(specs, num_elements(shape) * item());
  specs.emplace_back(
      CopySpec{{local, dtype(), shape, from}, contiguous_view(copy, dtype(), shape)});
  return copy;
}

}  // namespace meshtrain
