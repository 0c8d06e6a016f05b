// Collectives: the regions in which the pieces of a result overlap those of the operand. Both
// shardings are known, so that the six moves are one function.
#include <algorithm>

#include "exec/prepare.h"

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

// The part of one piece of the result that one position of the operand's pieces covers.
struct Overlap {
  Shape shape;
  int64_t from = 0, to = 0;  // first element in either piece
};

// Nothing when they do not meet.
std::optional<Overlap> overlap(const Buffer& source, const std::vector<int64_t>& source_start,
                               const Buffer& target, const std::vector<int64_t>& target_start) {
  Overlap out;
  const std::vector<int64_t> source_strides = row_major_strides(source.shape);
  const std::vector<int64_t> target_strides = row_major_strides(target.shape);
  for (size_t d = 0; d < source_start.size(); ++d) {
    const int64_t begin = std::max(source_start[d], target_start[d]);
    const int64_t end =
        std::min(source_start[d] + source.shape[d], target_start[d] + target.shape[d]);
    if (begin >= end)
      return std::nullopt;
    out.shape.push_back(end - begin);
    out.from += (begin - source_start[d]) * source_strides[d];
    out.to += (begin - target_start[d]) * target_strides[d];
  }
  return out;
}

class RegionPlanner {
 public:
  // `presummed`: axes along which only the pieces at position 0 hold something.
  RegionPlanner(const DeviceMesh& mesh, const Buffer& source, const std::byte* source_base,
                AxisMask presummed, const Buffer& target, std::byte* target_base)
      : mesh_(mesh),
        source_(source),
        target_(target),
        source_base_(source_base),
        target_base_(target_base),
        kept_(source.sharding.partial & target.sharding.partial) {
    const std::vector<int> empty_axes = list_of(presummed);
    const int64_t num_sources = mesh.size_of(source.axes);
    for (int64_t p = 0; p < num_sources; ++p) {
      const int64_t device = device_of_piece(mesh, source.axes, p);
      if (mesh.index_along(device, empty_axes) != 0)
        continue;
      source_pieces_.push_back(p);
      source_devices_.push_back(device);
      source_starts_.push_back(local_start(source.global_shape, source.sharding, mesh, device));
    }
  }

  void add_regions(std::vector<Region>& out) const {
    const int64_t num_targets = mesh_.size_of(target_.axes);
    for (int64_t p = 0; p < num_targets; ++p)
      add_piece(p, out);
  }

 private:
  static std::vector<int> list_of(AxisMask mask) {
    std::vector<int> axes;
    for (int axis = 0; axis < kMaxAxes; ++axis) {
      if ((mask >> axis & 1u) != 0)
        axes.push_back(axis);
    }
    return axes;
  }

  void add_piece(int64_t piece, std::vector<Region>& out) const {
    const int64_t device = device_of_piece(mesh_, target_.axes, piece);
    const std::vector<int64_t> start =
        local_start(target_.global_shape, target_.sharding, mesh_, device);
    const std::vector<int> kept = list_of(kept_);
    const int64_t item = static_cast<int64_t>(dtype_size(target_.dtype));
    const int64_t rank_in_kept = mesh_.index_along(device, kept);
    // One region for each position of the split axes; its terms differ along the settled axes only.
    std::map<std::vector<int64_t>, size_t> region_of;
    for (size_t s = 0; s < source_devices_.size(); ++s) {
      if (mesh_.index_along(source_devices_[s], kept) != rank_in_kept)
        continue;
      const auto meet = overlap(source_, source_starts_[s], target_, start);
      if (!meet)
        continue;
      const auto [place, is_new] = region_of.try_emplace(source_starts_[s], out.size());
      if (is_new) {
        Region region;
        region.to = target_base_ + piece * target_.piece_bytes + meet->to * item;
        region.shape = meet->shape;
        region.to_strides = row_major_strides(target_.shape);
        region.from_strides = row_major_strides(source_.shape);
        out.push_back(std::move(region));
      }
      // Pieces are numbered in device order, so that terms are added in device order.
      out[place->second].sources.push_back(source_base_ + source_pieces_[s] * source_.piece_bytes +
                                           meet->from * item);
    }
  }

  const DeviceMesh& mesh_;
  const Buffer& source_;
  const Buffer& target_;
  const std::byte* source_base_;
  std::byte* target_base_;
  AxisMask kept_;  // pending before and after
  std::vector<int64_t> source_pieces_, source_devices_;
  std::vector<std::vector<int64_t>> source_starts_;
};

void add_collective(StepContext& context) {
  context.maker.begin_group();
  for (size_t i = 0; i < context.step.inputs.size(); ++i) {
    const Buffer& source = context.input(i);
    std::vector<Region> regions;
    RegionPlanner(context.program.mesh, source, context.input_base(i),
                  context.presummed_of_input(i), context.output(i), context.output_base(i))
        .add_regions(regions);
    context.maker.combine(reduction_of(source.sharding.combine), source.dtype, regions);
  }
  context.maker.end_group();
}

}  // namespace

std::vector<Preparation> collective_preparations() {
  return {{"all_gather", add_collective}, {"all_reduce", add_collective},
          {"all_to_all", add_collective}, {"permute", add_collective},
          {"reshard", add_collective},    {"reduce_scatter", add_collective},
          {"shard_slice", add_collective}};
}

}  // namespace meshtrain
